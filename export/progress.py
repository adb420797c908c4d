"""Who watches an export sees its steps, and a bar while the weights are written; on stderr."""

from __future__ import annotations

from types import TracebackType

from rich.console import Console
from rich.progress import BarColumn, DownloadColumn, SpinnerColumn, TaskID, TextColumn, TimeElapsedColumn
from rich.progress import Progress as Bars


class Progress:
    """Steps of an export with the time that each takes; silent without a console.

    Where stderr is no terminal, each step is one plain line when it begins.
    """

    def __init__(self, console: Console | None = None) -> None:
        self._console = console
        drawn = console is not None and console.is_terminal
        columns = (SpinnerColumn(), TextColumn("{task.description}"), TimeElapsedColumn())
        self._bars = Bars(*columns, console=console, disable=not drawn, redirect_stdout=False)
        self._sized = Bars(
            *columns, BarColumn(), DownloadColumn(True), console=console, disable=not drawn, redirect_stdout=False
        )
        self._task: TaskID | None = None

    def __enter__(self) -> Progress:
        self._bars.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._bars.stop()
        self._sized.stop()

    def step(self, text: str) -> None:
        """Begin a step, which ends the one before."""
        self._end()
        if self._console is not None and not self._console.is_terminal:
            self._console.print(text)
        self._task = self._bars.add_task(text, total=1)

    def writing(self, total: int) -> None:
        """Begin to write so many bytes; the bar takes the place of the steps."""
        self._end()
        self._bars.stop()
        self._sized.start()
        if self._console is not None and not self._console.is_terminal:
            self._console.print(f"writing weights, {total:,} bytes")
        self._task = self._sized.add_task("writing weights", total=total)

    def advance(self, written: int) -> None:
        """Tell of bytes written since the last call."""
        if self._task is not None:
            self._sized.advance(self._task, written)

    def _end(self) -> None:
        if self._task is not None:
            self._bars.update(self._task, completed=1)
            self._task = None
