"""Who watches an export sees its steps, and a bar of the bytes while the weights are written; on stderr."""

from __future__ import annotations

from types import TracebackType

from rich.console import Console
from rich.progress import BarColumn, SpinnerColumn, TaskID, TextColumn, TimeElapsedColumn
from rich.progress import Progress as Bars


class Progress:
    """Steps of an export, and beside them the weights; silent without a console.

    Where stderr is no terminal, each step is one plain line when it begins.
    """

    def __init__(self, console: Console | None = None) -> None:
        self._console = console
        self._bars = Bars(
            SpinnerColumn(),
            TextColumn("{task.description}"),
            BarColumn(),
            TextColumn("{task.fields[amount]}"),
            TimeElapsedColumn(),
            console=console,
            disable=console is None or not console.is_terminal,
            redirect_stdout=False,
        )
        self._step: TaskID | None = None
        self._weights: TaskID | None = None
        self._written = self._total = 0

    def __enter__(self) -> Progress:
        self._bars.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._end_step()
        self._bars.stop()

    def step(self, text: str) -> None:
        """Begin a step, which ends the one before."""
        self._end_step()
        self._say(text)
        self._step = self._bars.add_task(text, total=None, amount="")

    def begin_weights(self, total: int) -> None:
        """Begin to write so many bytes, beside the steps."""
        self._total = total
        self._say(f"writing weights, {total:,} bytes")
        self._weights = self._bars.add_task("writing weights", total=total, amount="")

    def advance(self, written: int) -> None:
        """Tell of bytes written since the last call."""
        self._written += written
        if self._weights is not None:
            amount = f"{self._written / 1e9:.2f} of {self._total / 1e9:.2f} GB"
            self._bars.update(self._weights, completed=self._written, amount=amount)

    def _say(self, text: str) -> None:
        if self._console is not None and not self._console.is_terminal:
            self._console.print(text)

    def _end_step(self) -> None:
        if self._step is not None:
            self._bars.update(self._step, total=1, completed=1)
            self._step = None
