"""The stage writes its report whole, knows when it is up to date, and its exit code is the verdict."""

import errno
import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from artifacts.command import COULD_NOT, DONE, VERDICT_NO
from artifacts.config import ModelConfig
from artifacts.doctor import Gpu
from artifacts.errors import Problem, StageError
from artifacts.layout import ModelFolder
from tests.checkpoint_folder import small_config, write_checkpoint
from tests.layer_findings import RIGHT
from tests.undrawn import leave_out_pictures
from validate import Options, validate, validation
from validate.__main__ import main
from validate.findings import Check, Findings
from validate.greedy import Continuation
from validate.runners import RUNNERS

ROOT = Path(__file__).parent.parent


@pytest.fixture
def folder(fused: ModelFolder, tmp_path: Path) -> ModelFolder:
    """A model's folder that a test may change."""
    shutil.copytree(fused.root, tmp_path / fused.name)
    return ModelFolder(tmp_path / fused.name)


def right(*ignored: object) -> list[Findings]:
    """What runners find where everything is right; none is run."""
    check = Check("small positions: one call", 7, 100, 1e-6, 2e-6, 1e-4)
    return [
        Findings(runner.name, runner.role.value, [check], continuation=Continuation([3], [1.0])) for runner in RUNNERS
    ]


def wrong(*ignored: object) -> list[Findings]:
    """The same, with one graph that is off."""
    found = right()
    found[3] = replace(found[3], checks=[replace(found[3].checks[0], problems=("off",))])
    return found


@pytest.fixture
def runners_find(monkeypatch: pytest.MonkeyPatch) -> Callable[[Callable[..., list[Findings]]], None]:
    """Let the runners find what a test says; the page has no pictures, which tests/test_validate_page.py looks at."""
    leave_out_pictures(monkeypatch)
    monkeypatch.setattr("validate.supervision.run_layers", lambda *ignored: RIGHT)
    return lambda found: monkeypatch.setattr("validate.supervision.run_all", found)


Find = Callable[[Callable[..., list[Findings]]], None]


def test_a_yes_is_written_with_its_manifest_and_is_up_to_date(folder: ModelFolder, runners_find: Find) -> None:
    runners_find(right)
    report = validate(folder.root)
    assert report.verdict
    assert not report.up_to_date
    written = {path.name for path in report.folder.iterdir()}
    assert written == {"report.json", "report.html", "plots", "manifest.json"}
    manifest = json.loads((report.folder / "manifest.json").read_text())
    files = {path for path in report.folder.rglob("*") if path.is_file()} - {report.folder / "manifest.json"}
    assert set(manifest["outputs"]) == {folder.relative(path) for path in files}
    assert manifest["facts"] == {"verdict": "yes", "tensors": 42, "elements": 600}
    assert manifest["options"] == Options().record()
    assert [path.name for path in (folder.root / "validate").iterdir()] == [report.folder.name]
    before = {path: path.read_bytes() for path in files}
    again = validate(folder.root)
    assert again.up_to_date
    assert again == report
    assert {path: path.read_bytes() for path in files} == before


def test_another_option_or_another_plan_is_not_up_to_date(folder: ModelFolder, runners_find: Find) -> None:
    runners_find(right)
    validate(folder.root)
    assert not validate(folder.root, Options(tokens=4)).up_to_date
    place = folder.target("build", "rtx-sm89")
    place.mkdir(parents=True)
    (place / "manifest.json").write_text("{}")
    report = validate(folder.root, Options(tokens=4))
    assert not report.up_to_date
    assert not report.verdict
    assert "manifest.json" in report.problems[0]


def test_a_report_of_the_network_is_none_of_an_engine(
    folder: ModelFolder, runners_find: Find, monkeypatch: pytest.MonkeyPatch
) -> None:
    runners_find(right)
    monkeypatch.setattr("validate.layers.engine.find_gpus", list)
    on_cpu = validate(folder.root)
    assert on_cpu.target.endswith("-cpu")
    for driver in ("570.1", "580.2"):
        gpu = Gpu("a GPU", driver, "80 GiB", "9.0")
        monkeypatch.setattr("validate.layers.engine.find_gpus", lambda gpu=gpu: [gpu])
        found = validate(folder.root)
        assert not found.up_to_date
        assert found.target.startswith(on_cpu.target)
        assert found.target.endswith("-gpu")
        assert validate(folder.root).up_to_date
    monkeypatch.setattr("validate.layers.engine.find_gpus", list)
    again = validate(folder.root)
    assert (again.target, again.up_to_date) == (on_cpu.target, True)


@pytest.mark.parametrize(("found", "code"), [(right, DONE), (wrong, VERDICT_NO)])
def test_the_exit_code_is_the_verdict_also_when_up_to_date(
    folder: ModelFolder,
    runners_find: Find,
    capsys: pytest.CaptureFixture[str],
    found: Callable[..., list[Findings]],
    code: int,
) -> None:
    runners_find(found)
    assert main([str(folder.root)]) == code
    assert "verdict: " + ("NO" if code else "yes") in capsys.readouterr().out
    assert main([str(folder.root)]) == code
    assert "up to date" in capsys.readouterr().out


