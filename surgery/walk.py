"""A walk through a graph remembers how far it came, so that a pattern that fails can say where and why.

Matchers are written by hand on a `Walk`: each step names what it expects, and the first step that fails raises `Miss`
with the reason and the number of steps that held. The candidate that came furthest is the nearest miss.
"""

from __future__ import annotations

from typing import NoReturn

import numpy as np
import onnx_graphsurgeon as gs

_SMALL = 16
"""Elements of a constant that may be read; weights are larger, and lie in a file that is not opened."""


class Miss(Exception):  # noqa: N818  # a miss is a finding, not an error
    """A pattern did not match here.

    Attributes:
        reason: what was found in place of what.
        steps: how many steps of the pattern held before.
    """

    def __init__(self, reason: str, steps: int) -> None:
        super().__init__(reason)
        self.reason = reason
        self.steps = steps


class Walk:
    """Steps from tensor to tensor; each holds or raises `Miss`."""

    def __init__(self) -> None:
        self.steps = 0

    def miss(self, reason: str) -> NoReturn:
        """End the walk with a reason."""
        raise Miss(reason, self.steps)

    def insist(self, holds: bool, reason: str) -> None:
        """Go on if a condition holds."""
        if not holds:
            self.miss(reason)
        self.steps += 1

    def back(self, tensor: gs.Tensor, *ops: str) -> gs.Node:
        """Step to the node that makes a tensor, which must be one of the operators named."""
        node = tensor.inputs[0] if tensor.inputs else None
        wanted = " or ".join(ops)
        found = f"{describe(node)} makes it" if node else "no node makes it"
        self.insist(node is not None and node.op in ops, f"{tensor.name} should come from {wanted}, but {found}")
        return node

    def forward(self, tensor: gs.Tensor, *ops: str) -> gs.Node:
        """Step to the one consumer of a tensor that is one of the operators named; others may stand beside it."""
        found = [node for node in tensor.outputs if node.op in ops]
        consumers = ", ".join(describe(node) for node in tensor.outputs) or "nothing"
        self.insist(len(found) == 1, f"{tensor.name} should go into one {' or '.join(ops)}, but goes into {consumers}")
        return found[0]

    def operands(self, node: gs.Node, tensor: gs.Tensor) -> gs.Tensor:
        """Give the other operand of a node with two inputs, one of which is `tensor`."""
        others = [operand for operand in node.inputs if operand is not tensor]
        self.insist(
            len(node.inputs) == 2 and len(others) == 1, f"{describe(node)} should join {tensor.name} with another"
        )
        return others[0]

    def split_scalar(self, node: gs.Node) -> tuple[gs.Tensor, float]:
        """Take a node of two operands apart into the tensor and the scalar."""
        for tensor, scalar in (node.inputs, reversed(node.inputs)):
            value = constant(scalar)
            if value is not None and value.size == 1:
                self.steps += 1
                return tensor, float(value.item())
        self.miss(f"neither operand of {describe(node)} is a scalar constant")

    def constant(self, tensor: gs.Tensor) -> list[int]:
        """Give the integers of a small constant."""
        value = constant(tensor)
        self.insist(value is not None, f"{tensor.name} should be a small constant")
        assert value is not None
        return [int(item) for item in value.reshape(-1)]


def constant(tensor: gs.Tensor) -> np.ndarray[tuple[int, ...], np.dtype[np.float64]] | None:
    """Give the values of a small constant that lies in the graph, or nothing."""
    if isinstance(tensor, gs.Variable) and tensor.inputs and tensor.inputs[0].op == "Constant":
        tensor = tensor.inputs[0].attrs.get("value")
    if not isinstance(tensor, gs.Constant) or tensor.data_location == 1 or int(np.prod(tensor.shape)) > _SMALL:
        return None
    return np.asarray(tensor.values).astype(np.float64)


def attribute(node: gs.Node, name: str, default: object) -> object:
    """Give a node's attribute, or the default that the operator's specification has."""
    return node.attrs.get(name, default)


def describe(node: gs.Node) -> str:
    """Name a node by operator (with its domain, unless it is ONNX's own) and name."""
    return f"{operator(node)} {node.name!r}"


def operator(node: gs.Node) -> str:
    """Give an operator's name, with the domain before it unless it is ONNX's own."""
    return f"{node.domain}::{node.op}" if node.domain else str(node.op)
