"""The calls that are compared: a prefill, a chunk and steps on a filled cache, alone and in a padded batch.

Every call is judged alone: its past is the reference's cache, rounded to BF16, and every subject is fed the same. So
an error of one call is not carried into the next, and the numbers fit both precisions.

B rows, S new tokens, T all slots.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from artifacts.config import ModelConfig
from artifacts.contract import ATTENTION_MASK, INPUT_IDS, POSITION_IDS
from runtime.session import Array

SEED = 21


@dataclass(frozen=True)
class Call:
    """One call.

    Attributes:
        name: what it is, in words.
        ids: (B, S); a padded place holds token 0.
        seen: (B, T), whether a slot holds a real token.
        positions: (B, S), of each token in its own row.
        after: the call whose cache is its past; nothing for an empty cache.
    """

    name: str
    ids: Array
    seen: Array
    positions: Array
    after: str | None = None

    @property
    def real(self) -> Array:
        """Which new tokens are real, bool (B, S)."""
        found: Array = self.seen[:, -self.ids.shape[1] :] == 1
        return found

    @property
    def past(self) -> int:
        """Slots that are filled before the call."""
        return int(self.seen.shape[1] - self.ids.shape[1])

    @property
    def feeds(self) -> dict[str, Array]:
        """The inputs that are not the cache."""
        return {INPUT_IDS: self.ids, ATTENTION_MASK: self.seen, POSITION_IDS: self.positions}

    @property
    def mask(self) -> Array:
        """What every query may see, bool (B, 1, S, T): real slots up to its own, and its own."""
        slots = np.arange(self.seen.shape[1])
        own = self.past + np.arange(self.ids.shape[1])
        before, itself = slots <= own[:, None], slots == own[:, None]
        found: Array = (before & (self.seen == 1)[:, None, None, :]) | itself
        return found


@dataclass(frozen=True)
class Row:
    """Calls of one batch, one after another: how many real tokens each row takes in each."""

    name: str
    counts: tuple[tuple[int, ...], ...]
    words: tuple[str, ...]


PLAN = (
    Row("one row", ((10,), (1,)), ("prefill of 10", "decode at position 10")),
    Row("one long row", ((301,), (5,), (1,)), ("prefill of 301", "chunk of 5 after 301", "decode at position 306")),
    Row("three rows", ((11, 7, 4), (1, 1, 1)), ("left-padded batch of 3: prefill", "left-padded batch of 3: decode")),
)
"""11 slots, a number that is no head count and no width of any model here: padding is told by the size of its axis."""


def calls(config: ModelConfig, plan: tuple[Row, ...] = PLAN) -> tuple[Call, ...]:
    """Draw the calls for one model; a row that does not fit its positions is left out."""
    random = np.random.default_rng(SEED)
    found: list[Call] = []
    for row in plan:
        if max(map(sum, zip(*row.counts, strict=True))) <= config.max_positions:
            found += _draw(row, random, config.vocab_size)
    return tuple(found)


def _draw(row: Row, random: np.random.Generator, vocabulary: int) -> list[Call]:
    batch = len(row.counts[0])
    seen, done, before, found = np.zeros((batch, 0), np.int64), np.zeros((batch, 1), np.int64), None, []
    for counts, words in zip(row.counts, row.words, strict=True):
        new = np.array([[int(place >= max(counts) - count) for place in range(max(counts))] for count in counts])
        seen = np.concatenate([seen, new], axis=1)
        ids = random.integers(1, vocabulary, new.shape) * new
        found.append(Call(words, ids, seen, np.maximum(done + new.cumsum(1) - 1, 0) * new, before))
        done, before = done + new.sum(1, keepdims=True), words
    return found
