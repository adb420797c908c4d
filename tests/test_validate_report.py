"""The verdict is yes only if every runner was examined, something was compared, and nothing was wrong."""

import io
import json
from dataclasses import replace
from pathlib import Path

import pytest
from rich.console import Console

from artifacts.config import ModelConfig
from artifacts.random_model import preset_config
from tests.layer_findings import KIN, RIGHT
from tests.numpy_session import CONFIG
from validate.certificate import Movement
from validate.findings import Check, Findings, Noise
from validate.greedy import Continuation
from validate.layers import ENGINE
from validate.plans import PlanState
from validate.prompt import Prompt
from validate.report import REPORT, Report, subjects
from validate.runners import RUNNERS, Role, left_out
from validate.table import show


def findings(number: int) -> Findings:
    runner = RUNNERS[number]
    return Findings(
        runner.name,
        runner.role.value,
        [Check("small positions: one call", 7, 100, 1e-6, 2e-6, 1e-4), Check("NoPE certificate", 6, 0)],
        (Movement(0, 1.0, 0.0), Movement(1, 1e-7, 0.0), Movement(2, float("inf"), 0.0)),
        Continuation([3, 4], [0.5, 0.01]),
        Noise(0.1, 0.02, 9.0) if runner.role is Role.NOISE else None,
        seconds={"load": 1.0, "run": 2.0},
        peak_bytes=1 << 30,
    )


@pytest.fixture
def report(tmp_path: Path) -> Report:
    """A report in which everything is right."""
    return right_report(tmp_path)


def right_report(folder: Path) -> Report:
    """Give a report in which everything is right."""
    return Report(
        "tiny",
        "onnxruntime-1-cpu",
        CONFIG.uses_rope,
        Prompt((1, 2), "Hello [there]"),
        tuple(findings(number) for number in range(len(RUNNERS))),
        {runner.name: "Hi [you]" for runner in RUNNERS},
        (PlanState("tensorrt_rtx-1.7.1-sm89", ()),),
        folder,
        RIGHT,
        {},
        KIN,
    )


def wrong(report: Report, number: int, check: Check) -> Report:
    """Put a check in the place of a runner's first."""
    all_findings = list(report.findings)
    all_findings[number] = replace(all_findings[number], checks=[check])
    return replace(report, findings=tuple(all_findings))


def test_everything_right_is_a_yes(report: Report) -> None:
    assert report.verdict
    assert report.compared == (6 * 7, 6 * 100)


def test_one_problem_of_any_runner_is_a_no(report: Report) -> None:
    for number in range(len(RUNNERS)):
        no = wrong(report, number, Check("a", 7, 100, problems=("off",)))
        assert not no.verdict
        assert no.problems == [f"{RUNNERS[number].name}: a: off"]


def test_a_runner_that_is_missing_is_a_no(report: Report) -> None:
    assert replace(report, findings=report.findings[:-1]).problems == [f"{RUNNERS[-1].name} was not examined"]
    assert not replace(report, findings=()).verdict


def test_a_runner_that_is_left_out_is_said_with_the_reason(report: Report) -> None:
    without = replace(report, findings=report.findings[:-1], left_out={RUNNERS[-1].name: "too large"})
    assert without.verdict
    console = Console(file=io.StringIO(), width=160)
    show(without, console)
    assert isinstance(console.file, io.StringIO)
    assert f"left out: {RUNNERS[-1].name}: too large" in console.file.getvalue()
    without.write(without.folder / REPORT)
    assert Report.read(without.folder) == without


def test_only_networks_of_large_models_are_left_out_and_only_unasked() -> None:
    large = ModelConfig.from_raw(preset_config("smollm3-3b"))
    assert set(left_out(large, thorough=False)) == {runner.name for runner in RUNNERS if runner.network}
    assert not left_out(large, thorough=True)
    assert not left_out(CONFIG, thorough=False)


def test_nothing_compared_is_a_no(report: Report) -> None:
    assert wrong(report, 3, Check("signature", 20, 0)).problems == ["model_fp32: nothing was compared"]


def test_an_old_plan_is_a_no(report: Report) -> None:
    old = replace(report, plans=(PlanState("sm89", ("sm89 was built from another onnx/model.onnx",)),))
    assert not old.verdict


def test_near_ties_come_from_the_noise_of_bf16(report: Report) -> None:
    assert report.near_ties == [1]


def test_a_report_is_the_same_after_its_file(report: Report) -> None:
    report.write(report.folder / REPORT)
    assert Report.read(report.folder) == report
    raw = json.loads((report.folder / REPORT).read_text())
    assert raw["verdict"] == "yes"
    assert raw["texts"]["PyTorch FP32"] == "Hi [you]"
    assert "No engine was run" in raw["engine"]


def test_what_an_engine_computed_is_said_to_be_one_and_nothing_else(report: Report) -> None:
    assert report.engine.startswith("No engine was run")
    row, word = RIGHT.tensors[0], RIGHT.last_word[0]
    engines = [f"{ENGINE}: {graph}" for graph in ("model_fp32", "model")]
    layers = replace(
        RIGHT, tensors=(row, replace(row, subject=engines[0])), last_word=(replace(word, subject=engines[1]),)
    )
    ran = replace(report, layers=layers)
    assert ran.engine.startswith("Engines were built from model_fp32, model and run on a GPU")
    assert ran.to_json()["engine"] == ran.engine
    console = Console(file=io.StringIO(), width=200)
    show(ran, console)
    assert isinstance(console.file, io.StringIO)
    assert ran.engine in console.file.getvalue()
    assert "No engine" not in console.file.getvalue()


def test_the_terminal_shows_tables_texts_and_the_verdict_last(report: Report) -> None:
    console = Console(file=io.StringIO(), width=160)
    show(report, console)
    assert isinstance(console.file, io.StringIO)
    text = console.file.getvalue()
    for part in (
        "NoPE certificate",
        "Hello [there]",
        "Hi [you]",
        "2.0e-06",
        "built from these graphs",
        "1 of 2 (steps 1)",
    ):
        assert part in text
    end = text.partition("verdict: yes")[2].splitlines()
    assert "elements compared with PyTorch" in end[0]
    assert REPORT in end[1]


def test_the_terminal_names_what_is_wrong(report: Report) -> None:
    console = Console(file=io.StringIO(), width=160)
    show(wrong(report, 3, Check("a", 7, 100, problems=("present.0.key is off",))), console)
    assert isinstance(console.file, io.StringIO)
    text = console.file.getvalue()
    assert "model_fp32: a: present.0.key is off" in text
    assert "verdict: NO" in text


def test_subjects_of_the_judged_runners_come_first() -> None:
    one, two = Findings("r", "noise", [Check("b", 1, 1)]), Findings("j", "judged", [Check("a", 1, 1)])
    assert subjects([one, two]) == ["a", "b"]
