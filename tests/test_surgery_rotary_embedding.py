"""Rotations become RotaryEmbedding over the checkpoint's tables, if their angles are those of the positions."""

from pathlib import Path

import numpy as np
import onnx
import onnx_graphsurgeon as gs
import pytest

from artifacts.contract import Form
from artifacts.twin import fp32_twin
from surgery import fuse
from surgery.rotary_embedding import ROTARY_EMBEDDING
from tests.raw_graph import YARN, Deviation, write_raw_folder
from tests.steps import Steps, Tokens, distance
from tests.subjects import count, refusal, subject_of


@pytest.mark.parametrize("rotation", ["arithmetic", "split", "ai.onnx"])
def test_two_in_each_rope_layer(tmp_path: Path, rotation: str) -> None:
    subject = subject_of(tmp_path, Deviation(rotation=rotation))  # type: ignore[arg-type]  # a literal
    assert ROTARY_EMBEDDING.run(subject) == 4
    assert count(subject, "RotaryEmbedding") == 4
    assert count(subject, "Cos") == count(subject, "Neg") == 0
    nodes = [node for node in subject.graph.cleanup().nodes if node.op == "RotaryEmbedding"]
    assert all([t.name for t in node.inputs[1:]] == ["rotary.cos", "rotary.sin", "position_ids"] for node in nodes)


@pytest.mark.parametrize("rotation", ["arithmetic", "split", "ai.onnx"])
def test_an_attention_factor_is_not_rounded(tmp_path: Path, rotation: str) -> None:
    subject = subject_of(tmp_path, Deviation(rotation=rotation), rope_parameters=YARN)  # type: ignore[arg-type]  # a literal
    before = count(subject, "Cast")
    cosines = 2 if rotation != "ai.onnx" else 0
    assert ROTARY_EMBEDDING.run(subject) == 4
    assert count(subject, "RotaryEmbedding") == 4
    # Two for each rotation; the one that rounds cosines, the one that rounds sines and the positions' own are gone.
    assert count(subject, "Cast") == before + 8 - (cosines + 1 if cosines else 0)
    for node in (node for node in subject.graph.cleanup().nodes if node.op == "RotaryEmbedding"):
        assert [t.name for t in node.inputs[1:]] == ["rotary.cos.fp32", "rotary.sin.fp32", "position_ids"]
        assert (node.inputs[0].inputs[0].op, node.outputs[0].outputs[0].op) == ("Cast", "Cast")
        assert node.outputs[0].outputs[0].attrs["to"] == onnx.TensorProto.BFLOAT16


def test_a_factor_of_1_is_rotated_as_ever(tmp_path: Path) -> None:
    subject = subject_of(tmp_path, rope_parameters={**YARN, "attention_factor": 1.0})
    ROTARY_EMBEDDING.run(subject)
    (name,) = {node.inputs[1].name for node in subject.graph.cleanup().nodes if node.op == "RotaryEmbedding"}
    assert name == "rotary.cos"


def test_the_names_stand_behind_the_last_cast_and_the_twin_has_none_of_them(tmp_path: Path) -> None:
    folder = write_raw_folder(tmp_path / "yarn", rope_parameters=YARN)
    plain = write_raw_folder(tmp_path / "plain")
    for written in (folder, plain):
        fuse(written.root, 128)
    for form in (Form.MODEL, Form.MODEL_LINEAR, Form.MODEL_ALL):
        nodes = onnx.load(str(folder.graph(form)), load_external_data=False).graph.node
        makers = {node.output[0]: node for node in nodes}
        for name in ("q_rotary", "k_rotary"):
            chain, tensor = [], f"model.layers.2.self_attn.{name}"
            for _ in range(4):
                chain.append(makers[tensor].op_type)
                tensor = makers[tensor].input[0]
            assert chain == ["Cast", "RotaryEmbedding", "Cast", "Transpose"]
        twins = [onnx.load(str(one.graph(form, twin=True)), load_external_data=False) for one in (folder, plain)]
        described = [{(n.op_type, n.name, *n.input, *n.output) for n in twin.graph.node} for twin in twins]
        assert described[0] == described[1]


def test_a_fused_twin_with_an_attention_factor_computes_what_its_raw_twin_does(tmp_path: Path) -> None:
    folder = write_raw_folder(tmp_path / "yarn", rope_parameters=YARN)
    fuse(folder.root, 128)
    raw = onnx.load(str(folder.graph(Form.EXPORT)), load_external_data=False)
    path = folder.graph(Form.EXPORT, twin=True)
    path.write_bytes(fp32_twin(raw, folder.config()).SerializeToString())
    tokens = Tokens.draw(20, pads=(0, 4, 9))
    found, wanted = (
        Steps(name).logits(tokens, [14, 4, 1, 1]) for name in (folder.graph(Form.MODEL_ALL, twin=True), path)
    )
    assert distance(found, wanted) < 1e-5


def test_angles_of_something_else_are_a_miss(tmp_path: Path) -> None:
    subject = subject_of(tmp_path)
    unsqueeze = next(node for node in subject.graph.nodes if node.name == "rotary/Unsqueeze")
    unsqueeze.inputs[0] = next(t for t in subject.graph.inputs if t.name == "input_ids")
    assert "the angles rotary/Concat should be made of position_ids" in refusal(ROTARY_EMBEDDING, subject)


def test_halves_joined_the_wrong_way_are_a_miss(tmp_path: Path) -> None:
    subject = subject_of(tmp_path)
    joined = next(node for node in subject.graph.nodes if node.name == "model.layers.0.self_attn/q_rotated/Slice")
    joined.inputs[1] = gs.Constant("start", np.array([8]))
    text = refusal(ROTARY_EMBEDDING, subject)
    assert "3 matches; the nearest miss is layer 0's q" in text
    assert "should take a half of 16, not 8 to 8" in text


def test_sine_in_place_of_cosine_is_a_miss(tmp_path: Path) -> None:
    subject = subject_of(tmp_path)
    for node in subject.graph.nodes:
        node.op = {"Cos": "Sin", "Sin": "Cos"}.get(node.op, node.op)
    assert "should be made of" in refusal(ROTARY_EMBEDDING, subject)
