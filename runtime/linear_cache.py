"""A linear cache: B rows of C slots, written in place at each row's fill.

A batched step writes into **every** row up to the last that takes part, also into one that is idle or in the middle of
its prompt: there the write goes to the row's fill, which is the place that its next real token overwrites, and no mask
ever shows it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from artifacts.contract import ATTENTION_MASK, INPUT_IDS, LOGITS, POSITION_IDS, WRITE_INDICES
from artifacts.errors import StageError
from runtime.cache import StepInputs, allocate, bucket, cache_names
from runtime.memory import BindableSession, Bound, Memory, zeros
from runtime.sampling import Logits


@dataclass(frozen=True)
class Step:
    """A step that is bound, and the small arrays that the host fills before it and reads after it.

    Attributes:
        ids: (B, S).
        positions: (B, S).
        indices: (B), the slot that each row's first new token goes to.
        logits: (B, V).
        bound: what runs it.
    """

    ids: NDArray[np.int64]
    positions: NDArray[np.int64]
    indices: NDArray[np.int64]
    logits: Logits
    bound: Bound

    @classmethod
    def of(cls, session: BindableSession, tensors: Mapping[str, Memory]) -> Step:
        """Bind a session's tensors."""
        ids, positions, indices = (tensors[name].host for name in (INPUT_IDS, POSITION_IDS, WRITE_INDICES))
        return cls(ids, positions, indices, tensors[LOGITS].host[:, 0], session.bind(tensors))


class LinearCache:
    """Rows that are filled and freed independently.

    Where the session's capacity is free and lies in host memory, the cache has only as many slots as its longest row
    needs (see `runtime.cache.bucket`). It grows when a row does; it shrinks when a row is freed and the others need
    half of it or less, so that rows that come and go do not make it do either again and again.
    """

    def __init__(self, session: BindableSession, *, rows: int, context: int, chunk: int) -> None:
        self.context, self.chunk, self.rows = context, chunk, rows
        declared = session.inputs[ATTENTION_MASK].axes[1]
        self._grows = isinstance(declared, str)
        assert self._grows or context == declared
        self._session = session
        self._names = cache_names(session)
        self._inputs = StepInputs(session, rows=rows, chunk=chunk)
        self._fills: NDArray[np.int64] = np.zeros(rows, np.int64)
        self._slots: NDArray[np.int64] = np.zeros((rows, 0), np.int64)
        self._buffers: dict[str, Memory] = {}
        self.reset()

    @property
    def capacity(self) -> int:
        """Slots that each row has now."""
        return self._mask.shape[1]

    def fill(self, row: int) -> int:
        """Give the number of tokens that a row holds; they lie in slots 0 … fill − 1."""
        return int(self._fills[row])

    def keep(self, row: int, count: int) -> int:
        """Forget a row's tokens after the first `count`."""
        kept = min(count, self.fill(row))
        self._fills[row] = kept
        self._slots[row, kept:] = 0
        if not kept and self._grows:
            self._shrink()
        return kept

    def reset(self) -> None:
        """Forget everything, also what a step that failed may have left half-done."""
        self._fills[:] = 0
        self._resize(bucket(1, self.context) if self._grows else self.context)

    def extend(self, row: int, tokens: Sequence[int]) -> Logits:
        """Read more tokens of one row, at the row's own address."""
        start, end = self.fill(row), self.fill(row) + len(tokens)
        assert 0 < len(tokens) <= self.chunk
        assert end <= self.context
        self._make_room(end)
        step = self._step(row, 1, len(tokens))
        step.ids[0] = tokens
        step.positions[0] = np.arange(start, end)
        step.indices[0] = start
        self._slots[row, start:end] = 1
        step.bound.run()
        self._fills[row] = end
        logits: Logits = step.logits[0]
        return logits

    def step(self, tokens: Mapping[int, int]) -> dict[int, Logits]:
        """Read one more token of each of several rows, all at once.

        Args:
            tokens: the token of each row that takes part.

        Returns:
            Logits of each of these rows, (V,), valid until the next call.
        """
        count = max(tokens) + 1
        fills = self._fills[:count]
        self._make_room(int(fills.max()) + 1)
        step = self._step(0, count, 1)
        ids, taking_part = step.ids[:, 0], list(tokens)
        ids[:] = 0
        ids[taking_part] = list(tokens.values())
        step.positions[:, 0] = step.indices[:] = fills
        self._slots[taking_part, fills[taking_part]] = 1
        step.bound.run()
        fills[taking_part] += 1
        return {row: step.logits[row] for row in taking_part}

    def _step(self, first: int, count: int, new: int) -> Step:
        """Bind a step over some neighbouring rows.

        Steps of one token come again and again, so they are kept; chunks of a prompt do not.
        """
        key = (first, count, new)
        if key in self._steps:
            return self._steps[key]
        tensors = self._inputs.tensors(count, new)
        tensors[ATTENTION_MASK] = self._mask.rows(first, count)
        for name, present in self._names.items():
            tensors[name] = tensors[present] = self._buffers[name].rows(first, count)
        step = Step.of(self._session, tensors)
        if new == 1:
            self._steps[key] = step
        return step

    def _make_room(self, slots: int) -> None:
        assert slots <= self.context
        if slots > self.capacity:
            self._resize_or_reset(bucket(slots, self.context))

    def _shrink(self) -> None:
        """Give up slots that no row needs, where that is worth moving what the rows hold."""
        held = int(self._fills.max())
        need = bucket(max(held, 1), self.context)
        if need < self.capacity and (not held or 2 * need <= self.capacity):
            self._resize_or_reset(need)

    def _resize_or_reset(self, slots: int) -> None:
        """Give every row another number of slots; where there is no memory for all, some are resized and none is kept.

        Raises:
            StageError: there is not enough memory.
        """
        try:
            self._resize(slots)
        except StageError:
            self.reset()
            raise

    def _resize(self, slots: int) -> None:
        """Give every row another number of slots; what the rows hold moves along."""
        held = int(self._fills.max())
        self._steps: dict[tuple[int, int, int], Step] = {}
        # One tensor after the other, so that no more than one of them is there twice.
        for name in self._names:
            new = allocate(self._session, name, self.rows, slots)
            if held:
                new.host[:, :, :held] = self._buffers[name].host[:, :, :held]
            self._buffers[name] = new
        mask = zeros(self._session.inputs[ATTENTION_MASK], (self.rows, slots))
        mask.host[:, :held] = self._slots[:, :held]
        self._mask, self._slots = mask, mask.host
