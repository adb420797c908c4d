"""RMSNorm becomes one `RMSNormalization` (opset 23), which rounds where Transformers rounds.

::

    before   x ─► Cast(FP32) ─┬─► Pow 2 ─► ReduceMean ─► Add eps ─► Sqrt ─► Reciprocal ─┐
                              └───────────────────────────────────────────────────────► Mul ─► Cast(BF16) ─► Mul weight
    after    x ─► RMSNormalization(weight; axis −1, epsilon, stash_type FP32)

The statistics are FP32 (stash_type 1), the product with the weight is in the tensor's type. `epsilon` comes from the
config; a graph with another one is refused.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

import onnx_graphsurgeon as gs

from surgery.fusion import Pass
from surgery.subject import Subject
from surgery.walk import Walk, attribute


@dataclass(frozen=True)
class Norm:
    """One norm: x (B, S, hidden), its weight (hidden,), and the tensor that it makes."""

    x: gs.Tensor
    weight: gs.Tensor
    result: gs.Tensor


def anchors(subject: Subject) -> Iterator[tuple[str, gs.Node]]:
    """Give every mean over an axis; a Llama-like graph has one in each norm and none elsewhere."""
    return ((node.name, node) for node in subject.graph.nodes if node.op == "ReduceMean")


def match(walk: Walk, mean: gs.Node, subject: Subject) -> Norm:
    """Take a norm apart around its mean."""
    axes = walk.constant(mean.inputs[1]) if len(mean.inputs) > 1 else attribute(mean, "axes", None)
    walk.insist(axes in ([-1], [2]), f"{mean.name} should take the mean over the last axis, not over {axes}")
    wide = _squared(walk, mean.inputs[0])
    add = walk.forward(mean.outputs[0], "Add")
    _, epsilon = walk.split_scalar(add)
    wanted = subject.config.rms_norm_eps
    walk.insist(
        math.isclose(epsilon, wanted, rel_tol=1e-6), f"epsilon should be the config's {wanted}, not {epsilon:g}"
    )
    root = walk.forward(add.outputs[0], "Sqrt")
    normed = _divided(walk, root, wide)
    if normed.outputs and normed.outputs[0].op == "Cast":
        normed = walk.forward(normed, "Cast").outputs[0]
    product = walk.forward(normed, "Mul")
    weight = walk.operands(product, normed)
    walk.insist(isinstance(weight, gs.Constant), f"{weight.name} should be the norm's weight, an initializer")
    width = [subject.config.hidden_size]
    walk.insist(list(weight.shape) == width, f"{weight.name} should have shape {width}, not {list(weight.shape)}")
    x = wide.inputs[0].inputs[0] if wide.inputs and wide.inputs[0].op == "Cast" else wide
    return Norm(x, weight, product.outputs[0])


def _squared(walk: Walk, square: gs.Tensor) -> gs.Tensor:
    """Give the tensor whose square this is."""
    node = walk.back(square, "Pow", "Mul")
    if node.op == "Mul":
        walk.insist(node.inputs[0] is node.inputs[1], f"{node.name} should be a square")
        return node.inputs[0]
    tensor, exponent = walk.split_scalar(node)
    walk.insist(exponent == 2, f"{node.name} should be a square, not a power of {exponent:g}")
    return tensor


def _divided(walk: Walk, root: gs.Node, wide: gs.Tensor) -> gs.Tensor:
    """Give x divided by the root, whether by Reciprocal and Mul, by 1 / root and Mul, or by Div."""
    node = walk.forward(root.outputs[0], "Reciprocal", "Div")
    if node.op == "Div" and node.inputs[0] is wide:
        return node.outputs[0]
    if node.op == "Div":
        _, one = walk.split_scalar(node)
        walk.insist(one == 1, f"{node.name} should divide 1, not {one:g}, by the root")
    product = walk.forward(node.outputs[0], "Mul")
    walk.insist(walk.operands(product, node.outputs[0]) is wide, f"{product.name} should scale {wide.name}")
    return product.outputs[0]


def rewrite(norm: Norm, subject: Subject) -> None:
    """Put `RMSNormalization` in place."""
    epsilon = subject.config.rms_norm_eps
    subject.emit("RMSNormalization", [norm.x, norm.weight], norm.result, axis=-1, epsilon=epsilon, stash_type=1)


RMS_NORMALIZATION = Pass(
    "RMSNormalization", anchors, match, rewrite, expected=lambda config: 2 * config.num_hidden_layers + 1
)
