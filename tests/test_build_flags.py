"""docs/build.md's table of trtexec's flags is the code's, and what it says of TensorRT-RTX is tried again here."""

import re
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from artifacts.doctor import find_gpus
from artifacts.errors import StageError
from artifacts.layout import ModelFolder
from build import BuildOptions, Plan, build_plan
from build.__main__ import _parser
from build.flags import FLAGS, markdown
from tests.fused_graph import write_model_folder

ROOT = Path(__file__).parent.parent
ADA = BuildOptions(backend="tensorrt-rtx", compute_capabilities=("8.9",), max_context=256, prefill_chunk=64)
WITHOUT_GPU = pytest.mark.skipif(bool(find_gpus()), reason="this machine has a GPU; the table is of machines without")

Builder = Callable[..., Plan]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> ModelFolder:
    return write_model_folder(tmp_path_factory.mktemp("flags") / "m")


@pytest.fixture
def try_flag(folder: ModelFolder, monkeypatch: pytest.MonkeyPatch) -> Builder:
    """Build with a flag that our own check would refuse."""
    monkeypatch.setattr("build.plan.check_flags", lambda options, target: None)
    return lambda **changes: build_plan(folder, replace(ADA, **changes), gpus=[])


def test_the_table_in_the_docs_is_the_codes() -> None:
    assert markdown() in (ROOT / "docs" / "build.md").read_text()


def test_every_flag_of_trtexec_that_we_have_is_in_the_table() -> None:
    ours = {word for word in re.findall(r"--[a-zA-Z]+", _parser().format_help()) if word != word.lower()}
    ours |= {"--profile", "--refit", "--verbose"}
    assert {word for flag in FLAGS for word in flag.spelling.split()} == ours


@WITHOUT_GPU
@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"refit": True}, "CUDA_SUCCESS"),
        pytest.param({"strip_weights": True}, "CUDA_SUCCESS", marks=pytest.mark.slow),
        pytest.param({"version_compatible": True}, "libnvinfer_lean", marks=pytest.mark.slow),
        ({"memory_pools": {"workspace": 1 << 20}}, "more workspace"),
        pytest.param({"memory_pools": {"tacticSharedMem": 1 << 14}}, "more tacticSharedMem", marks=pytest.mark.slow),
    ],
)
def test_what_is_said_to_fail_fails(try_flag: Builder, changes: dict[str, Any], said: str) -> None:
    with pytest.raises(StageError, match=said):
        try_flag(**changes)


@pytest.mark.slow
def test_what_is_said_to_do_nothing_does_nothing(try_flag: Builder, tmp_path: Path) -> None:
    """Sizes are compared, since two builds of one graph differ in their bytes."""
    cache = tmp_path / "timing.cache"
    cache.write_text("somebody's thesis")
    one = try_flag(builder_optimization_level=0, profiling_verbosity="none", timing_cache_file=cache)
    size = one.path.stat().st_size
    assert cache.read_text() == "somebody's thesis"
    two = try_flag(builder_optimization_level=5, hardware_compatibility_level="ampere+", timing_cache_file=cache)
    assert two.path.stat().st_size == size
    assert "setHardwareCompatibilityLevel() is unsupported" in (two.directory / "build.log").read_text()


def test_turing_cannot_compute_in_bf16(folder: ModelFolder, monkeypatch: pytest.MonkeyPatch) -> None:
    """Why 7.5 is refused by name."""
    monkeypatch.setattr("build.target._check_rtx", lambda capabilities: None)
    with pytest.raises(StageError, match="HW-specific datatypes"):
        build_plan(folder, replace(ADA, compute_capabilities=("7.5",)), gpus=[])


@pytest.mark.slow
def test_verbose_shows_the_log(folder: ModelFolder) -> None:
    command = ["-m", "build", str(folder.root), "--backend", "tensorrt-rtx", "--compute-capability", "12.1"]
    python = sys.executable
    done = subprocess.run([python, *command, "--verbose"], cwd=ROOT, capture_output=True, text=True, check=True)
    assert "Total Weights Memory" in done.stderr
    assert "Total Weights Memory" not in done.stdout
