"""A worker that dies is named, with what killed it and what to do; one that does not fit is not begun."""

import io
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from rich.console import Console

from artifacts.errors import StageError
from tests.numpy_session import CONFIG
from validate import supervision
from validate.findings import Check, Findings
from validate.runners import RUNNERS
from validate.supervision import check_memory, death, run_all, supervise
from validate.worker import Order

QUIET = Console(file=io.StringIO())
Replace = Callable[[str], None]


@pytest.fixture
def order(tmp_path: Path) -> Order:
    return Order(tmp_path, tmp_path / "model", {"kind": "random"}, (1, 2), 3)


@pytest.fixture
def worker_runs(monkeypatch: pytest.MonkeyPatch) -> Replace:
    """Let the worker's process run other code."""

    def replace(code: str) -> None:
        @contextmanager
        def start(order: Order, name: str, stderr: int) -> Iterator[subprocess.Popen[str]]:
            command = [sys.executable, "-c", code, str(order.findings(name))]
            process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=stderr, text=True)
            yield process
            process.kill()
            process.wait()

        monkeypatch.setattr(supervision, "_worker", start)

    return replace


def test_an_order_is_the_same_after_its_file(order: Order) -> None:
    order.write()
    assert Order.read(order.path) == order


def test_findings_come_back_and_progress_is_read(order: Order, worker_runs: Replace) -> None:
    found = Findings(RUNNERS[0].name, "reference", [Check("a", 1, 2, 0.5, None)])
    worker_runs(f"import sys, json; print(0, 2); print(2, 2); json.dump({found.to_json()}, open(sys.argv[1], 'w'))")
    assert supervise(order, RUNNERS[0], QUIET, "1/6") == found


def test_a_killed_worker_is_named_with_its_signal(order: Order, worker_runs: Replace) -> None:
    worker_runs("import os, signal; print(1, 2, flush=True); os.kill(os.getpid(), signal.SIGKILL)")
    with pytest.raises(StageError, match=r"model_fp32 was ended by SIGKILL.*memory runs out"):
        supervise(order, RUNNERS[3], QUIET, "4/6")


@pytest.mark.parametrize("sign", ["std::bad_alloc", "MemoryError", "DefaultCPUAllocator: not enough memory: 12 GB"])
def test_memory_that_ran_out_is_called_so(sign: str) -> None:
    assert "ran out of memory" in str(death("model", 1, f"Traceback\n{sign}\n"))


def test_a_full_disk_is_called_so() -> None:
    error = death("model", 2, "OSError: [Errno 28] No space left on device: 'reference'")
    assert "could not write its results" in str(error)
    assert "set OUT to a larger disk" in str(error)


def test_a_refusal_is_passed_on_as_it_was_said() -> None:
    said = "error: there is no layer 99\n  expected: layers 0 to 7\n  do:       correct --layers"
    assert str(death("layers", 2, f"a warning\n{said}\n")) == said.removeprefix("error: ")


def test_any_other_death_quotes_what_the_worker_said(order: Order, worker_runs: Replace) -> None:
    worker_runs("import sys; sys.exit('the disk is on fire')")
    with pytest.raises(StageError, match="disk is on fire") as refusal:
        supervise(order, RUNNERS[1], QUIET, "2/6")
    assert "PyTorch BF16 could not be examined" in str(refusal.value)


def test_a_segmentation_fault_is_not_blamed_on_memory() -> None:
    message = str(death("model", -signal.SIGSEGV, ""))
    assert "SIGSEGV" in message
    assert "memory runs out" not in message


def test_a_runner_that_does_not_fit_is_not_begun(order: Order, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(supervision, "memory_available", lambda: 1 << 20)
    with pytest.raises(StageError, match="does not fit into memory"):
        run_all(order, CONFIG, QUIET)
    monkeypatch.undo()
    check_memory(RUNNERS[0], CONFIG)


def test_every_runner_has_its_turn_and_its_line(order: Order, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(supervision, "supervise", lambda order, runner, *rest: Findings(runner.name, "judged"))
    console = Console(file=io.StringIO(), width=200)
    found = run_all(order, CONFIG, console)
    assert [findings.runner for findings in found] == [runner.name for runner in RUNNERS]
    assert isinstance(console.file, io.StringIO)
    assert console.file.getvalue().count("\n") == len(RUNNERS)
    rest = run_all(order, CONFIG, console, {RUNNERS[2].name})
    assert [findings.runner for findings in rest] == [runner.name for runner in RUNNERS if runner is not RUNNERS[2]]
