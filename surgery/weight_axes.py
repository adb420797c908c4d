"""A weight declares as many axes as the tensor that it meets, so that TensorRT's parser puts no reshape behind it.

::

    before   x (B, S, K) ─► MatMul ◄─ weight (K, N)             RMSNormalization ◄─ weight (K)
    after    x (B, S, K) ─► MatMul ◄─ weight (1, K, N)          RMSNormalization ◄─ weight (1, 1, K)

The bytes and their place in the data file are the same; only what the graph says of their shape is not. Both operators
broadcast a weight of either shape to x. The parser takes no such step in silence: it adds a layer for each weight, a
ninth of the whole network. The FP32 twin is made before: ONNX Runtime lays out in advance for its products only weights
of two axes.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import onnx
import onnx_graphsurgeon as gs
from onnx_graphsurgeon.ir.tensor import LazyValues

from surgery.fusion import Pass
from surgery.subject import Subject
from surgery.walk import Walk

_RANKS = {"MatMul": 2, "RMSNormalization": 1}
"""Axes of a weight in the checkpoint, by the operator that takes it as second input."""

_STREAM = 3
"""Axes of what it meets: batch, sequence, width."""


@dataclass(frozen=True)
class Weight:
    """A weight and its initializer, which points into the data file."""

    constant: gs.Constant
    initializer: onnx.TensorProto


def anchors(subject: Subject) -> Iterator[tuple[str, gs.Node]]:
    """Give every node that takes a weight; a tied head's is made by a Transpose, which keeps its two axes."""
    takers = (node for node in subject.graph.nodes if node.op in _RANKS)
    return ((node.name, node) for node in takers if isinstance(node.inputs[1], gs.Constant))


def match(walk: Walk, node: gs.Node, subject: Subject) -> Weight:
    """Insist on a weight of the data file that nothing else takes, as the checkpoint shapes it."""
    constant, wanted = node.inputs[1], _RANKS[node.op]
    rank, users = len(constant.shape), len(constant.outputs)
    walk.insist(rank == wanted, f"{constant.name} should have {wanted} axes, not {rank}")
    walk.insist(users == 1, f"{constant.name} should go into one node, not into {users}")
    values = constant._values  # the property would load it
    walk.insist(isinstance(values, LazyValues), f"{constant.name} should lie in the data file")
    return Weight(constant, values.tensor)


def rewrite(weight: Weight, subject: Subject) -> None:
    """Declare leading axes of one; the other forms' initializer stays as it is."""
    widened = onnx.TensorProto()
    widened.CopyFrom(weight.initializer)
    missing = _STREAM - len(widened.dims)
    widened.dims[:] = [1] * missing + list(widened.dims)
    weight.constant.values = LazyValues(widened)


WEIGHT_AXES = Pass(
    "weights of three axes",
    anchors,
    match,
    rewrite,
    expected=lambda config: 9 * config.num_hidden_layers + 1 + (not config.tie_word_embeddings),
)
