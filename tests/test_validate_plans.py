"""A plan of other graphs is found out by its manifest, and a broken folder by what it lacks."""

import shlex
from pathlib import Path
from typing import Any

import pytest

from artifacts.layout import ModelFolder
from artifacts.manifest import FileRecord, Manifest
from build.__main__ import _options, _parser
from build.planning import Planning
from build.record import options_record
from build.sources import read_sources
from build.target import choose_target
from tests.fused_graph import write_model_folder
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


@pytest.mark.parametrize(
    "asked",
    [
        "--backend tensorrt-rtx --compute-capability 8.9 --max-context 256 --prefill-chunk 64 --max-batch-size 2",
        "--backend tensorrt-rtx --compute-capability 8.9 12.0 --memPoolSize workspace:1M --profilingVerbosity none",
        "--backend tensorrt-rtx --graph model_linear --prefill-chunk 32 --builderOptimizationLevel 2",
    ],
)
def test_the_command_builds_that_very_plan_again(tmp_path: Path, asked: str) -> None:
    """The flags in the message, read by build's own parser, decide the same options as those that it was built with."""
    folder = write_model_folder(tmp_path / "m")
    before = decided(folder, shlex.split(asked))
    place = folder.target("build", "a-target")
    place.mkdir(parents=True)
    Manifest("build", before, {}, {}, {}, {}).write(place / "manifest.json")
    (state,) = look(folder, folder.digests())
    words = shlex.split(state.problems[0].rpartition("build it again: ")[2].partition(", or remove ")[0])
    arguments = next(word for word in words if word.startswith("BUILD_ARGS=")).removeprefix("BUILD_ARGS=")
    assert decided(folder, shlex.split(arguments)) == before
    assert state.problems[0].endswith(f", or remove {place}")


def decided(folder: ModelFolder, arguments: list[str]) -> dict[str, Any]:
    """Give the options as a plan's manifest would hold them, without building it."""
    options = _options(_parser().parse_args([str(folder.root), *arguments]))
    target = choose_target(options.backend, options.compute_capabilities, options.form, [])
    sources = read_sources(folder, options.form)
    return options_record(options, target, Planning(options, sources.config, sources.graph))


def test_another_plan_under_the_same_name_is_seen(folder: ModelFolder) -> None:
    (folder.target("build", "rtx-sm89") / "model.plan").write_bytes(b"PLAN")
    assert "is not the file that was made" in problems(folder)


def test_a_plan_without_a_manifest_is_a_problem(folder: ModelFolder) -> None:
    (folder.target("build", "rtx-sm89") / "manifest.json").unlink()
    assert "manifest.json is missing" in problems(folder)


def test_a_manifest_that_names_no_inputs_proves_nothing(folder: ModelFolder) -> None:
    Manifest("build", {}, {}, {}, {}, {}).write(folder.target("build", "rtx-sm89") / "manifest.json")
    assert "does not say what it was built from" in problems(folder)
