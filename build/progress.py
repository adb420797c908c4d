"""TensorRT's own progress as bars on stderr, and Ctrl-C as the way to stop it."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn, TimeElapsedColumn


class PhaseBars:
    """One bar for each phase that is under way, children below their parents; finished ones go away.

    Counts what it saw: `phases` begun and `steps` done.
    """

    def __init__(self, console: Console) -> None:
        columns = TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn()
        self.progress = Progress(*columns, console=console, transient=True, disable=not console.is_terminal)
        self.phases = self.steps = 0
        self._tasks: dict[str, TaskID] = {}
        self._depths: dict[str, int] = {}

    def start(self, phase: str, parent: str | None, steps: int) -> None:
        """Begin a phase of so many steps."""
        depth = self._depths.get(parent, -1) + 1 if parent else 0
        self._depths[phase] = depth
        self._tasks[phase] = self.progress.add_task("  " * depth + phase, total=steps)
        self.phases += 1

    def step(self, phase: str, done: int) -> None:
        """Note that step number `done` (from 0) of a phase is over."""
        self.steps += 1
        if phase in self._tasks:
            self.progress.update(self._tasks[phase], completed=done + 1)

    def finish(self, phase: str) -> None:
        """End a phase."""
        task = self._tasks.pop(phase, None)
        if task is not None:
            self.progress.remove_task(task)


class Interruption:
    """Whether Ctrl-C was pressed; TensorRT stops at its next step."""

    def __init__(self) -> None:
        self.pressed = False

    def check(self) -> None:
        """Stop here if it was pressed.

        Raises:
            KeyboardInterrupt: it was.
        """
        if self.pressed:
            raise KeyboardInterrupt

    @contextmanager
    def caught(self) -> Iterator[None]:
        """Note Ctrl-C instead of raising: inside TensorRT's C++ a Python exception ends the process or is swallowed.

        Raises:
            KeyboardInterrupt: afterwards, if it was pressed.
        """

        def note(number: int, frame: FrameType | None) -> None:
            self.pressed = True

        try:
            before = signal.signal(signal.SIGINT, note)
        except ValueError:
            # Not the main thread, which alone gets signals.
            yield
            return
        try:
            yield
        finally:
            signal.signal(signal.SIGINT, before)
            self.check()


def monitor(trt: Any, bars: PhaseBars, interruption: Interruption, between: Callable[[], None]) -> Any:
    """Make the `IProgressMonitor` that TensorRT calls; a step answers whether to go on.

    Args:
        trt: the TensorRT in use.
        bars: what shows its phases.
        interruption: whether to stop.
        between: what to do after each phase.
    """

    class Monitor(trt.IProgressMonitor):  # type: ignore[misc]  # TensorRT comes without types
        """Hands TensorRT's calls on."""

        def __init__(self) -> None:
            trt.IProgressMonitor.__init__(self)

        def phase_start(self, phase_name: str, parent_phase: str | None, num_steps: int) -> None:
            """A phase begins."""
            bars.start(phase_name, parent_phase, num_steps)

        def phase_finish(self, phase_name: str) -> None:
            """A phase is over."""
            bars.finish(phase_name)
            between()

        def step_complete(self, phase_name: str, step: int) -> bool:
            """A step is over; False cancels the build."""
            bars.step(phase_name, step)
            return not interruption.pressed

    return Monitor()
