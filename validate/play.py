"""Play a scenario on a session and give, for every row of every call, what its own passage says it must be.

Padding is taken out here: what is compared are logits at real tokens and cache slots that hold real tokens, in the
order of the passage.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np

from artifacts.contract import INPUT_IDS, LOGITS, POSITION_IDS
from runtime.session import Array, Session
from validate.cache import Cache, Integers, empty_cache
from validate.scenarios import Passage, Scenario


@dataclass(frozen=True)
class Answer:
    """What one call gave for one row.

    Attributes:
        passage: the row's passage.
        logits: first and last+1 index in the passage of the tokens whose logits are there; may be empty.
        length: tokens of the passage that the cache holds.
        arrays: `logits` (tokens, V) and `present.*` (K, length, D), and whatever else came out. A tensor that does
            not have the shape that it should is given as it came.
    """

    passage: str
    logits: tuple[int, int]
    length: int
    arrays: Mapping[str, Array]


def play(session: Session, scenario: Scenario, passages: Mapping[str, Passage], layers: int) -> Iterator[Answer]:
    """Run a scenario call by call.

    Args:
        session: an entered session.
        scenario: what to feed.
        passages: the passages by name.
        layers: layers of the model.

    Yields:
        One answer for every row of every call. It ends early if the outputs do not allow another call.
    """
    rows = [passages[name] for name in scenario.rows]
    cache = empty_cache(session, layers, len(rows))
    done = [0] * len(rows)
    for call in scenario.calls:
        indices = lay_out(call, done, scenario.side)
        outputs = run_call(session, cache, rows, indices, scenario.pad)
        done = [before + count for before, count in zip(done, call, strict=True)]
        yield from _answers(session, cache, rows, indices, outputs)
        if not can_go_on(session, cache, outputs, indices.shape[1]):
            return
        cache.keep(outputs)


def lay_out(call: tuple[int, ...], done: list[int], side: str) -> Integers:
    """Give (B, S): which token of its row each new token is, -1 for padding."""
    length = max(call)
    indices = np.full((len(call), length), -1, np.int64)
    for row, (count, before) in enumerate(zip(call, done, strict=True)):
        start = length - count if side == "left" else 0
        indices[row, start : start + count] = np.arange(before, before + count)
    return indices


def run_call(session: Session, cache: Cache, rows: list[Passage], indices: Integers, pad: int) -> dict[str, Array]:
    """Feed the tokens at these indices; padding stands at position 0."""
    ids, positions = np.full_like(indices, pad), np.zeros_like(indices)
    for row, passage in enumerate(rows):
        real = indices[row] >= 0
        ids[row, real] = np.asarray(passage.tokens)[indices[row, real]]
        positions[row, real] = indices[row, real] + passage.start
    return session.run({INPUT_IDS: ids, POSITION_IDS: positions, **cache.feeds(indices)})


def _answers(
    session: Session, cache: Cache, rows: list[Passage], indices: Integers, outputs: Mapping[str, Array]
) -> Iterator[Answer]:
    last_only = session.outputs[LOGITS].axes[1] == 1 if LOGITS in session.outputs else True
    columns = np.arange(indices.shape[1])[-1:] if last_only else np.arange(indices.shape[1])
    for row, passage in enumerate(rows):
        slots = np.flatnonzero(cache.occupants[row] >= 0)
        with_logits = columns[indices[row, columns] >= 0]
        arrays = dict(outputs)
        for name, array in outputs.items():
            if not _fits(session, name, array, indices.shape, cache.occupants.shape[1]):
                continue
            if name == LOGITS:
                arrays[name] = array[row, with_logits - columns[0]]
            elif name in session.outputs:
                arrays[name] = array[row][:, slots]
        if len(with_logits) == 0:
            arrays.pop(LOGITS, None)
        span = indices[row, with_logits]
        begin, end = (int(span[0]), int(span[-1]) + 1) if len(span) else (0, 0)
        yield Answer(passage.name, (begin, end), len(slots), arrays)


def _fits(session: Session, name: str, array: Array, new: tuple[int, ...], slots: int) -> bool:
    """Whether an output has the shape that this call must give it."""
    axes = session.outputs[name].axes if name in session.outputs else ()
    if name == LOGITS:
        return array.shape == (new[0], 1 if axes[1] == 1 else new[1], axes[2])
    return len(axes) == 4 and array.shape == (new[0], axes[1], slots, axes[3])


def can_go_on(session: Session, cache: Cache, outputs: Mapping[str, Array], new: int) -> bool:
    """Whether every output of a call is there and has its shape, so that another call can follow.

    Args:
        session: what ran.
        cache: the cache that the call was fed from.
        outputs: what it gave.
        new: tokens of the call in each row.
    """
    batch, slots = cache.occupants.shape
    return all(name in outputs and _fits(session, name, outputs[name], (batch, new), slots) for name in session.outputs)
