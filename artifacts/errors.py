"""Every refusal says what happened, what was expected, what was found, and what to do.

A stage that cannot do its work raises `StageError` with *all* the problems of its input at once; the command line
prints them and exits with 2. Exit code 1 is kept for a verdict of "no", which is not an error.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass


@dataclass(frozen=True)
class Problem:
    """One thing that is wrong with an input.

    Attributes:
        what: what happened, as a sentence without a full stop.
        expected: what would have been right, with values.
        found: what was there instead, with values.
        remedy: what to do next; a command where there is one.
    """

    what: str
    expected: str = ""
    found: str = ""
    remedy: str = ""

    def __str__(self) -> str:
        lines = [self.what]
        for label, text in (("expected", self.expected), ("found", self.found), ("do", self.remedy)):
            if text:
                lines.append(f"  {label + ':':<10}{text}")
        return "\n".join(lines)


class StageError(Exception):
    """A stage refuses its input or cannot finish; nothing half-written is left behind."""

    def __init__(self, problems: Problem | Iterable[Problem]) -> None:
        self.problems = (problems,) if isinstance(problems, Problem) else tuple(problems)
        if not self.problems:
            raise ValueError("a StageError needs at least one problem")
        super().__init__("\n".join(str(problem) for problem in self.problems))


def refuse(what: str, *, expected: str = "", found: str = "", remedy: str = "") -> StageError:
    """Make a `StageError` of one problem, to be raised."""
    return StageError(Problem(what, expected, found, remedy))
