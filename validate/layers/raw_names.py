"""Finds the contract's tensors in a raw export, which has no names for what Transformers computes inside a module.

A module's output bears the module's path in every graph. The others are found by what stands around them::

    past, k_rotary ─► Concat ─► present.key
    q ─► MatMul(·, keysᵀ) ─► Mul ─► Add ─► Softmax ─► MatMul(·, values) = attention ─► Transpose ─► Reshape ─► o_proj
    stream, o_proj ─► Add = residual
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from artifacts import names
from artifacts.config import ModelConfig
from artifacts.contract import past_name, present_name
from artifacts.errors import refuse

if TYPE_CHECKING:
    import onnx


class Raw:
    """A raw export's nodes by what they make and what they use."""

    def __init__(self, model: onnx.ModelProto) -> None:
        self._maker: dict[str, onnx.NodeProto] = {name: node for node in model.graph.node for name in node.output}
        self._users: dict[str, list[onnx.NodeProto]] = {}
        for node in model.graph.node:
            for name in node.input:
                self._users.setdefault(name, []).append(node)

    def before(self, name: str, *operators: str) -> onnx.NodeProto:
        """Walk back from a tensor along first inputs, over layout and what a softmax is made of, to an operator.

        Raises:
            StageError: something else lies in the way.
        """
        skipped = ("Transpose", "Reshape", "Cast", "Softmax", "Add", "Mul", "Where", "Identity")
        node = self._maker.get(name)
        while node is not None and node.op_type not in operators:
            node = self._maker.get(str(node.input[0])) if node.op_type in skipped else None
        if node is None:
            raise refuse(
                f"the raw export has no {' or '.join(operators)} before {name}",
                expected="attention as Transformers' eager form computes it",
                remedy="make export surgery",
            )
        return node

    def after(self, name: str, operator: str) -> onnx.NodeProto:
        """Give the one node of an operator that uses a tensor.

        Raises:
            StageError: there is not exactly one.
        """
        found = [node for node in self._users.get(name, ()) if node.op_type == operator]
        if len(found) != 1:
            raise refuse(f"{name} of the raw export goes into {len(found)} {operator}", expected="one")
        return found[0]

    def joined(self, layer: int) -> str:
        """Give the key that is joined to the past of one layer."""
        join = self.before(present_name(layer, "key"), "Concat")
        return str(next(name for name in join.input if name != past_name(layer, "key")))


def raw_names(model: onnx.ModelProto, config: ModelConfig) -> dict[str, str]:
    """Give the raw export's own name for each tensor of the contract that has another one there.

    Raises:
        StageError: the graph is not built as Transformers builds it.
    """
    raw, found = Raw(model), {}
    for index in range(config.num_hidden_layers):
        output = names.layer(index, names.O_PROJ)
        projection = raw.before(output, "MatMul")
        weighted = raw.before(projection.input[0], "MatMul")
        scores = raw.before(weighted.input[0], "MatMul")
        found[names.layer(index, names.ATTENTION)] = weighted.output[0]
        found[names.layer(index, names.RESIDUAL)] = raw.after(output, "Add").output[0]
        if config.uses_rope[index]:
            found[names.layer(index, names.Q_ROTARY)] = scores.input[0]
            found[names.layer(index, names.K_ROTARY)] = raw.joined(index)
    return found
