"""A pass states how many matches the model has, and fails on any other number with the nearest miss."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Generic, TypeVar

from artifacts.config import ModelConfig
from artifacts.errors import refuse
from surgery.subject import Subject
from surgery.walk import Miss, Walk

Anchor = TypeVar("Anchor")
Match = TypeVar("Match")

REMEDY = "export the checkpoint again (make export), or mend the tool that made this graph"


@dataclass(frozen=True)
class Pass(Generic[Anchor, Match]):
    """One step of the pipeline: find, check, rewrite.

    Attributes:
        makes: what the step makes, as messages and manifests call it.
        anchors: gives the places to look at, with a name for each.
        match: takes a place apart, or raises `Miss` with the reason.
        rewrite: changes the graph at one match.
        expected: how many matches a model has.
    """

    makes: str
    anchors: Callable[[Subject], Iterable[tuple[str, Anchor]]]
    match: Callable[[Walk, Anchor, Subject], Match]
    rewrite: Callable[[Match, Subject], None]
    expected: Callable[[ModelConfig], int]

    def run(self, subject: Subject) -> int:
        """Rewrite every match.

        Returns:
            The number of matches.

        Raises:
            StageError: it is not the number that the model has; the message shows the nearest miss and why it was one.
        """
        matches: list[Match] = []
        misses: list[tuple[str, Miss]] = []
        for place, anchor in self.anchors(subject):
            try:
                matches.append(self.match(Walk(), anchor, subject))
            except Miss as miss:
                misses.append((place, miss))
        expected = self.expected(subject.config)
        if len(matches) != expected:
            raise refuse(
                f"the pass that makes {self.makes} does not fit this graph",
                expected=f"{expected} matches, by the model's config",
                found=f"{len(matches)} matches{nearest(misses)}",
                remedy=REMEDY,
            )
        for match in matches:
            self.rewrite(match, subject)
        return len(matches)


def nearest(misses: list[tuple[str, Miss]]) -> str:
    """Tell which candidate came furthest, and what stopped it; the places that stopped likewise are counted."""
    if not misses:
        return "; no other candidate"
    place, best = max(misses, key=lambda named: named[1].steps)
    others = ", ".join(name for name, miss in misses if name != place)
    text = f"; the nearest miss is {place}, {best.steps} steps in: {best.reason}"
    return text + (f" (and {len(misses) - 1} more: {others[:200]})" if others else "")
