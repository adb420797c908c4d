"""What a CPU runs computes what the file says, with far fewer nodes; a graph of another make is refused."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import numpy as np
import onnx
import pytest

from artifacts.contract import (
    ATTENTION_MASK,
    INPUT_IDS,
    LOGITS,
    POSITION_IDS,
    WRITE_INDICES,
    Form,
    past_name,
    present_name,
)
from artifacts.errors import StageError
from artifacts.layout import ModelFolder
from artifacts.names import K_PROJ, Q_PROJ, V_PROJ, layer
from runtime import onnxruntime_binding
from runtime.host_graph import host_graph
from runtime.onnxruntime_binding import BindableOnnxRuntimeSession
from runtime.onnxruntime_session import OnnxRuntimeSession
from runtime.session import Array
from tests.small_model import CAPACITY, write_small_model

# Measured 9e-6 of the tensor's largest magnitude: only the order of sums differs.
TOLERANCE = 3e-5
FORMS = (Form.MODEL, Form.MODEL_LINEAR)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> ModelFolder:
    return write_small_model(tmp_path_factory.mktemp("out") / "small")


def feeds_of(session: OnnxRuntimeSession, fills: list[int], new: int, shift: int = 0) -> dict[str, Array]:
    """Give new tokens for rows that hold some, whose keys and values are random; empty slots where there are any."""
    random, rows, most = np.random.default_rng(0), len(fills), max(fills)
    linear = WRITE_INDICES in session.inputs
    slots = CAPACITY if linear else most
    ends = np.array(fills)[:, None] + new
    feeds: dict[str, Array] = {
        INPUT_IDS: random.integers(0, 499, (rows, new)),
        POSITION_IDS: np.array(fills)[:, None] + np.arange(new) + shift,
        ATTENTION_MASK: (np.arange(slots if linear else most + new) < ends).astype(np.int64),
    }
    if linear:
        feeds[WRITE_INDICES] = np.array(fills)
    for name, spec in session.inputs.items():
        if name not in feeds:
            shape = (rows, int(spec.axes[1]), slots, int(spec.axes[3]))
            feeds[name] = random.standard_normal(shape).astype(np.float32)
    return feeds


def with_slots(feeds: dict[str, Array], fills: list[int]) -> dict[str, Array]:
    """Give the same feeds for a cache of slots; the empty ones hold what could not be overlooked."""
    found: dict[str, Array] = {WRITE_INDICES: np.array(fills)}
    for name, array in feeds.items():
        axis = {2: 1, 4: 2}[array.ndim] if name == ATTENTION_MASK or array.ndim == 4 else None
        if axis is None:
            found[name] = array
        else:
            empty = [(0, CAPACITY - array.shape[axis] if number == axis else 0) for number in range(array.ndim)]
            found[name] = np.pad(array, empty, constant_values=0 if name == ATTENTION_MASK else 50)
    return found


def difference(graph: Path, fills: list[int], new: int, shift: int = 0) -> dict[str, float]:
    """Give how far the outputs of what a CPU runs are from the file's own, by each tensor's largest magnitude."""
    with OnnxRuntimeSession(graph) as session:
        feeds = feeds_of(session, fills, new, shift)
        on_a_cpu = {name: array.copy() for name, array in with_slots(feeds, fills).items()}
        whole = session.run(feeds)
    with BindableOnnxRuntimeSession(graph) as session:
        fused = session.run(on_a_cpu)
    assert whole.keys() == fused.keys()
    found = {}
    for name, right in whole.items():
        same = fused[name][:, :, : right.shape[2]]
        found[name] = float(np.abs(right - same).max() / np.abs(right).max())
    return found


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize(("fills", "new"), [([0], 1), ([0], 40), ([50], 1), ([50], 40), ([50, 50, 50], 1)])
def test_every_output_is_the_files(folder: ModelFolder, form: Form, fills: list[int], new: int) -> None:
    found = difference(folder.graph(form, twin=True), fills, new)
    assert max(found.values()) < TOLERANCE, found


def test_rows_of_a_linear_cache_may_hold_any_number_of_tokens(folder: ModelFolder) -> None:
    found = difference(folder.graph(Form.MODEL_LINEAR, twin=True), [0, 120, 7], 1)
    assert max(found.values()) < TOLERANCE, found


@pytest.mark.parametrize("form", FORMS)
def test_positions_are_those_that_are_fed_and_not_the_slots(folder: ModelFolder, form: Form) -> None:
    found = difference(folder.graph(form, twin=True), [50], 4, shift=300)
    assert max(found.values()) < TOLERANCE, found


@pytest.mark.parametrize("form", FORMS)
def test_few_nodes_are_left(folder: ModelFolder, form: Form) -> None:
    graph = onnx.load_model_from_string(host_graph(folder.graph(form, twin=True))).graph
    kinds = Counter(node.op_type for node in graph.node)
    assert (kinds["GroupQueryAttention"], kinds["SkipSimplifiedLayerNormalization"]) == (4, 7)
    assert (kinds["MatMul"], kinds["RMSNormalization"]) == (4 * 5 + 1, 2)
    assert not kinds.keys() & {"Attention", "RotaryEmbedding", "TensorScatter", "Reshape", "Or", "Range"}
    rotated = [node.attribute for node in graph.node if node.op_type == "GroupQueryAttention"]
    assert [next(a.i for a in found if a.name == "do_rotary") for found in rotated] == [1, 0, 1, 0]


@pytest.mark.parametrize(
    "order", [(Q_PROJ, V_PROJ, K_PROJ), (V_PROJ, Q_PROJ, K_PROJ)], ids=["v before k", "q in the middle"]
)
def test_weights_in_another_order_would_show(
    folder: ModelFolder, monkeypatch: pytest.MonkeyPatch, order: tuple[str, ...]
) -> None:
    def planted(path: Path) -> bytes:
        model = onnx.load_model_from_string(host_graph(path))
        joined = next(node for node in model.graph.node if f"{layer(2, Q_PROJ)}.weight" in node.input)
        joined.input[:] = [f"{layer(2, part)}.weight" for part in order]
        changed: bytes = model.SerializeToString()
        return changed

    monkeypatch.setattr(onnxruntime_binding, "host_graph", planted)
    found = difference(folder.graph(Form.MODEL_LINEAR, twin=True), [50], 1)
    assert found[LOGITS] > 1000 * TOLERANCE


def changed_graph(folder: ModelFolder, tmp_path: Path, output: str, kind: str) -> Path:
    model = onnx.load(folder.graph(Form.MODEL_LINEAR, twin=True), load_external_data=False)
    next(node for node in model.graph.node if node.output[0] == output).op_type = kind
    path = tmp_path / "model_linear_fp32.onnx"
    path.write_bytes(model.SerializeToString())
    return path


def test_attention_of_another_make_is_refused(folder: ModelFolder, tmp_path: Path) -> None:
    path = changed_graph(folder, tmp_path, "model.layers.1.self_attn.attention", "Softmax")
    with pytest.raises(StageError, match=r"(?s)way of its own.*Reshape of Transpose of Attention.*Softmax"):
        host_graph(path)


def test_heads_of_a_width_that_the_operator_does_not_take_are_refused(folder: ModelFolder, tmp_path: Path) -> None:
    model = onnx.load(folder.graph(Form.MODEL, twin=True), load_external_data=False)
    next(value for value in model.graph.input if value.name == past_name(0, "key")).type.tensor_type.shape.dim[
        3
    ].dim_value = 24
    path = tmp_path / "model_fp32.onnx"
    path.write_bytes(model.SerializeToString())
    with pytest.raises(StageError, match=r"(?s)heads of this width.*multiple of 16.*24"):
        host_graph(path)


def test_a_stream_that_is_not_summed_is_refused(folder: ModelFolder, tmp_path: Path) -> None:
    path = changed_graph(folder, tmp_path, layer(1, "residual"), "Sub")
    with pytest.raises(StageError, match=r"(?s)norms are in places of their own.*7 of 4 layers.*6"):
        host_graph(path)


def test_both_files_become_a_cache_of_any_number_of_slots(folder: ModelFolder) -> None:
    shapes = []
    for form in FORMS:
        graph = onnx.load_model_from_string(host_graph(folder.graph(form, twin=True))).graph
        values = sorted([*graph.input, *graph.output], key=lambda value: value.name)
        shapes.append(
            {
                value.name: [dim.dim_param or dim.dim_value for dim in value.type.tensor_type.shape.dim]
                for value in values
            }
        )
    assert shapes[0] == shapes[1]
    assert shapes[0][ATTENTION_MASK] == ["batch", "capacity"]
    assert shapes[0][past_name(3, "value")][2] == shapes[0][present_name(3, "value")][2] == "capacity"
    assert shapes[0][WRITE_INDICES] == ["batch"]
