"""A plan that does not fit is refused before it is opened, with everything that stands against it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from artifacts.backend import Backend
from artifacts.contract import Form
from artifacts.doctor import Gpu
from artifacts.errors import StageError
from artifacts.layout import ModelFolder
from artifacts.manifest import FileRecord, Manifest
from runtime import open_session
from runtime.__main__ import main
from runtime.plan_check import PlanFile
from tests.small_model import CAPACITY, write_plan, write_small_model

ADA = Gpu("RTX 4090", "580.1", "24564 MiB", "8.9")
HOPPER = Gpu("H200", "580.1", "143771 MiB", "9.0")
VERSION = "1.7.1.116"


@pytest.fixture
def folder(tmp_path: Path) -> ModelFolder:
    return write_small_model(tmp_path / "small")


def refused(plan: PlanFile, gpus: list[Gpu], version: str = VERSION) -> str:
    with pytest.raises(StageError) as error:
        plan.check(gpus, version)
    return str(error.value)


def test_a_plan_that_fits_is_taken(folder: ModelFolder) -> None:
    plan = write_plan(folder, Form.MODEL_LINEAR)
    plan.check([ADA], VERSION)
    assert (plan.form, plan.capacity, plan.context, plan.rows) == (Form.MODEL_LINEAR, CAPACITY, CAPACITY, 3)


def test_another_gpu_is_named(folder: ModelFolder) -> None:
    said = refused(write_plan(folder, Form.MODEL), [HOPPER])
    for part in ("compute capability 8.9, 12.0", "H200 (9.0)", "--compute-capability 9.0"):
        assert part in said


def test_no_gpu_is_said(folder: ModelFolder) -> None:
    assert "no NVIDIA GPU" in refused(write_plan(folder, Form.MODEL), [])


def test_another_tensorrt_is_named(folder: ModelFolder) -> None:
    said = refused(write_plan(folder, Form.MODEL), [ADA], "1.8.0.1")
    assert "1.7.1.116" in said
    assert "1.8.0.1" in said


def test_a_plan_of_another_graph_is_refused(folder: ModelFolder) -> None:
    plan = write_plan(folder, Form.MODEL)
    (folder.onnx / "model.onnx").write_bytes(b"another graph")
    now = {"onnx/model.onnx": FileRecord.of(folder.onnx / "model.onnx", folder.digests())}
    Manifest("surgery", {}, {}, {}, now, {}).write(folder.onnx / "surgery.manifest.json")
    assert "was made from another onnx/model.onnx" in refused(plan, [ADA])


def test_a_plan_that_was_exchanged_is_refused(folder: ModelFolder) -> None:
    plan = write_plan(folder, Form.MODEL)
    plan.path.write_bytes(b"A plan")
    assert "model.plan is not the file that was made" in refused(plan, [ADA])


def test_everything_is_said_at_once(folder: ModelFolder) -> None:
    plan = write_plan(folder, Form.MODEL)
    plan.path.unlink()
    with pytest.raises(StageError) as error:
        plan.check([HOPPER], "1.8.0.1")
    assert len(error.value.problems) == 3


def test_plans_that_there_are_are_listed(folder: ModelFolder) -> None:
    write_plan(folder, Form.MODEL)
    with pytest.raises(StageError, match=r"expected: +one of \['tensorrt_rtx-1\.7\.1-sm89'\]"):
        PlanFile(folder, "other")


def test_a_plan_is_opened_like_a_graph_and_checked_first(folder: ModelFolder, monkeypatch: pytest.MonkeyPatch) -> None:
    plan = write_plan(folder, Form.MODEL, tensorrt_version=Backend.RTX.version)
    with pytest.raises(StageError, match="no NVIDIA GPU"):
        open_session(plan.path)
    monkeypatch.setattr("runtime.session.find_gpus", lambda: [ADA])
    assert open_session(plan.path).outputs["logits"].axes == ("batch", 1, 512)


@pytest.mark.parametrize(("gpus", "reason"), [([], "no NVIDIA GPU"), ([ADA], "a plan has its own context")])
def test_the_command_refuses_before_anything_is_loaded(
    folder: ModelFolder, monkeypatch: pytest.MonkeyPatch, gpus: list[Any], reason: str
) -> None:
    plan = write_plan(folder, Form.MODEL)
    monkeypatch.setattr("runtime.model.find_gpus", lambda: gpus)
    arguments = ["generate", str(folder.root), "x", "--plan", plan.directory.name]
    with pytest.raises(StageError, match=reason):
        main([*arguments, "--context", "50"] if gpus else arguments)
