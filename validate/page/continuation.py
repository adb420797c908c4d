"""The continuation side by side: each runner's tokens, the first one that differs from the reference's marked."""

from __future__ import annotations

from dataclasses import dataclass

from validate import greedy
from validate.report import Report
from validate.runners import Role


@dataclass(frozen=True)
class Written:
    """What one runner wrote.

    Attributes:
        text: as text; nothing without a tokenizer.
        tokens: the chosen ids.
        differs: the first step at which it is not the reference's, if any.
        state: that in words.
    """

    runner: str
    text: str | None
    tokens: tuple[int, ...]
    differs: int | None
    state: str


def written(report: Report) -> tuple[Written, ...]:
    """Give what every runner wrote, the reference first; nothing if there is no reference."""
    reference = next((found for found in report.findings if found.role == Role.REFERENCE.value), None)
    if reference is None or not reference.continuation.tokens:
        return ()
    ordered = sorted(report.findings, key=lambda found: found is not reference)
    return tuple(
        Written(
            found.runner,
            report.texts.get(found.runner),
            tuple(found.continuation.tokens),
            step := greedy.first_difference(found.continuation, reference.continuation),
            "reference" if found is reference else _state(step, len(found.continuation.tokens), report),
        )
        for found in ordered
    )


def _state(step: int | None, steps: int, report: Report) -> str:
    if step is None:
        return "the same" if steps else "did not continue"
    return f"differs at step {step}" + (", a near tie in BF16" if step in report.near_ties else "")
