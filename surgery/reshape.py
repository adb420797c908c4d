"""Heads are split and joined by a `Reshape` to a constant shape; no axis is computed from another tensor's shape.

::

    before   x ─► Reshape ◄─ Concat ◄─ Shape, Squeeze, …      after   q, k, v: Reshape to (0, 0, heads, D)
                                                                      output:  Reshape to (0, 0, H·D)

A zero keeps the axis that is there. Four matches in each layer.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import onnx_graphsurgeon as gs

from surgery.fusion import Pass
from surgery.rotary_embedding import unrotated
from surgery.subject import Subject, integers
from surgery.walk import Walk, attribute

SPLIT = [0, 2, 1, 3]
"""(B, S, heads, D) to (B, heads, S, D), and back."""


@dataclass(frozen=True)
class Heads:
    """A Reshape that splits or joins heads, and the axes that it makes."""

    node: gs.Node
    axes: tuple[int, ...]


def anchors(subject: Subject) -> Iterator[tuple[str, tuple[gs.Node, str]]]:
    """Give q, k, v and the output of every `Attention`."""
    for node in subject.graph.nodes:
        if node.op == "Attention":
            for which in ("q", "k", "v", "output"):
                yield f"{which} of {node.name}", (node, which)


def match(walk: Walk, place: tuple[gs.Node, str], subject: Subject) -> Heads:
    """Find the Reshape behind one projection, or before the output projection."""
    node, which = place
    config = subject.config
    if which == "output":
        turned = walk.forward(node.outputs[0], "Transpose")
        reshape = walk.forward(turned.outputs[0], "Reshape")
        walk.forward(reshape.outputs[0], "MatMul")
        axes: tuple[int, ...] = (0, 0, config.num_attention_heads * config.head_dim)
    else:
        turned = walk.back(_before(walk, node, which, subject), "Transpose")
        reshape = walk.back(turned.inputs[0], "Reshape")
        walk.back(reshape.inputs[0], "MatMul")
        axes = (0, 0, config.num_attention_heads if which == "q" else config.num_key_value_heads, config.head_dim)
    walk.insist(attribute(turned, "perm", None) == SPLIT, f"{turned.name} should permute by {SPLIT}")
    return Heads(reshape, axes)


def _before(walk: Walk, node: gs.Node, which: str, subject: Subject) -> gs.Tensor:
    """Give q, k or v as it is before it is scaled, joined to the cache or rotated."""
    if which == "q":
        wide = walk.back(walk.back(node.inputs[0], "Cast").inputs[0], "Mul").inputs[0]
        tensor = walk.back(wide, "Cast").inputs[0]
    else:
        tensor = walk.back(node.inputs[1 if which == "k" else 2], "Concat").inputs[1]
    if tensor.inputs and tensor.inputs[0].op != "Transpose":
        *_, tensor = unrotated(walk, tensor, subject)
    return tensor


def rewrite(heads: Heads, subject: Subject) -> None:
    """Give the Reshape its constant shape."""
    heads.node.inputs = [heads.node.inputs[0], integers(*heads.axes)]
    heads.node.attrs.pop("allowzero", None)


RESHAPE = Pass("heads of constant shape", anchors, match, rewrite, expected=lambda config: 4 * config.num_hidden_layers)
