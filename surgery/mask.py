"""One bool mask for all layers says which cache slots a query may see.

::

    before   the exporter's mask sub-graph
    after    own = past + 0 … S−1, or write_indices + 0 … S−1 with the linear cache
             mask = (slot ≤ own and attention_mask[slot]) or slot = own

It counts in slots, not positions: with left padding a token's position is not its slot (`slot ≤ position_ids` passes
every unpadded test). A query always sees its own slot, so no row is fully masked: such a row would become NaN, and
NaN times zero poisons the rows that do not look at it. Shapes: (B, 1, S, T), or (B, 1, S, C) with the linear cache.
Everything has four axes before it is compared: TensorRT's parser computes what is missing from other tensors' shapes.
"""

from __future__ import annotations

from collections.abc import Iterator

import onnx
import onnx_graphsurgeon as gs

from artifacts.contract import ATTENTION_MASK, BATCH, INPUT_IDS, SEQUENCE, TOTAL, WRITE_INDICES
from artifacts.names import MASK
from surgery.fusion import Pass
from surgery.subject import BOOL, INT64, Shape, Subject, integer, integers, redirect
from surgery.walk import Walk


def anchors(subject: Subject) -> Iterator[tuple[str, str]]:
    """Give the one place."""
    yield MASK, MASK


def match(walk: Walk, name: str, subject: Subject) -> list[gs.Tensor]:
    """Give the tensors that stand for the mask so far, one in each `Attention`."""
    nodes = [node for node in subject.graph.nodes if node.op == "Attention"]
    walk.insist(bool(nodes), "no Attention asks for a mask")
    return [node.inputs[3] for node in nodes]


def rewrite(stands: list[gs.Tensor], subject: Subject) -> None:
    """Make the mask and hand it to every layer."""
    total: int | str = TOTAL if subject.capacity is None else subject.capacity
    whole = (BATCH, 1, SEQUENCE, total)
    asked = subject.input(ATTENTION_MASK)
    real = _emit(subject, "Cast", [asked], shape=[BATCH, total], to=onnx.TensorProto.BOOL)
    real = _emit(subject, "Unsqueeze", [real, integers(1, 2)], shape=[BATCH, 1, 1, total])
    slots, own = _concatenated(subject) if subject.capacity is None else _linear(subject, subject.capacity)
    slots = _emit(subject, "Unsqueeze", [slots, integers(0, 1, 2)], shape=[1, 1, 1, total])
    each = (1 if subject.capacity is None else BATCH, 1, SEQUENCE, total)
    before = _emit(subject, "LessOrEqual", [slots, own], shape=each)
    itself = _emit(subject, "Equal", [slots, own], shape=each)
    seen = _emit(subject, "And", [before, real], shape=whole)
    mask = subject.emit("Or", [seen, itself], MASK, dtype=BOOL, shape=whole)
    for stand in stands:
        redirect(stand, mask)


def _concatenated(subject: Subject) -> tuple[gs.Tensor, gs.Tensor]:
    """Give slots 0 … T−1 and the new tokens' own slots, (1, 1, S, 1), for the concatenated cache."""
    total = _length(subject, ATTENTION_MASK)
    new = _length(subject, INPUT_IDS)
    slots = _emit(subject, "Range", [integer(0), total, integer(1)], shape=[TOTAL])
    steps = _emit(subject, "Range", [integer(0), new, integer(1)], shape=[SEQUENCE])
    past = _emit(subject, "Sub", [total, new], shape=[])
    own = _emit(subject, "Add", [steps, past], shape=[SEQUENCE])
    return slots, _emit(subject, "Unsqueeze", [own, integers(0, 1, 3)], shape=[1, 1, SEQUENCE, 1])


def _linear(subject: Subject, capacity: int) -> tuple[gs.Tensor, gs.Tensor]:
    """Give slots 0 … C−1 and the new tokens' own slots, (B, 1, S, 1), for the linear cache."""
    slots = _emit(subject, "Range", [integer(0), integer(capacity), integer(1)], shape=[capacity])
    new = _length(subject, INPUT_IDS)
    steps = _emit(subject, "Range", [integer(0), new, integer(1)], shape=[SEQUENCE])
    first = _emit(subject, "Unsqueeze", [subject.input(WRITE_INDICES), integers(1)], shape=[BATCH, 1])
    own = _emit(subject, "Add", [first, steps], shape=[BATCH, SEQUENCE])
    return slots, _emit(subject, "Unsqueeze", [own, integers(1, 3)], shape=[BATCH, 1, SEQUENCE, 1])


def _length(subject: Subject, name: str) -> gs.Tensor:
    """Give the length of an input's second axis as a scalar."""
    length = _emit(subject, "Shape", [subject.input(name)], shape=[1], start=1, end=2)
    return _emit(subject, "Squeeze", [length, integers(0)], shape=[])


_TYPES = {"Cast": BOOL, "LessOrEqual": BOOL, "Equal": BOOL, "And": BOOL}


def _emit(subject: Subject, op: str, inputs: list[gs.Tensor], *, shape: Shape, **attributes: object) -> gs.Tensor:
    """Add one node of the mask, named `attention_mask.slots/<Op>[_n]`."""
    made = sum(node.op == op and node.name.startswith(f"{MASK}/") for node in subject.graph.nodes)
    dtype = inputs[0].dtype if op == "Unsqueeze" else _TYPES.get(op, INT64)
    name = f"{MASK}/{op}" + (f"_{made}" if made else "")
    return subject.emit(op, inputs, name, dtype=dtype, shape=shape, **attributes)


MASK_OF_SLOTS = Pass("the mask", anchors, match, rewrite, expected=lambda config: 1)
