"""A rotation of q or k is recognised in every form in which tools write it.

The exported arithmetic (`rotate_half`), with Slices or a Split::

    x ─┬──────────────────────────────────► Mul cos ─┐
       ├─► Slice(second half) ─► Neg ─┐              ├─► Add
       └─► Slice(first half) ─────────┴► Concat ─► Mul sin

or one node: `RotaryEmbedding` of ONNX or of com.microsoft.
"""

from __future__ import annotations

from dataclasses import dataclass

import onnx_graphsurgeon as gs

from surgery.walk import Miss, Walk, attribute, constant, describe

LAYOUT = ("Reshape", "Transpose", "Cast", "Identity", "Squeeze", "Unsqueeze", "Expand")
PROJECTION = ("MatMul", "Gemm")


@dataclass(frozen=True)
class Rotation:
    """One rotation.

    Attributes:
        form: how the graph writes it.
        x: the tensor before it.
        result: the tensor after it, of the same shape.
        cos: cosines that x is multiplied with; None where a node has tables of its own.
        sin: sines, likewise.
    """

    form: str
    x: gs.Tensor
    result: gs.Tensor
    cos: gs.Tensor | None = None
    sin: gs.Tensor | None = None


def find_rotation(walk: Walk, tensor: gs.Tensor) -> Rotation | None:
    """Look for a rotation between a projection and a tensor made of it.

    Args:
        walk: the walk.
        tensor: q as it enters the scores, or k as it enters the cache.

    Returns:
        The rotation, or None if only layout and scaling lie between the projection and the tensor.

    Raises:
        Miss: what lies between is neither layout nor scaling nor a rotation.
    """
    while True:
        walk.insist(bool(tensor.inputs), f"{tensor.name} should come from a projection, but no node makes it")
        node = tensor.inputs[0]
        if node.op in PROJECTION:
            return None
        if node.op == "RotaryEmbedding":
            return Rotation(f"{node.domain or 'ai.onnx'} RotaryEmbedding", node.inputs[0], node.outputs[0])
        if node.op == "Add":
            return match_arithmetic(walk, node)
        if node.op in ("Mul", "Div"):
            tensor, _ = walk.split_scalar(node)
        elif node.op in LAYOUT:
            tensor = node.inputs[0]
        else:
            walk.miss(f"{describe(node)} is neither layout nor scaling nor a rotation")


def match_arithmetic(walk: Walk, add: gs.Node) -> Rotation:
    """Take the exported arithmetic apart, whichever way its operands are ordered."""
    straight = walk.back(add.inputs[0], "Mul")
    turned = walk.back(add.inputs[1], "Mul")
    misses = []
    for plain, crossed in ((straight, turned), (turned, straight)):
        for half, sin in (crossed.inputs, reversed(crossed.inputs)):
            branch = Walk()
            branch.steps = walk.steps
            try:
                x = _rotated_half(branch, half)
                cos = branch.operands(plain, x)
            except Miss as miss:
                misses.append(miss)
            else:
                walk.steps = branch.steps
                return Rotation("arithmetic", x, add.outputs[0], cos, sin)
    raise max(misses, key=lambda miss: miss.steps)


def _rotated_half(walk: Walk, tensor: gs.Tensor) -> gs.Tensor:
    """Give x where the tensor is (−second half, first half) of it along the last axis."""
    joined = walk.back(tensor, "Concat")
    walk.insist(len(joined.inputs) == 2, f"{describe(joined)} should join two halves")
    negated = walk.back(joined.inputs[0], "Neg")
    x, second = _half(walk, negated.inputs[0])
    other, first = _half(walk, joined.inputs[1])
    walk.insist(x is other, f"{describe(joined)} should join two halves of one tensor")
    walk.insist((first, second) == (0, 1), f"{describe(joined)} should join the halves crosswise, not {first, second}")
    return x


def _half(walk: Walk, tensor: gs.Tensor) -> tuple[gs.Tensor, int]:
    """Give the tensor of which this is a half along the last axis, and which half it is."""
    node = walk.back(tensor, "Slice", "Split")
    x = node.inputs[0]
    if node.op == "Split":
        last = attribute(node, "axis", 0) in (-1, len(x.shape or ()) - 1)
        walk.insist(last and len(node.outputs) == 2, f"{node.name} should split the last axis in two")
        return x, [part is tensor for part in node.outputs].index(True)
    dim = x.shape[-1] if x.shape else None
    if not isinstance(dim, int):
        walk.miss(f"the last axis of {x.name} should be a number")
    start, end, axis = (walk.constant(bound)[0] for bound in node.inputs[1:4])
    walk.insist(axis in (-1, len(x.shape) - 1), f"{node.name} should slice the last axis, not axis {axis}")
    bounds = (start, min(end, dim))
    halves = [(0, dim // 2), (dim // 2, dim)]
    walk.insist(bounds in halves, f"{node.name} should take a half of {dim}, not {bounds[0]} to {bounds[1]}")
    return x, halves.index(bounds)


def comes_from(walk: Walk, tensor: gs.Tensor, function: str, position_ids: gs.Tensor) -> None:
    """Insist that cosines (or sines) are `function` of angles made of `position_ids`.

    Casts, layout and scaling (YaRN's attention factor) may lie between.
    """
    while tensor.inputs and tensor.inputs[0].op != function:
        node = tensor.inputs[0]
        walk.insist(
            node.op in LAYOUT or (node.op == "Mul" and any(constant(t) is not None for t in node.inputs)),
            f"{tensor.name} should be made of {function}, but {describe(node)} makes it",
        )
        tensor = next(t for t in node.inputs if constant(t) is None)
    angles = walk.back(tensor, function).inputs[0]
    walk.insist(reaches(angles, position_ids), f"the angles {angles.name} should be made of position_ids")


def reaches(tensor: gs.Tensor, source: gs.Tensor) -> bool:
    """Whether a tensor is made of another, by way of any nodes."""
    seen: set[int] = set()
    waiting = [tensor]
    while waiting:
        tensor = waiting.pop()
        if tensor is source:
            return True
        if id(tensor) not in seen:
            seen.add(id(tensor))
            waiting += [before for node in tensor.inputs for before in node.inputs]
    return False
