"""Weights of the BF16 graphs declare three axes over the same bytes: TensorRT's parser adds no layer for them."""

import math
from pathlib import Path

import onnx
import pytest

from artifacts.contract import Form
from artifacts.layout import ModelFolder
from surgery import fuse
from surgery.clean_up import CLEAN_UP
from surgery.pipeline import FORMS, FUSE, operate
from surgery.subject import Subject
from surgery.weight_axes import WEIGHT_AXES
from tests.raw_graph import write_raw_folder
from tests.subjects import refusal, subject_of

FUSED = (Form.MODEL, Form.MODEL_LINEAR, Form.MODEL_ALL)


@pytest.fixture
def fused(tmp_path: Path) -> Subject:
    """Give a subject that has become the concatenated form."""
    subject = subject_of(tmp_path)
    operate(subject, (*FUSE, *FORMS[Form.MODEL]))
    return subject


def weights(path: Path) -> dict[str, onnx.TensorProto]:
    model = onnx.load(str(path), load_external_data=False)
    return {tensor.name: tensor for tensor in model.graph.initializer if tensor.name.startswith("model.")}


def place(tensor: onnx.TensorProto) -> dict[str, str]:
    return {entry.key: entry.value for entry in tensor.external_data}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> ModelFolder:
    written = write_raw_folder(tmp_path_factory.mktemp("surgery") / "hand")
    fuse(written.root, 128)
    return written


@pytest.mark.parametrize("form", FUSED)
def test_a_graph_and_its_twin_call_the_same_bytes_by_other_shapes(folder: ModelFolder, form: Form) -> None:
    graph, twin = weights(folder.graph(form)), weights(folder.graph(form, twin=True))
    assert graph.keys() == twin.keys()
    for name, tensor in graph.items():
        assert place(tensor) == place(twin[name])
        assert math.prod(tensor.dims) == math.prod(twin[name].dims)
    widened = {name for name, tensor in graph.items() if list(tensor.dims) != list(twin[name].dims)}
    assert widened == graph.keys() - {"model.embed_tokens.weight"}
    assert all(len(graph[name].dims) == 3 for name in widened)
    assert list(graph["model.norm.weight"].dims) == [1, 1, 64]
    down = "model.layers.1.mlp.down_proj.weight"
    assert list(graph[down].dims) == [1, *twin[down].dims]


def test_one_for_each_weight_and_other_forms_keep_theirs(fused: Subject) -> None:
    other = fused.copy(None)
    assert WEIGHT_AXES.run(fused) == 9 * 3 + 1
    assert all(len(node.inputs[1].shape) == 1 for node in other.graph.nodes if node.op == "RMSNormalization")
    assert CLEAN_UP.run(fused) == 0


def test_a_weight_that_has_its_axes_already_is_a_miss(fused: Subject) -> None:
    WEIGHT_AXES.run(fused)
    assert "0 matches; the nearest miss is model.layers.0.input_layernorm/RMSNormalization" in (
        refusal(WEIGHT_AXES, fused)
    )


def test_a_weight_of_two_nodes_is_a_miss(fused: Subject) -> None:
    norms = [node for node in fused.graph.nodes if node.op == "RMSNormalization"]
    norms[0].inputs = [norms[0].inputs[0], norms[1].inputs[1]]
    assert "should go into one node, not into 2" in refusal(WEIGHT_AXES, fused)
