"""Each layer is found by its cache, whose names the contract fixes; nothing else in a graph has a sure name.

::

    past_key_values.i.key ─┐
    … ─► k ───────────────► Concat ─► (repeat) ─► Transpose ─► MatMul ◄─ q        or one fused attention node
"""

from __future__ import annotations

from dataclasses import dataclass

import onnx_graphsurgeon as gs

from artifacts.contract import past_name
from surgery.rotation import LAYOUT
from surgery.subject import Subject
from surgery.walk import Walk, describe

FUSED = ("Attention", "GroupQueryAttention", "MultiHeadAttention")
"""Nodes, of ONNX or of com.microsoft, that take the cache in themselves."""


@dataclass(frozen=True)
class Entry:
    """Where a layer's q and k enter the attention.

    Attributes:
        q: queries as they enter the scores.
        k: new keys as they enter the cache.
        node: the scores' MatMul, or the fused attention node.
    """

    q: gs.Tensor
    k: gs.Tensor
    node: gs.Node


def entry(walk: Walk, subject: Subject, layer: int) -> Entry:
    """Find where one layer's q and k enter its attention.

    Raises:
        Miss: the layer's cache leads to no attention.
    """
    join = walk.forward(subject.input(past_name(layer, "key")), "Concat", *FUSED)
    if join.op in FUSED:
        return Entry(join.inputs[0], join.inputs[1], join)
    walk.insist(len(join.inputs) == 2, f"{describe(join)} should join the past and the new keys")
    keys = join.outputs[0]
    while True:
        node = walk.forward(keys, "MatMul", "Mul", *LAYOUT, *FUSED)
        if node.op in FUSED:
            return Entry(node.inputs[0], join.inputs[1], node)
        if node.op == "MatMul":
            return Entry(walk.operands(node, keys), join.inputs[1], node)
        keys = node.outputs[0]
