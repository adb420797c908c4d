"""Who watches a training sees a bar of its steps, the loss, and how many answers are right; on stderr."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeElapsedColumn, TimeRemainingColumn
from rich.progress import Progress as Bars

if TYPE_CHECKING:
    from artifacts.checkpoints.training import State

_PLAIN_EVERY = 50
"""Steps between two lines where stderr is no terminal."""
_MEAN_OF = 50


class Progress:
    """Tells of a training; silent without a console."""

    def __init__(self, console: Console | None) -> None:
        self._console = console
        self._bars = Bars(
            BarColumn(),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
            TimeRemainingColumn(),
            TextColumn("{task.description}"),
            console=console,
            disable=console is None or not console.is_terminal,
        )

    def begin(self, steps: int, done: int) -> None:
        """Show the bar, from where the training goes on."""
        self._bars.start()
        self._bar = self._bars.add_task("", total=steps, completed=done)

    def tell(self, done: int, state: State) -> None:
        """Show the loss of the last steps and the last scores."""
        recent = state.losses[-_MEAN_OF:]
        said = f"loss {sum(recent) / len(recent):.3f}"
        if state.scores:
            said += "  " + "  ".join(f"{skill} {share:.0%}" for skill, share in state.scores[-1][1].items())
        self._bars.update(self._bar, completed=done, description=said)
        if self._console is not None and not self._console.is_terminal and done % _PLAIN_EVERY == 0:
            self._console.print(f"step {done:,}, {state.seconds / 60:.1f} minutes: {said}", soft_wrap=True)

    def step(self, text: str) -> None:
        """End the bar and say what comes next."""
        self._bars.stop()
        if self._console is not None:
            self._console.print(text)
