"""Looks closely at one wrong tensor: where it is wrong, whether a factor explains it, whose values it holds."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import partial

import numpy as np

from runtime.session import Array
from validate.layers.anatomy import Part
from validate.layers.calls import Call
from validate.layers.measures import measure
from validate.layers.rows import Rows, rows


@dataclass(frozen=True)
class Evidence:
    """What one wrong tensor shows in one call.

    Attributes:
        slope: factor between found and expected.
        scaled: whether that factor explains nearly all of the difference.
        begins: the first wrong position, where every position before it is right and there is one before it.
        padded_only: whether every row without padding is right.
        holds: another tensor that has these values, if there is one.
        heads: the order in which the expected heads stand, if it is another one.
    """

    slope: float
    scaled: bool
    begins: int | None = None
    padded_only: bool = False
    holds: str = ""
    heads: tuple[int, ...] = ()


def look(
    part: Part,
    call: Call,
    actual: Array,
    expected: Array,
    limit: float,
    others: Iterable[tuple[str, Callable[[], Array]]],
) -> Evidence | None:
    """Look at a wrong tensor.

    Args:
        part: which tensor it is.
        call: the call in which it is wrong.
        actual: what came out.
        expected: what should have.
        limit: largest difference of a token that is right, as a part of the tensor's largest magnitude.
        others: expected tensors that it may have been taken for, by name.

    Returns:
        What was seen; nothing if the two cannot be compared at all.
    """
    found, wanted = rows(part, call, actual, like=expected), rows(part, call, expected, like=actual)
    if found is None or wanted is None or found.values.shape != wanted.values.shape:
        return None
    whole = measure(found.values, wanted.values)
    if whole.problem:
        return None
    left = measure(found.values.astype(np.float64) / whole.slope if whole.slope else found.values, wanted.values)
    holds = next((name for name, read in others if _same(actual, read(), limit)), "")
    return Evidence(
        slope=whole.slope,
        scaled=left.loudest < whole.loudest / 2,
        begins=_begins(found, wanted, limit * whole.magnitude),
        padded_only=_padded_only(call, found, wanted, limit * whole.magnitude),
        holds=holds,
        heads=() if holds or actual.ndim != 4 or actual.shape[1] == 1 else _order(actual, expected, limit),
    )


def _begins(found: Rows, wanted: Rows, limit: float) -> int | None:
    wrong = _wrong(found, wanted, limit)
    if not wrong.any():
        return None
    first = int(found.positions[wrong].min())
    return first if first > found.positions.min() else None


def _padded_only(call: Call, found: Rows, wanted: Rows, limit: float) -> bool:
    """Whether the wrong tokens stand in rows that are padded somewhere, and other rows are there."""
    padded = (call.seen == 0).any(axis=1)
    wrong = set(found.batch[_wrong(found, wanted, limit)].tolist())
    return bool(padded.any() and not padded.all() and wrong and all(padded[row] for row in wrong))


def _wrong(found: Rows, wanted: Rows, limit: float) -> Array:
    difference = np.abs(found.values.astype(np.float64) - wanted.values)
    worst: Array = difference.max(axis=1) > limit
    return worst


def _same(actual: Array, other: Array, limit: float) -> bool:
    if actual.shape != other.shape:
        return False
    difference = actual.astype(np.float32) - other.astype(np.float32)
    return bool(np.abs(difference).max() <= limit * np.abs(other).max())


def _order(actual: Array, expected: Array, limit: float) -> tuple[int, ...]:
    """Find the expected heads among the actual ones; nothing if they are not all there, or in their places."""
    heads = range(actual.shape[1])
    if actual.shape != expected.shape:
        return ()
    order = tuple(
        next((other for other in heads if _same(actual[:, head], expected[:, other], limit)), -1) for head in heads
    )
    return order if set(order) == set(heads) and order != tuple(heads) else ()


def candidates(
    part: Part, parts: Mapping[str, Part], read: Callable[[str], Array]
) -> Iterable[tuple[str, Callable[[], Array]]]:
    """Give the expected tensors that one may have been taken for: its own kind elsewhere, and the rest of its layer."""
    for other in parts.values():
        near = other.kind == part.kind or other.layer == part.layer
        if other.name != part.name and other.name not in part.feeds and near:
            yield other.name, partial(read, other.name)
