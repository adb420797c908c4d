"""Query heads that share a key head become rows of one head, so that TensorRT-RTX has no keys and values to repeat.

::

    before   q (B, H, S, D) ─► Attention(keys (B, K, T, D), values, mask (B, 1, S, T)) ─► o (B, H, S, D)
    after    q ─► Reshape (B, K, H/K · S, D) ─► Attention(keys, values, rows) ─► Reshape ─► o
             mask ─► Concat, H/K times along S ─► rows (B, 1, H/K · S, T), once for all layers

A score is one query's and one key's, so the same is computed. `Attention` takes H query heads with K key heads too, but
TensorRT-RTX then copies keys and values for every query head: with 16 and 4 heads of 128, at a context of 4,096,
attention alone takes 33.6 MB of activations for a decode step before and 4.3 MB after, 46.7 and 27.8 MB for a prefill.
The FP32 twin is made before: ONNX Runtime repeats nothing, and shares work among its threads by heads, so that fewer
heads would make a prefill slower. A model with a key head for each query head stays as it is.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import onnx_graphsurgeon as gs

from artifacts.config import ModelConfig
from artifacts.names import MASK
from surgery.fusion import Pass
from surgery.subject import BF16, BOOL, Subject, integers
from surgery.walk import Walk

ROWS = f"{MASK}/Concat"
"""The mask as many times as a group has query heads, one after another."""


@dataclass(frozen=True)
class Group:
    """One layer's `Attention` and its result, (B, H, S, D)."""

    node: gs.Node
    result: gs.Tensor


def anchors(subject: Subject) -> Iterator[tuple[str, gs.Node]]:
    """Give every `Attention` of a model whose query heads share key heads."""
    if subject.config.group_size > 1:
        yield from ((node.name, node) for node in subject.graph.nodes if node.op == "Attention")


def match(walk: Walk, node: gs.Node, subject: Subject) -> Group:
    """Insist on whole heads and on the one mask, which is the same for every head."""
    config, (q, *_, mask) = subject.config, node.inputs
    wanted = (config.num_attention_heads, config.head_dim)
    found = (q.shape[1], q.shape[3]) if q.shape and len(q.shape) == 4 else q.shape
    walk.insist(found == wanted, f"{q.name} should have {wanted[0]} heads of {wanted[1]}, but is {q.shape}")
    walk.insist(mask.name == MASK and mask.shape[1] == 1, f"{node.name} should take {MASK}, not {mask.name}")
    return Group(node, node.outputs[0])


def rewrite(group: Group, subject: Subject) -> None:
    """Lay q's heads out as rows, and the result's rows as heads; row g · S + s is query s of a group's head g."""
    config, result = subject.config, group.result
    q, keys, values, mask = group.node.inputs
    axes = integers(0, config.num_key_value_heads, -1, config.head_dim)
    rows = subject.emit("Reshape", [q, axes], f"{q.name}/Reshape", dtype=BF16)
    group.node.inputs = [rows, keys, values, _mask_of_rows(mask, subject)]
    group.node.outputs = [gs.Variable(f"{result.name}/Attention", dtype=BF16)]
    heads = integers(0, config.num_attention_heads, -1, config.head_dim)
    subject.emit("Reshape", [group.node.outputs[0], heads], result)


def _mask_of_rows(mask: gs.Tensor, subject: Subject) -> gs.Tensor:
    """Give the mask of all rows; the first layer that asks makes it."""
    made = [node.outputs[0] for node in mask.outputs if node.op == "Concat"]
    return made[0] if made else subject.emit("Concat", [mask] * subject.config.group_size, ROWS, dtype=BOOL, axis=2)


def expected(config: ModelConfig) -> int:
    """Count the layers, where query heads share key heads."""
    return config.num_hidden_layers if config.group_size > 1 else 0


GROUPED_QUERIES = Pass("grouped queries", anchors, match, rewrite, expected)
