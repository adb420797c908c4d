"""The concatenated cache becomes a linear one: a buffer of C slots, written in place by `TensorScatter` (opset 24).

::

    before   past (B, K, P, D), new (B, K, S, D) ─► Concat ─► present (B, K, P+S, D)
    after    past (B, K, C, D), new, write_indices (B) ─► TensorScatter(axis 2, linear) ─► present (B, K, C, D)

The attention mask then speaks of all C slots. Two matches in each layer.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import onnx_graphsurgeon as gs

from artifacts.contract import (
    ATTENTION_MASK,
    BATCH,
    KINDS,
    POSITION_IDS,
    WRITE_INDICES,
    Kind,
    past_name,
    present_name,
)
from surgery.fusion import Pass
from surgery.subject import INT64, Subject
from surgery.walk import Walk


@dataclass(frozen=True)
class Cache:
    """Keys or values of one layer: the buffer, what is new, and the buffer after it."""

    past: gs.Tensor
    new: gs.Tensor
    present: gs.Tensor


def anchors(subject: Subject) -> Iterator[tuple[str, tuple[int, Kind]]]:
    """Give keys and values of every layer."""
    for layer in range(subject.config.num_hidden_layers):
        for kind in KINDS:
            yield past_name(layer, kind), (layer, kind)


def match(walk: Walk, place: tuple[int, Kind], subject: Subject) -> Cache:
    """Find the Concat that joins one cache."""
    past, present = subject.input(past_name(*place)), subject.output(present_name(*place))
    join = walk.back(present, "Concat")
    walk.insist(join.inputs[0] is past, f"{join.name} should join {past.name} with what is new")
    return Cache(past, join.inputs[1], present)


def rewrite(cache: Cache, subject: Subject) -> None:
    """Write what is new into the buffer."""
    for tensor in (cache.past, cache.present):
        tensor.shape = [BATCH, subject.config.num_key_value_heads, subject.capacity, subject.config.head_dim]
    inputs = [cache.past, cache.new, write_indices(subject)]
    subject.emit("TensorScatter", inputs, cache.present, axis=2, mode="linear")


def write_indices(subject: Subject) -> gs.Tensor:
    """Give the input that says where each row writes; it is added where the contract has it, on first use."""
    inputs = subject.graph.inputs
    known = [tensor for tensor in inputs if tensor.name == WRITE_INDICES]
    if not known:
        subject.input(ATTENTION_MASK).shape = [BATCH, subject.capacity]
        known = [gs.Variable(WRITE_INDICES, dtype=INT64, shape=[BATCH])]
        inputs.insert(1 + [tensor.name for tensor in inputs].index(POSITION_IDS), known[0])
    return known[0]


TENSOR_SCATTER = Pass("TensorScatter", anchors, match, rewrite, expected=lambda config: 2 * config.num_hidden_layers)
