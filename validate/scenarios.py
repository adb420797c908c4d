"""What is run, as data: passages of tokens that the reference reads in one call, and the ways to feed them.

A causal model gives the same logits and the same cache for the same tokens however they are cut into calls, wherever
a row of them stands in a batch, and whatever its padding holds. So one call of the reference is the answer to all of
them. What differs between the ways is what goes wrong in practice: an empty cache, one token, positions that BF16
cannot hold (257 is the first), a padded row, cache slots written at different fills.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Literal

import numpy as np

from artifacts.config import ModelConfig

SEED = 20
SHORT = 10
LONG = 305
SHORT_CUTS: tuple[tuple[int, ...], ...] = ((10,), (5, 3, 1, 1), (1,) * 10, (9, 1))
LONG_CUTS: tuple[tuple[int, ...], ...] = ((301, 1, 1, 1, 1), (200, 56, 1, 1, 47))
"""A prompt of more than 300 tokens and four steps; and in chunks that end and begin at positions 256 and 257."""

Side = Literal["left", "right"]
SIDES: tuple[Side, Side] = ("left", "right")


@dataclass(frozen=True)
class Passage:
    """Tokens at consecutive positions, the first at `start`, with nothing before them."""

    name: str
    tokens: tuple[int, ...]
    start: int = 0

    @property
    def end(self) -> int:
        """The position after the last one."""
        return self.start + len(self.tokens)


@dataclass(frozen=True)
class Scenario:
    """One way to feed passages, a row of the batch each.

    Attributes:
        rows: names of the passages.
        calls: for every call, how many tokens of each row it takes; a row with fewer than the longest is padded.
        side: where the padding stands.
        pad: the token that stands for padding.
    """

    name: str
    rows: tuple[str, ...]
    calls: tuple[tuple[int, ...], ...]
    side: Side = "left"
    pad: int = 0

    @property
    def slots(self) -> int:
        """Cache slots that it fills in each row."""
        return sum(max(call) for call in self.calls)


def passages(config: ModelConfig) -> dict[str, Passage]:
    """Draw the passages for one model, by name; those that do not fit its positions are left out."""
    return {passage.name: passage for passage in _draw(config) if passage.end <= config.max_positions}


def too_long(config: ModelConfig) -> list[str]:
    """Say which passages a model has no positions for."""
    return [
        f"{passage.name}: ends at position {passage.end}, the model has {config.max_positions}"
        for passage in _draw(config)
        if passage.end > config.max_positions
    ]


def _draw(config: ModelConfig) -> tuple[Passage, ...]:
    random = np.random.default_rng(SEED)

    def draw(name: str, count: int, start: int = 0) -> Passage:
        return Passage(name, tuple(int(token) for token in random.integers(config.vocab_size, size=count)), start)

    return (
        draw("small positions", SHORT),
        draw("across 256", SHORT, 251),
        draw("across 300", SHORT, 296),
        draw("last positions", SHORT, config.max_positions - SHORT),
        draw("long prompt", LONG),
        draw("row of 7", 7),
        draw("row of 4", 4),
    )


def scenarios(passages: Mapping[str, Passage]) -> tuple[Scenario, ...]:
    """List every way that the passages are fed."""
    cut = [
        *((name, cuts) for name in ("small positions", "across 256", "across 300") for cuts in SHORT_CUTS),
        ("last positions", (SHORT,)),
        *(("long prompt", cuts) for cuts in LONG_CUTS),
    ]
    single = [
        Scenario(f"{name}: {_words(cuts)}", (name,), tuple((n,) for n in cuts))
        for name, cuts in cut
        if name in passages
    ]
    rows = ("small positions", "row of 7", "row of 4")
    calls = ((9, 6, 3), (1, 1, 1))
    batch = [Scenario(f"{side}-padded batch", rows, calls, side) for side in SIDES if "row of 4" in passages]
    return (*single, *batch)


def in_one_call(passages: Iterable[Passage]) -> tuple[Scenario, ...]:
    """List the passages as the reference reads them, each in one call."""
    return tuple(
        Scenario(f"{passage.name}: one call", (passage.name,), ((len(passage.tokens),),)) for passage in passages
    )


def _words(cuts: tuple[int, ...]) -> str:
    if len(cuts) == 1:
        return "one call"
    return "one by one" if set(cuts) == {1} else "+".join(map(str, cuts))