def test_a_run_that_fails_leaves_the_earlier_report_and_no_work_folder(
    folder: ModelFolder, runners_find: Find, monkeypatch: pytest.MonkeyPatch
) -> None:
    def die(*ignored: object) -> list[Findings]:
        raise StageError(Problem("died"))

    runners_find(right)
    report = validate(folder.root)
    before = (report.folder / "report.json").read_bytes()
    runners_find(die)
    with pytest.raises(StageError, match="died"):
        validate(folder.root, Options(tokens=4))
    assert (report.folder / "report.json").read_bytes() == before
    assert [path.name for path in (folder.root / "validate").iterdir()] == [report.folder.name]


def test_only_a_full_or_closed_disk_is_called_one(folder: ModelFolder, runners_find: Find) -> None:
    def fail_with(number: int) -> Callable[..., list[Findings]]:
        def fail(*ignored: object) -> list[Findings]:
            raise OSError(number, os.strerror(number))

        return fail

    runners_find(fail_with(errno.ENOSPC))
    with pytest.raises(StageError, match="cannot be written"):
        validate(folder.root, Options(tokens=5))
    runners_find(fail_with(errno.ENOMEM))
    with pytest.raises(OSError, match=os.strerror(errno.ENOMEM)):
        validate(folder.root, Options(tokens=5))


def test_what_a_killed_run_left_is_swept_away(folder: ModelFolder, runners_find: Find) -> None:
    left = folder.root / "validate" / f"{validation._WORK}999999999"
    left.mkdir(parents=True)
    (left / "logits.npy").write_bytes(b"x")
    runners_find(right)
    validate(folder.root)
    assert not left.exists()


def test_options_are_judged_where_they_are_made(folder: ModelFolder) -> None:
    with pytest.raises(StageError, match="at least 1 token"):
        Options(tokens=0)
    with pytest.raises(StageError, match="prompt is empty"):
        Options(prompt="")
    with pytest.raises(StageError, match="longer than the model's positions"):
        validate(folder.root, Options(tokens=1 << 20))


@pytest.mark.slow
@pytest.mark.parametrize(("factor", "original", "biased"), [(2.0, 256, False), (4.0, 128, False), (4.0, 128, True)])
def test_yarn_is_right_from_the_checkpoint_to_the_plan_unless_bf16_rounds_its_factor(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, factor: float, original: int, *, biased: bool
) -> None:
    """YaRN's attention factor lies in the tables: 1.1386 is 1.1406 in BF16, which is too far where it is rounded.

    The fault is planted by letting the BF16 graph rotate in BF16, as PyTorch's does: slopes of 1.0010 against 1.00001.
    """
    from build.plan import build_plan
    from export import export_onnx
    from export.options import ExportOptions
    from surgery import fuse

    if biased:
        monkeypatch.setattr(ModelConfig, "rotates_in_fp32", property(lambda config: False))
    yarn = {"rope_type": "yarn", "rope_theta": 5e6, "factor": factor}
    yarn["original_max_position_embeddings"] = original
    raw = small_config(rope_parameters=yarn, rope_theta=..., rope_scaling=..., max_position_embeddings=512)
    source = write_checkpoint(tmp_path / "yarn", raw)
    folder = export_onnx(ExportOptions(str(source), tmp_path / "out")).folder
    fuse(folder.root)
    build_plan(folder)
    report = validate(folder.root)
    assert not [problem for found in report.judged for problem in found.problems]
    assert report.layers is not None
    wrong = {row.name for row in report.layers.tensors if row.problem}
    assert wrong == ({f"model.layers.0.self_attn.{which}_rotary" for which in "qk"} if biased else set())
    assert report.verdict is not biased
    # Longer than the original length: positions that only YaRN has.
    assert all(not found.left_out for found in report.findings)


def run_command(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "validate", *arguments], cwd=ROOT, capture_output=True, text=True, check=False
    )


def test_help_is_quick_and_an_unknown_flag_is_refused() -> None:
    begun = time.monotonic()
    shown = run_command("--help")
    assert shown.returncode == DONE
    assert "--prompt" in shown.stdout
    assert time.monotonic() - begun < 5
    unknown = run_command("x", "--tolerance", "1")
    assert unknown.returncode == COULD_NOT
    assert "--tolerance" in unknown.stderr


def test_a_folder_that_is_not_there_is_refused(tmp_path: Path) -> None:
    done = run_command(str(tmp_path / "nothing"))
    assert done.returncode == COULD_NOT
    assert "make export" in done.stderr
    assert not (tmp_path / "nothing").exists()


@pytest.mark.slow
def test_the_whole_stage_says_yes_to_a_model_that_is_right(folder: ModelFolder) -> None:
    """Needs a minute: ten runners and the layers in processes of their own."""
    done = run_command(str(folder.root), "--tokens", "8")
    assert done.returncode == DONE, done.stderr
    assert "verdict: yes" in done.stdout
    assert done.stderr.count("validate: ") == len(RUNNERS) + 1
