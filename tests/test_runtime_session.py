"""A session takes the contract's feeds and gives its outputs; what does not fit is refused whole, before it runs."""

from collections.abc import Mapping
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from artifacts.contract import OPSET, Precision
from artifacts.errors import StageError
from runtime import open_session
from runtime.session import Array

CACHE: tuple[int | str, ...] = (1, 2, "past_sequence", 4)
NEW: tuple[int, ...] = (1, 2, 1, 4)
Shape = tuple[int | str, ...]


def save(path: Path, node: onnx.NodeProto, inputs: Mapping[str, tuple[int, Shape]]) -> Path:
    """Write a graph of one node whose output is `present.0.key`."""
    values = [helper.make_tensor_value_info(name, *description) for name, description in inputs.items()]
    output = helper.make_tensor_value_info("present.0.key", TensorProto.FLOAT, (1, 2, "total_sequence", 4))
    graph = helper.make_graph([node], "one", values, [output])
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", OPSET)], ir_version=11), path)
    return path


@pytest.fixture
def concat(tmp_path: Path) -> Path:
    node = helper.make_node("Concat", ["past_key_values.0.key", "new"], ["present.0.key"], axis=2)
    inputs = {"past_key_values.0.key": (TensorProto.FLOAT, CACHE), "new": (TensorProto.FLOAT, NEW)}
    return save(tmp_path / "concat.onnx", node, inputs)


@pytest.fixture
def scatter(tmp_path: Path) -> Path:
    names = ["past_key_values.0.key", "new", "write_indices"]
    node = helper.make_node("TensorScatter", names, ["present.0.key"], axis=2)
    inputs = {
        names[0]: (TensorProto.FLOAT, (1, 2, 8, 4)),
        names[1]: (TensorProto.FLOAT, NEW),
        names[2]: (TensorProto.INT64, (1,)),
    }
    return save(tmp_path / "scatter.onnx", node, inputs)


def zeros(*shape: int) -> Array:
    return np.zeros(shape, np.float32)


def test_an_empty_past_runs(concat: Path) -> None:
    with open_session(concat) as session:
        assert session.inputs["past_key_values.0.key"].axes == CACHE
        assert session.outputs["present.0.key"].precision is Precision.FP32
        outputs = session.run({"past_key_values.0.key": zeros(1, 2, 0, 4), "new": zeros(*NEW) + 3})
    assert outputs["present.0.key"].shape == NEW
    assert (outputs["present.0.key"] == 3).all()


def test_a_linear_cache_is_written_where_it_lies(scatter: Path) -> None:
    cache = zeros(1, 2, 8, 4)
    with open_session(scatter) as session:
        feeds = {"past_key_values.0.key": cache, "new": zeros(*NEW) + 3, "write_indices": np.array([5])}
        outputs = session.run(feeds)
    assert outputs["present.0.key"] is cache
    assert (cache[:, :, 5] == 3).all()
    assert np.count_nonzero(cache) == 8


def test_a_write_past_the_end_is_refused(scatter: Path) -> None:
    feeds = {"past_key_values.0.key": zeros(1, 2, 8, 4), "new": zeros(*NEW), "write_indices": np.array([8])}
    with open_session(scatter) as session, pytest.raises(StageError, match="ONNX Runtime stopped"):
        session.run(feeds)


def test_every_wrong_feed_is_named_at_once(concat: Path) -> None:
    feeds = {"past_key_values.0.key": np.zeros((1, 2, 0, 4), np.float64), "newer": zeros(*NEW)}
    with open_session(concat) as session, pytest.raises(StageError) as refusal:
        session.run(feeds)
    assert [problem.what for problem in refusal.value.problems] == [
        "new is not fed",
        "newer is no input",
        "past_key_values.0.key cannot be fed",
    ]


def test_a_file_that_is_no_graph_is_refused(tmp_path: Path) -> None:
    (tmp_path / "broken.onnx").write_bytes(b"no graph")
    with pytest.raises(StageError, match="cannot open"), open_session(tmp_path / "broken.onnx"):
        pass
    with pytest.raises(StageError, match="nothing that can be run"):
        open_session(tmp_path / "model.bin")


@pytest.mark.gpu
def test_cuda_runs_where_there_is_one(concat: Path) -> None:
    with open_session(concat, provider="cuda") as session:
        outputs = session.run({"past_key_values.0.key": zeros(1, 2, 0, 4), "new": zeros(*NEW) + 3})
    assert (outputs["present.0.key"] == 3).all()
