"""What lies on the table: a graph, the facts of its model, and the few moves with which passes change it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import onnx
import onnx_graphsurgeon as gs

from artifacts.config import ModelConfig
from artifacts.contract import OPSET

Shape = Sequence[int | str] | None

BF16 = onnx.TensorProto.BFLOAT16
FP32 = np.dtype(np.float32)
INT64 = np.dtype(np.int64)
BOOL = np.dtype(np.bool_)


@dataclass(frozen=True)
class Subject:
    """A graph under surgery.

    Attributes:
        graph: the graph; passes change it in place.
        config: the model's facts, which outrank whatever the graph says.
        tables: the rotary tables that the graph rotates with, cos and sin, (positions, D/2).
        capacity: slots of the linear cache; None where the cache is concatenated.
        stripped: what the NoPE strip took a rotation from, as `layer 3's q`.
    """

    graph: gs.Graph
    config: ModelConfig
    tables: tuple[gs.Constant, gs.Constant]
    capacity: int | None = None
    stripped: list[str] = field(default_factory=list)

    def copy(self, capacity: int | None) -> Subject:
        """Give a subject with a graph of its own, for one form of the model."""
        return Subject(self.graph.copy(), self.config, self.tables, capacity, self.stripped)

    def input(self, name: str) -> gs.Tensor:
        """Give an input of the graph by its contract name; the signature was checked before."""
        return next(tensor for tensor in self.graph.inputs if tensor.name == name)

    def output(self, name: str) -> gs.Tensor:
        """Give an output of the graph by its contract name."""
        return next(tensor for tensor in self.graph.outputs if tensor.name == name)

    def emit(
        self,
        op: str,
        inputs: Sequence[gs.Tensor],
        output: gs.Tensor | str,
        *,
        dtype: object = None,
        shape: Shape = None,
        **attributes: object,
    ) -> gs.Tensor:
        """Add a node that makes one tensor.

        Args:
            op: the operator, of the standard domain.
            inputs: its inputs.
            output: a tensor to take over from the node that made it so far, or the name of a new one.
            dtype: element type of a new tensor.
            shape: axes of a new tensor, where they are known.
            attributes: the operator's attributes.
        """
        made = gs.Variable(output, dtype=dtype, shape=shape) if isinstance(output, str) else output
        made.inputs.clear()
        self.graph.nodes.append(gs.Node(op, made.name, attributes, list(inputs), [made]))
        return made

    def to_current_opset(self) -> None:
        """Declare the opset of the fused graphs and no other domain."""
        self.graph.opset = OPSET
        self.graph.import_domains = [onnx.helper.make_opsetid("", OPSET)]
        self.graph.ir_version = onnx.helper.find_min_ir_version_for(self.graph.import_domains)


def integers(*values: int) -> gs.Constant:
    """Give an INT64 vector; vectors of the same values have the same name and are stored once."""
    return gs.Constant("int64." + "_".join(map(str, values)), np.array(values, np.int64))


def integer(value: int) -> gs.Constant:
    """Give an INT64 scalar."""
    return gs.Constant(f"int64.scalar.{value}", np.array(value, np.int64))


def redirect(old: gs.Tensor, new: gs.Tensor) -> None:
    """Let every consumer of one tensor take another in its place."""
    for node in list(old.outputs):
        for position, tensor in enumerate(node.inputs):
            if tensor is old:
                node.inputs[position] = new
