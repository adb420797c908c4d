"""Weights are inputs of the graph while it is worked on, so that no pass can read, fold or copy them.

::

    before   q_proj.weight (out, in) ─► Transpose ─► MatMul        initializer, memory that nobody has written
    between  q_proj.weight (in, out) ─► MatMul                     input
    after    q_proj.weight (in, out) ─► MatMul                     initializer in model.onnx_data
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from artifacts import names
from artifacts.errors import Problem, StageError
from artifacts.layout import DATA_FILE
from artifacts.parameters import is_linear
from export.data_file import Slot

if TYPE_CHECKING:
    import onnx_ir

REMEDY = "install the versions of constraints.txt; the exporter writes another graph than the one that was tested"


def detach(graph: onnx_ir.Graph, slots: dict[str, Slot]) -> list[onnx_ir.Value]:
    """Turn every weight into an input of the shape that is stored.

    Args:
        graph: the traced graph.
        slots: the weights that there must be; a tied head goes by the embedding's name.

    Raises:
        StageError: weights that the graph lacks or that the plan lacks.
    """
    values = {_checkpoint_name(name, slots): value for name, value in graph.initializers.items() if "weight" in name}
    problems = [
        Problem(f"weight {name} is {where}", "the same weights in graph and plan", name, REMEDY)
        for where, missing in (("not in the graph", slots.keys() - values), ("unknown", values.keys() - slots.keys()))
        for name in sorted(missing)
    ]
    if problems:
        raise StageError(problems)
    return [_detach(graph, value, slots[name]) for name, value in values.items()]


def attach(graph: onnx_ir.Graph, weights: list[onnx_ir.Value], slots: dict[str, Slot]) -> None:
    """Turn the inputs back into initializers that lie in `model.onnx_data`."""
    import onnx_ir

    for value in weights:
        graph.inputs.remove(value)
        slot = slots[str(value.name)]
        value.const_value = onnx_ir.ExternalTensor(
            DATA_FILE,
            slot.offset,
            slot.length,
            onnx_ir.DataType.BFLOAT16,
            shape=onnx_ir.Shape(slot.shape),
            name=slot.name,
        )
        graph.register_initializer(value)


def _checkpoint_name(name: str, slots: dict[str, Slot]) -> str:
    return names.EMBEDDING_WEIGHT if name == names.HEAD_WEIGHT and name not in slots else name


def _detach(graph: onnx_ir.Graph, value: onnx_ir.Value, slot: Slot) -> onnx_ir.Value:
    import onnx_ir

    del graph.initializers[str(value.name)]
    weight = onnx_ir.Value(
        name=slot.name, shape=onnx_ir.Shape(slot.shape), type=onnx_ir.TensorType(onnx_ir.DataType.BFLOAT16)
    )
    graph.inputs.append(weight)
    if is_linear(slot.name):
        for transpose, _ in tuple(value.uses()):
            if transpose.op_type != "Transpose":
                raise StageError(Problem(f"{slot.name} is used by {transpose.op_type}", "Transpose", "", REMEDY))
            transpose.outputs[0].replace_all_uses_with(weight)
            graph.remove(transpose, safe=True)
    value.replace_all_uses_with(weight)
    return weight
