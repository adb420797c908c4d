"""A rotation on a NoPE layer is taken out in every form; one that lacks on a RoPE layer is refused by layer."""

from pathlib import Path

import numpy as np
import onnx
import onnx_graphsurgeon as gs
import pytest

from artifacts.config import ModelConfig
from artifacts.contract import Form
from artifacts.errors import StageError
from surgery import fuse
from surgery.nope_strip import NOPE_STRIP
from surgery.rotation import find_rotation
from surgery.subject import Subject
from surgery.walk import Walk
from tests.raw_graph import RAW, Deviation, write_raw_folder
from tests.subjects import refusal, subject_of

EVERY = (0, 1, 2)


@pytest.mark.parametrize("rotation", ["arithmetic", "split", "ai.onnx", "com.microsoft"])
def test_a_rotation_on_a_nope_layer_is_taken_out(tmp_path: Path, rotation: str) -> None:
    subject = subject_of(tmp_path, Deviation(rotated=EVERY, rotation=rotation))  # type: ignore[arg-type]  # a literal
    assert NOPE_STRIP.run(subject) == 6
    form = rotation if rotation in ("ai.onnx", "com.microsoft") else ""
    assert subject.stripped == [
        f"layer 1's {which}: {f'{form} RotaryEmbedding' if form else 'arithmetic'}" for which in ("q", "k")
    ]
    left = {tensor.name for node in subject.graph.cleanup().nodes for tensor in node.outputs}
    for which in ("q_rotated", "k_rotated"):
        assert f"model.layers.0.self_attn/{which}" in left
        assert f"model.layers.1.self_attn/{which}" not in left


@pytest.mark.parametrize("rotation", ["arithmetic", "split", "ai.onnx"])
def test_a_graph_with_every_layer_rotated_becomes_the_graph_of_the_right_list(tmp_path: Path, rotation: str) -> None:
    right = write_raw_folder(tmp_path / "right")
    wrong = write_raw_folder(tmp_path / "wrong", Deviation(rotated=EVERY, rotation=rotation))  # type: ignore[arg-type]
    fuse(right.root, 128)
    fuse(wrong.root, 128)
    for form in (Form.MODEL, Form.MODEL_LINEAR, Form.MODEL_ALL):
        nodes = [
            sorted(node.SerializeToString() for node in onnx.load(str(path), load_external_data=False).graph.node)
            for path in (right.graph(form), wrong.graph(form))
        ]
        assert nodes[0] == nodes[1]


def test_a_rope_layer_without_rotation_is_refused_by_name(tmp_path: Path) -> None:
    text = refusal(NOPE_STRIP, subject_of(tmp_path, Deviation(rotated=(0,))))
    assert "6 matches" in text
    assert "4 matches" in text
    assert "layer 2 has RoPE, by the config's no_rope_layers, but nothing rotates its q" in text
    assert "layer 2's k" in text


def test_what_is_not_known_is_not_left_in(tmp_path: Path) -> None:
    subject = subject_of(tmp_path)
    tensor = next(
        t for node in subject.graph.nodes for t in node.outputs if t.name == "model.layers.1.self_attn/k/Transpose"
    )
    node = next(node for node in subject.graph.nodes if tensor in list(node.outputs))
    before = gs.Variable("before", dtype=tensor.dtype, shape=tensor.shape)
    node.outputs = [before]
    subject.graph.nodes.append(gs.Node("Tanh", "odd", {}, [before], [tensor]))
    assert "Tanh 'odd' is neither layout nor scaling nor a rotation" in refusal(NOPE_STRIP, subject)


@pytest.mark.parametrize("op", ["GroupQueryAttention", "MultiHeadAttention"])
def test_a_fused_nodes_flag_is_cleared_on_nope_layers_only(op: str) -> None:
    subject = _with_fused_nodes(op, do_rotary=1)
    assert NOPE_STRIP.run(subject) == 6
    nodes = [node for node in subject.graph.nodes if node.op == op]
    assert [node.attrs["do_rotary"] for node in nodes] == [1, 0, 1]
    assert [node.inputs[7].is_empty() for node in nodes] == [False, op == "GroupQueryAttention", False]
    assert subject.stripped == [f"layer 1's q: com.microsoft::{op} with do_rotary=1"]


def test_a_fused_node_without_the_flag_is_refused_on_rope_layers() -> None:
    text = refusal(NOPE_STRIP, _with_fused_nodes("GroupQueryAttention", do_rotary=0))
    assert "2 matches" in text
    assert "layer 0's q" in text
    assert "layer 2's k" in text


def _with_fused_nodes(op: str, do_rotary: int) -> Subject:
    """Give a graph of three layers in onnxruntime-genai's form."""
    names = ("past_key_values.{}.key", "past_key_values.{}.value", "seqlens", "total", "cos", "sin")
    inputs, nodes = [], []
    for layer in range(3):
        projected = []
        for which in ("q", "k", "v"):
            x, weight = (
                gs.Variable(f"x.{layer}.{which}"),
                gs.Constant(f"w.{layer}.{which}", np.ones((4, 4), np.float32)),
            )
            projected.append(gs.Variable(f"{which}.{layer}"))
            nodes.append(gs.Node("MatMul", f"{which}.{layer}/MatMul", {}, [x, weight], [projected[-1]]))
            inputs.append(x)
        rest = [gs.Variable(name.format(layer) if "{}" in name else f"{name}.{layer}") for name in names]
        attributes = {"do_rotary": do_rotary, "num_heads": 4, "kv_num_heads": 2}
        output = gs.Variable(f"out.{layer}")
        nodes.append(gs.Node(op, f"{op}.{layer}", attributes, projected + rest, [output], domain="com.microsoft"))
        inputs += rest
    table = gs.Constant("table", np.ones((2, 2), np.float32))
    return Subject(gs.Graph(nodes, inputs, []), ModelConfig.from_raw(RAW), (table, table))


def test_a_projection_that_is_not_rotated_has_no_rotation(tmp_path: Path) -> None:
    subject = subject_of(tmp_path)
    tensor = next(t for t in subject.graph.tensors().values() if t.name == "model.layers.1.self_attn/q/Transpose")
    assert find_rotation(Walk(), tensor) is None


def test_fusing_what_rotates_a_rope_layer_in_microsofts_form_is_refused_by_name(tmp_path: Path) -> None:
    folder = write_raw_folder(tmp_path / "hand", Deviation(rotation="com.microsoft"))
    with pytest.raises(StageError, match=r"is com\.microsoft's RotaryEmbedding; only ONNX's own can be carried"):
        fuse(folder.root, 128)
