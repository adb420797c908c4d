"""A plan of other graphs is found out by its manifest, and a broken folder by what it lacks."""

from pathlib import Path

import pytest

from artifacts.layout import ModelFolder
from artifacts.manifest import FileRecord, Manifest
from validate.plans import look


@pytest.fixture
def folder(tmp_path: Path) -> ModelFolder:
    """A model with one graph and one plan built from it."""
    folder = ModelFolder(tmp_path / "tiny")
    folder.onnx.mkdir(parents=True)
    (folder.onnx / "model.onnx").write_bytes(b"graph")
    place = folder.target("build", "rtx-sm89")
    place.mkdir(parents=True)
    (place / "model.plan").write_bytes(b"plan")
    digests = folder.digests()
    inputs = {"onnx/model.onnx": FileRecord.of(folder.onnx / "model.onnx", digests)}
    outputs = {"build/rtx-sm89/model.plan": FileRecord.of(place / "model.plan", digests)}
    Manifest("build", {}, {}, inputs, outputs, {}).write(place / "manifest.json")
    return folder


def problems(folder: ModelFolder) -> str:
    (state,) = look(folder, folder.digests())
    assert state.target == "rtx-sm89"
    return "\n".join(state.problems)


def test_a_plan_of_these_graphs_is_in_order(folder: ModelFolder) -> None:
    assert problems(folder) == ""


def test_no_plan_is_no_problem(tmp_path: Path) -> None:
    assert look(ModelFolder(tmp_path), ModelFolder(tmp_path).digests()) == ()


def test_an_old_plan_names_the_graph_and_the_command(folder: ModelFolder) -> None:
    (folder.onnx / "model.onnx").write_bytes(b"GRAPH")
    assert "rtx-sm89 was built from another onnx/model.onnx" in problems(folder)
    assert "make build MODEL='<the checkpoint>' NAME=tiny" in problems(folder)


def test_another_plan_under_the_same_name_is_seen(folder: ModelFolder) -> None:
    (folder.target("build", "rtx-sm89") / "model.plan").write_bytes(b"PLAN")
    assert "is not the file that was made" in problems(folder)


def test_a_plan_without_a_manifest_is_a_problem(folder: ModelFolder) -> None:
    (folder.target("build", "rtx-sm89") / "manifest.json").unlink()
    assert "manifest.json is missing" in problems(folder)


def test_a_manifest_that_names_no_inputs_proves_nothing(folder: ModelFolder) -> None:
    Manifest("build", {}, {}, {}, {}, {}).write(folder.target("build", "rtx-sm89") / "manifest.json")
    assert "does not say what it was built from" in problems(folder)
