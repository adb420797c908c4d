"""A plan is made of the files that the manifests name, and of no others."""

import json
from pathlib import Path

import pytest

from artifacts.contract import Form
from artifacts.errors import StageError
from artifacts.layout import DATA_FILE, ModelFolder
from build.sources import read_sources
from tests.fused_graph import write_model_folder


@pytest.fixture
def folder(tmp_path: Path) -> ModelFolder:
    return write_model_folder(tmp_path / "m")


def refused(folder: ModelFolder) -> str:
    with pytest.raises(StageError) as error:
        read_sources(folder, Form.MODEL)
    return str(error.value)


def edit_manifest(path: Path, *keys: str, value: str) -> None:
    raw = json.loads(path.read_text())
    inner = raw
    for key in keys[:-1]:
        inner = inner[key]
    inner[keys[-1]] = value
    path.write_text(json.dumps(raw))


def flip(path: Path) -> None:
    """Replace a file by another of the same size."""
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)


def test_sources_are_graph_data_and_config(folder: ModelFolder) -> None:
    sources = read_sources(folder, Form.MODEL)
    assert set(sources.files) == {"onnx/model.onnx", f"onnx/{DATA_FILE}", "onnx/config.json"}
    assert sources.checkpoint["origin"] == "random:by-hand"


@pytest.mark.parametrize(
    ("name", "command"),
    [("model.onnx", "make surgery"), (DATA_FILE, "make export"), ("config.json", "make export")],
)
def test_another_file_of_the_same_size_is_refused(folder: ModelFolder, name: str, command: str) -> None:
    flip(folder.onnx / name)
    message = refused(folder)
    assert f"{name} is not the file that was made" in message
    assert command in message


@pytest.mark.parametrize("name", ["model.onnx", DATA_FILE, "config.json"])
def test_a_missing_file_is_refused(folder: ModelFolder, name: str) -> None:
    (folder.onnx / name).unlink()
    assert f"{name} is missing" in refused(folder)


@pytest.mark.parametrize(("stage", "command"), [("export", "make export"), ("surgery", "make surgery")])
def test_a_missing_manifest_names_the_command(folder: ModelFolder, stage: str, command: str) -> None:
    (folder.onnx / f"{stage}.manifest.json").unlink()
    message = refused(folder)
    assert f"{stage}.manifest.json is missing" in message
    assert command in message


def test_graphs_older_than_the_export_are_refused(folder: ModelFolder) -> None:
    path = folder.onnx / "export.manifest.json"
    edit_manifest(path, "outputs", "onnx/export.onnx", "sha256", value="0" * 64)
    message = refused(folder)
    assert "older than the export: onnx/export.onnx" in message
    assert "make surgery" in message


def test_graphs_of_another_checkpoint_are_refused(folder: ModelFolder) -> None:
    edit_manifest(folder.onnx / "export.manifest.json", "checkpoint", "origin", value="random:other")
    assert "of another checkpoint" in refused(folder)
