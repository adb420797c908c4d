"""The cache between two steps, in both forms of the contract, kept where the session computes.

A row is one text. `extend` runs new tokens of one row and gives the logits of the last of them; the linear cache also
runs one token of many rows at once. Legend: B rows, S new tokens, K key/value heads, T tokens so far, C slots of the
linear cache, D head_dim, V vocabulary.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import numpy as np

from artifacts.contract import (
    ATTENTION_MASK,
    INPUT_IDS,
    KINDS,
    LOGITS,
    POSITION_IDS,
    WRITE_INDICES,
    TensorSpec,
    past_name,
    present_name,
)
from runtime.memory import BindableSession, Memory, zeros
from runtime.sampling import Logits

BUCKET = 64
"""Slots that a cache begins with where it may grow, and the least that it grows by."""


class Cache(Protocol):
    """Rows of tokens that the model has read."""

    context: int
    """Most tokens of a row."""
    chunk: int
    """Most new tokens of one `extend`."""

    def fill(self, row: int) -> int:
        """Give the number of tokens that a row holds."""
        ...

    def extend(self, row: int, tokens: Sequence[int]) -> Logits:
        """Read more tokens of one row.

        Args:
            row: which row.
            tokens: 1 to `chunk` ids; the row must have room for them.

        Returns:
            Logits after the last token, (V,), valid until the next call.
        """
        ...

    def keep(self, row: int, count: int) -> int:
        """Forget a row's tokens after the first `count`; gives how many it could keep."""
        ...


def open_cache(session: BindableSession, *, rows: int, context: int, chunk: int) -> Cache:
    """Give an empty cache of the form that the session's inputs declare.

    The concatenated form takes one row.
    """
    from runtime.linear_cache import LinearCache

    if WRITE_INDICES in session.inputs:
        return LinearCache(session, rows=rows, context=context, chunk=chunk)
    assert rows == 1
    return ConcatenatedCache(session, context=context, chunk=chunk)


class ConcatenatedCache:
    """One row; each step reads one set of tensors and writes another, one token or chunk longer."""

    def __init__(self, session: BindableSession, *, context: int, chunk: int) -> None:
        self.context, self.chunk = context, chunk
        self._session = session
        self._names = cache_names(session)
        self._fill = 0
        # Two sets take turns: what a step writes is what the next one reads.
        self._sets: list[list[Memory]] = [self._allocate(0), self._allocate(0)]
        self._past = _cut(self._sets[0], 0)
        self._inputs = StepInputs(session, rows=1, chunk=chunk)
        self._mask = zeros(session.inputs[ATTENTION_MASK], (1, context))
        self._mask.host[:] = 1

    def fill(self, row: int) -> int:
        """Give the number of tokens so far."""
        return self._fill

    def keep(self, row: int, count: int) -> int:
        """Keep all or nothing: tokens in the middle of a tensor cannot be dropped where it lies."""
        if count < self._fill:
            self._fill = 0
            self._past = _cut(self._sets[0], 0)
        return self._fill

    def extend(self, row: int, tokens: Sequence[int]) -> Logits:
        """Read more tokens."""
        past, total = self._fill, self._fill + len(tokens)
        assert row == 0
        assert total <= self.context
        if self._sets[1][0].shape[2] < total:
            self._sets[1] = self._allocate(bucket(total, self.context))
        present = _cut(self._sets[1], total)
        tensors = self._inputs.tensors(1, len(tokens))
        tensors[INPUT_IDS].host[0] = tokens
        tensors[POSITION_IDS].host[0] = np.arange(past, total)
        tensors[ATTENTION_MASK] = self._mask.shaped(1, total)
        tensors.update(zip(self._names.keys(), self._past, strict=True))
        tensors.update(zip(self._names.values(), present, strict=True))
        self._session.bind(tensors).run()
        self._sets.reverse()
        self._past, self._fill = present, total
        logits: Logits = tensors[LOGITS].host[0, 0]
        return logits

    def _allocate(self, slots: int) -> list[Memory]:
        return [allocate(self._session, name, 1, slots) for name in self._names]


def _cut(tensors: Sequence[Memory], slots: int) -> list[Memory]:
    """Give the first slots of every layer's tensors, which all have one shape; every step cuts what it writes."""
    _, heads, most, width = tensors[0].shape
    assert slots <= most
    shape = (1, heads, slots, width)
    return [Memory(dtype, shape, address, whole, owner) for dtype, _, address, whole, owner in tensors]


class StepInputs:
    """Small tensors of a step in host memory, and the logits; made once, for the largest step."""

    def __init__(self, session: BindableSession, *, rows: int, chunk: int) -> None:
        longest = max(rows, chunk)
        self._linear = WRITE_INDICES in session.inputs
        self._ids = zeros(session.inputs[INPUT_IDS], (longest,))
        self._positions = zeros(session.inputs[POSITION_IDS], (longest,))
        self._indices = zeros(TensorSpec(WRITE_INDICES, session.inputs[INPUT_IDS].precision, ()), (rows,))
        vocabulary = int(session.outputs[LOGITS].axes[2])
        self._logits = zeros(session.outputs[LOGITS], (rows, 1, vocabulary))

    def tensors(self, rows: int, new: int) -> dict[str, Memory]:
        """Give them for a step of some rows and new tokens; the memory is the same for every step."""
        tensors = {
            INPUT_IDS: self._ids.shaped(rows, new),
            POSITION_IDS: self._positions.shaped(rows, new),
            LOGITS: self._logits.rows(0, rows),
        }
        return {**tensors, WRITE_INDICES: self._indices.rows(0, rows)} if self._linear else tensors


def cache_names(session: BindableSession) -> dict[str, str]:
    """Give each layer's past and present, keys and values."""
    layers = sum(name.startswith("past_key_values.") for name in session.inputs) // len(KINDS)
    return {past_name(layer, kind): present_name(layer, kind) for layer in range(layers) for kind in KINDS}


def allocate(session: BindableSession, name: str, rows: int, slots: int) -> Memory:
    """Give an empty cache tensor, (rows, K, slots, D)."""
    spec = session.inputs[name]
    return session.allocate(spec, (rows, int(spec.axes[1]), slots, int(spec.axes[3])))


def bucket(tokens: int, context: int) -> int:
    """Give the slots to have for some tokens: at most an eighth or 64 more than these, no more than the context.

    So few slots are empty, and yet a cache that grows to any length is copied but a few times in all.
    """
    step = max(BUCKET, tokens // 8 // BUCKET * BUCKET)
    return min(-(-tokens // step) * step, context)
