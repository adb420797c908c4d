"""External data that a graph has no right to, or that is not there, is refused before anything is read: all at once."""

import os
from pathlib import Path

import onnx
import pytest
from onnx import TensorProto

from artifacts.external import external_problems


def _model(*places: tuple[str, object, object]) -> onnx.ModelProto:
    """Give a graph with one BF16 tensor of 4 × 4 (32 bytes) for each (location, offset, length)."""
    model = onnx.ModelProto()
    for index, place in enumerate(places):
        tensor = TensorProto(name=f"w{index}", data_type=TensorProto.BFLOAT16, dims=[4, 4])
        tensor.data_location = TensorProto.EXTERNAL
        for key, value in zip(("location", "offset", "length"), place, strict=True):
            tensor.external_data.add(key=key, value=str(value))
        model.graph.initializer.append(tensor)
    return model


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    inside = tmp_path / "onnx"
    inside.mkdir()
    (inside / "data").write_bytes(bytes(64))
    (tmp_path / "outside").write_bytes(bytes(64))
    (inside / "link").symlink_to("../outside")
    (inside / "first").write_bytes(bytes(64))
    os.link(inside / "first", inside / "second")
    return inside


def test_what_lies_inside_is_right(folder: Path) -> None:
    assert external_problems(_model(("data", 0, 32), ("data", 32, 32)), folder, "") == []


@pytest.mark.parametrize(
    ("place", "what"),
    [
        (("../outside", 0, 32), "leaves the graph's folder"),
        (("/etc/passwd", 0, 32), "leaves the graph's folder"),
        (("..", 0, 32), "leaves the graph's folder"),
        (("", 0, 32), "leaves the graph's folder"),
        (("link", 0, 32), "is a symbolic link"),
        (("second", 0, 32), "is a hard link"),
        (("nowhere", 0, 32), "is missing"),
        (("data", 40, 32), "data ends before its tensors do"),
        (("data", 2**62, 32), "data ends before its tensors do"),
        (("data", "²", 32), "has no place in data"),
        (("data", -4, 32), "has no place in data"),
        (("data", 0, 64), "has another length than its shape"),
    ],
)
def test_each_fault_is_named(folder: Path, place: tuple[str, object, object], what: str) -> None:
    (problem,) = external_problems(_model(place), folder, "make export")
    assert what in str(problem)
    assert problem.remedy == "make export"


def test_all_faults_of_a_graph_are_told_at_once(folder: Path) -> None:
    problems = external_problems(_model(("../outside", 0, 32), ("link", 0, 32), ("data", 40, 32)), folder, "")
    assert len(problems) == 3


def test_a_file_that_was_cut_is_told_once(folder: Path) -> None:
    (problem,) = external_problems(_model(("data", 40, 32), ("data", 80, 32), ("data", 120, 32)), folder, "")
    assert (problem.expected, problem.found) == ("72 bytes or more, where w0 ends", "64 bytes")
