"""The cache between two calls, in both forms of the contract, and what lies in each of its slots.

Legend: B rows, S new tokens, K key/value heads, P past slots, C capacity, D head_dim. `indices` (B, S) says which
token of its row each new token is, -1 for padding.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from artifacts.contract import ATTENTION_MASK, KINDS, WRITE_INDICES, TensorSpec, past_name, present_name
from runtime.session import Array, Session, numpy_type

Integers = NDArray[np.int64]

STALE = 50.0
"""What a fresh linear cache holds: something that would be seen if a slot beyond the fill were looked at."""


class Cache(Protocol):
    """Feeds for the next call, and the memory of which token lies in which slot."""

    occupants: Integers
    """(B, slots): which token of its row a slot holds, -1 for none."""

    def feeds(self, indices: Integers) -> dict[str, Array]:
        """Make room for new tokens and give the mask, the past, and where to write."""
        ...

    def keep(self, outputs: Mapping[str, Array]) -> None:
        """Keep what a call gave as the past of the next one."""
        ...


class ConcatenatedCache:
    """The cache grows by S slots a call, the same for every row."""

    def __init__(self, specs: Mapping[str, tuple[TensorSpec, str]], batch: int) -> None:
        self._present = {past: present for past, (_, present) in specs.items()}
        self._past = {name: np.zeros(_shape(spec, batch, 0), numpy_type(spec)) for name, (spec, _) in specs.items()}
        self.occupants: Integers = np.zeros((batch, 0), np.int64)

    def feeds(self, indices: Integers) -> dict[str, Array]:
        """Append S slots."""
        self.occupants = np.concatenate([self.occupants, indices], axis=1)
        return {ATTENTION_MASK: (self.occupants >= 0).astype(np.int64), **self._past}

    def keep(self, outputs: Mapping[str, Array]) -> None:
        """Take `present.*` for `past_key_values.*`."""
        self._past = {past: outputs[present] for past, present in self._present.items()}


class LinearCache:
    """A buffer of C slots; row b's new tokens go to its own fill, which ends after its last real token."""

    def __init__(self, specs: Mapping[str, tuple[TensorSpec, str]], batch: int) -> None:
        slots = int(next(spec.axes[2] for spec, _ in specs.values()))
        self._buffers = {
            name: np.full(_shape(spec, batch, slots), STALE, numpy_type(spec)) for name, (spec, _) in specs.items()
        }
        self._fill = np.zeros(batch, np.int64)
        self.occupants: Integers = np.full((batch, slots), -1, np.int64)

    def feeds(self, indices: Integers) -> dict[str, Array]:
        """Write at each row's fill; right padding is written too, and overwritten by the next call."""
        length = indices.shape[1]
        where = self._fill.copy()
        for row, start in enumerate(where):
            self.occupants[row, start : start + length] = indices[row]
        last = length - np.argmax(indices[:, ::-1] >= 0, axis=1)
        self._fill = where + last
        return {ATTENTION_MASK: (self.occupants >= 0).astype(np.int64), WRITE_INDICES: where, **self._buffers}

    def keep(self, outputs: Mapping[str, Array]) -> None:
        """Nothing to keep: the buffers were written in place."""


def empty_cache(session: Session, layers: int, batch: int) -> Cache:
    """Give an empty cache of the form that the session's inputs declare.

    Args:
        session: an entered session that keeps the contract.
        layers: layers of the model.
        batch: rows.
    """
    names = [(past_name(layer, kind), present_name(layer, kind)) for layer in range(layers) for kind in KINDS]
    specs = {past: (session.inputs[past], present) for past, present in names}
    return LinearCache(specs, batch) if WRITE_INDICES in session.inputs else ConcatenatedCache(specs, batch)


def capacity(session: Session) -> int | None:
    """Give the slots of a linear cache, nothing for the form that grows."""
    slots = session.inputs[ATTENTION_MASK].axes[1]
    return slots if isinstance(slots, int) else None


def _shape(spec: TensorSpec, batch: int, slots: int) -> tuple[int, int, int, int]:
    """Shape of one layer's cache; heads and head_dim are numbers in every graph."""
    return batch, int(spec.axes[1]), slots, int(spec.axes[3])
