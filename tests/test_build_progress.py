"""Bars follow TensorRT's phases, and Ctrl-C is noted, not raised inside TensorRT."""

import io
import signal
import threading

import pytest
from rich.console import Console

from build.progress import Interruption, PhaseBars


def test_bars_come_and_go() -> None:
    bars = PhaseBars(Console(file=io.StringIO(), force_terminal=True, width=100))
    bars.start("Building engine", None, 3)
    bars.start("Tactics", "Building engine", 2)
    bars.step("Tactics", 0)
    bars.step("unheard of", 0)
    first, second = bars.progress.tasks
    assert (first.description, second.description) == ("Building engine", "  Tactics")
    assert (second.completed, second.total) == (1, 2)
    bars.finish("Tactics")
    bars.finish("unheard of")
    assert [task.description for task in bars.progress.tasks] == ["Building engine"]
    assert (bars.phases, bars.steps) == (2, 2)


def test_without_a_terminal_there_are_no_bars() -> None:
    file = io.StringIO()
    bars = PhaseBars(Console(file=file))
    with bars.progress:
        bars.start("Building engine", None, 3)
    assert file.getvalue() == ""


def test_ctrl_c_is_raised_afterwards() -> None:
    before, reached = signal.getsignal(signal.SIGINT), []

    def work() -> None:
        with Interruption().caught():
            signal.raise_signal(signal.SIGINT)
            reached.append(True)

    with pytest.raises(KeyboardInterrupt):
        work()
    assert reached == [True]
    assert signal.getsignal(signal.SIGINT) is before


def test_another_thread_may_build_too() -> None:
    done = []

    def work() -> None:
        with Interruption().caught():
            done.append(True)

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert done == [True]
