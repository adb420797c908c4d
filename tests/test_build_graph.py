"""Bad graphs and bad places in data files give one clear message, before TensorRT sees them."""

from collections.abc import Callable
from pathlib import Path

import onnx
import pytest

from artifacts.contract import Form
from artifacts.errors import StageError
from artifacts.layout import DATA_FILE, ModelFolder
from build.graph import SourceGraph, read_graph
from tests.fused_graph import write_model_folder


@pytest.fixture
def folder(tmp_path: Path) -> ModelFolder:
    return write_model_folder(tmp_path / "m")


def read(folder: ModelFolder, form: Form = Form.MODEL) -> SourceGraph:
    return read_graph(folder, form, folder.config())


def change(folder: ModelFolder, edit: Callable[[onnx.GraphProto], None]) -> None:
    path = folder.graph(Form.MODEL)
    model = onnx.load(str(path), load_external_data=False)
    edit(model.graph)
    path.write_bytes(model.SerializeToString())


def place(key: str, value: str) -> Callable[[onnx.GraphProto], None]:
    def edit(graph: onnx.GraphProto) -> None:
        tensor = next(tensor for tensor in graph.initializer if tensor.name == "model.embed_tokens.weight")
        for entry in tensor.external_data:
            if entry.key == key:
                entry.value = value

    return edit


def test_a_graph_tells_its_weights_and_files(folder: ModelFolder) -> None:
    graph = read(folder)
    data = (folder.onnx / DATA_FILE).stat().st_size
    assert graph.data_files == (DATA_FILE,)
    assert data <= graph.weights < data + 1024, "the data file, and a few constants beside it"
    assert (graph.capacity, read(folder, Form.MODEL_LINEAR).capacity) == (None, 128)


def test_initializers_that_no_node_uses_do_not_count(folder: ModelFolder) -> None:
    before = read(folder).weights
    change(folder, lambda graph: graph.initializer.add(name="idle", dims=[1000], data_type=onnx.TensorProto.FLOAT))
    assert read(folder).weights == before


@pytest.mark.parametrize(
    ("key", "value", "problem"),
    [
        ("location", "../model.onnx_data", "leaves the graph's folder"),
        ("location", "gone.onnx_data", "is missing"),
        ("offset", "99999999", "ends before its tensors do"),
        ("length", "3", "another length than its shape"),
    ],
)
def test_a_bad_place_is_refused(folder: ModelFolder, key: str, value: str, problem: str) -> None:
    change(folder, place(key, value))
    with pytest.raises(StageError, match=problem):
        read(folder)


def test_no_graph_is_refused(folder: ModelFolder) -> None:
    folder.graph(Form.MODEL).write_bytes(b"no protobuf at all")
    with pytest.raises(StageError, match="is not an ONNX graph"):
        read(folder)


def fix_batch(graph: onnx.GraphProto) -> None:
    graph.input[0].type.tensor_type.shape.dim[0].dim_value = 1


def rename_output(graph: onnx.GraphProto) -> None:
    graph.output[0].name = "logit"


def widen_cache(graph: onnx.GraphProto) -> None:
    graph.input[3].type.tensor_type.elem_type = onnx.TensorProto.FLOAT


@pytest.mark.parametrize(
    ("edit", "problems"), [(fix_batch, ["input_ids"]), (rename_output, ["logits", "logit"]), (widen_cache, ["FLOAT"])]
)
def test_a_signature_that_is_not_the_contract_is_refused(
    folder: ModelFolder, edit: Callable[[onnx.GraphProto], None], problems: list[str]
) -> None:
    change(folder, edit)
    with pytest.raises(StageError) as error:
        read(folder)
    assert len(error.value.problems) == len(problems)
    assert all(word in str(problem) for word, problem in zip(problems, error.value.problems, strict=True))
