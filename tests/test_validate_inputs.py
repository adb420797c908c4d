"""What was replaced, made anew, or is missing is refused with the command that mends it."""

import json
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from artifacts.checkpoint import Checkpoint
from artifacts.errors import StageError
from artifacts.layout import ModelFolder
from artifacts.manifest import FileRecord
from validate.inputs import open_inputs


@pytest.fixture
def folder(fused: ModelFolder, tmp_path: Path) -> ModelFolder:
    """A model's folder that a test may change."""
    shutil.copytree(fused.root, tmp_path / fused.name)
    return ModelFolder(tmp_path / fused.name)


def refusal(folder: ModelFolder) -> str:
    with pytest.raises(StageError) as caught:
        open_inputs(folder.root)
    return str(caught.value)


def test_everything_in_order_is_recorded(folder: ModelFolder) -> None:
    inputs = open_inputs(folder.root)
    assert {"onnx/model.onnx_data", "onnx/config.json", "onnx/model_linear_fp32.onnx"} <= set(inputs.records)
    assert inputs.checkpoint.kind == "random"


@pytest.mark.parametrize("name", ["export_fp32.onnx", "model_fp32.onnx", "model.onnx_data", "rotary.onnx_data"])
def test_a_file_replaced_by_another_of_the_same_size_is_named(folder: ModelFolder, name: str) -> None:
    path = folder.onnx / name
    content = bytearray(path.read_bytes())
    content[-1] ^= 1
    path.write_bytes(bytes(content))
    message = refusal(folder)
    assert f"{name} is not the file that was made" in message
    assert "make export" in message or "make surgery" in message


def test_a_stage_that_has_not_run_is_named(folder: ModelFolder) -> None:
    (folder.onnx / "surgery.manifest.json").unlink()
    assert "make surgery" in refusal(folder)
    shutil.rmtree(folder.onnx)
    assert "make export" in refusal(folder)


def test_a_new_export_after_surgery_is_seen(folder: ModelFolder) -> None:
    manifest = folder.export_manifest()
    graph = folder.onnx / "export.onnx"
    graph.write_bytes(graph.read_bytes() + b"\x00" * 8)
    record = FileRecord.of(graph, folder.digests())
    newer = replace(manifest, outputs={**manifest.outputs, "onnx/export.onnx": record})
    newer.write(folder.onnx / "export.manifest.json")
    message = refusal(folder)
    assert "has changed since" in message
    assert "make surgery" in message


def test_another_checkpoint_in_the_place_of_the_exported_one_is_refused(
    folder: ModelFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    def changed(self: Checkpoint, digests: object) -> dict[str, Any]:
        recorded = json.loads(json.dumps(folder.export_manifest().checkpoint))
        recorded["files"]["config.json"] = "0" * 64
        return dict(recorded)

    monkeypatch.setattr(Checkpoint, "identity", changed)
    message = refusal(folder)
    assert "the checkpoint is not the one that was exported" in message
    assert "another config.json" in message


def test_plans_are_among_what_the_verdict_depends_on(folder: ModelFolder) -> None:
    place = folder.target("build", "rtx-sm89")
    place.mkdir(parents=True)
    (place / "manifest.json").write_text("{}")
    (place / "model.plan").write_bytes(b"plan")
    (place / ".writing.1.model.plan").write_text("of a killed run")
    records = open_inputs(folder.root).records
    assert {name for name in records if name.startswith("build")} == {
        "build/rtx-sm89/manifest.json",
        "build/rtx-sm89/model.plan",
    }
