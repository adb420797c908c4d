"""Takes the padding out of a tensor and gives its real tokens as rows, each with its position.

A padded query may hold anything (the raw export averages over all slots there, the fused graph sees its own), and so
may a padded slot of the cache. Nothing real depends on them, and they are not compared.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from artifacts.contract import LOGITS
from artifacts.names import FINAL_NORM
from runtime.session import Array
from validate.layers.anatomy import OTHER, Part
from validate.layers.calls import Call

LAST = (FINAL_NORM, LOGITS)
"""Kinds of which a graph may give the last position only."""


@dataclass(frozen=True)
class Rows:
    """The real part of one tensor.

    Attributes:
        values: (tokens, width); of a cache, the slots that hold a real token.
        positions: (tokens,), of each token in its own row.
        batch: (tokens,), which row of the batch it is.
    """

    values: Array
    positions: Array
    batch: Array


def rows(part: Part, call: Call, array: Array, *, like: Array | None = None) -> Rows | None:
    """Give the real tokens of a tensor; nothing if its shape is not one that the call can give.

    Args:
        part: which tensor it is.
        call: the call that made it.
        array: the tensor.
        like: a tensor of the same kind; where that one has the last position only, so will this one.
    """
    if part.kind == OTHER:
        count = np.zeros(len(array) if array.ndim else 1, np.int64)
        return Rows(array.reshape(len(count), -1) if array.size else array.reshape(0, 0), count, count)
    if array.ndim not in (3, 4):
        return None
    axis = array.ndim - 2
    wide = np.moveaxis(array, axis, 1)
    real, positions = (_slots(call),) * 2 if part.kind.startswith("present") else (call.real, call.positions)
    real = call.seen == 1 if part.kind.startswith("present") else real
    if part.kind in LAST and 1 in (wide.shape[1], wide.shape[1] if like is None else like.shape[axis]):
        wide, real, positions = wide[:, -1:], real[:, -1:], positions[:, -1:]
    if wide.shape[:2] != real.shape:
        return None
    where = np.nonzero(real)
    return Rows(wide[where].reshape(len(where[0]), -1), positions[where], where[0])


def _slots(call: Call) -> Array:
    """Give the position of the token in each slot, (B, T)."""
    found: Array = np.maximum(call.seen.cumsum(1) - 1, 0)
    return found
