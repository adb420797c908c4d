"""Every stage says so where its folder lies on a disk that is mounted read-only, and changes nothing there."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from artifacts.errors import StageError
from artifacts.layout import ModelFolder
from build.options import BuildOptions
from build.plan import build_plan
from export.options import ExportOptions
from export.pipeline import export_onnx
from surgery.operation import fuse
from validate import Options, validate

STAGES: dict[str, Callable[[Path], object]] = {
    "export": lambda root: export_onnx(ExportOptions("random:tiny", root.parent, name="another")),
    "surgery": lambda root: fuse(root, 64),
    "build": lambda root: build_plan(root, BuildOptions(compute_capabilities=("8.9",)), gpus=[]),
    "validate": lambda root: validate(root, Options(tokens=5)),
}


@pytest.fixture
def read_only(fused: ModelFolder, tmp_path: Path) -> Iterator[Path]:
    """A model's folder on a read-only mount; skipped where this user may not mount one."""
    source, place = tmp_path / "source", tmp_path / "place"
    root = Path(shutil.copytree(fused.root, source / fused.name))
    place.mkdir()
    if subprocess.run(["mount", "--bind", str(source), str(place)], capture_output=True).returncode:
        pytest.skip("mounting a disk needs root")
    try:
        subprocess.run(["mount", "-o", "remount,ro,bind", str(place)], check=True, capture_output=True)
        yield place / root.name
    finally:
        subprocess.run(["umount", str(place)], check=True)


def contents(folder: Path) -> dict[str, tuple[int, int]]:
    return {str(path): (path.stat().st_size, path.stat().st_mtime_ns) for path in folder.rglob("*")}


@pytest.mark.parametrize("stage", STAGES)
def test_a_stage_says_that_its_folder_cannot_be_written(read_only: Path, stage: str) -> None:
    before = contents(read_only.parent)
    with pytest.raises(StageError, match=r"(?s)cannot be written.*Read-only file system.*change its rights"):
        STAGES[stage](read_only)
    assert contents(read_only.parent) == before


def test_what_is_up_to_date_needs_no_writing(read_only: Path) -> None:
    assert export_onnx(ExportOptions("random:tiny-d128", read_only.parent, name=read_only.name)).was_current
    assert fuse(read_only, 512).up_to_date
