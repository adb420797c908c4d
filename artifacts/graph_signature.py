"""A graph on disk is held against the contract: every input and output by its name, element type and axes."""

from __future__ import annotations

from collections.abc import Iterator

import onnx
from onnx import TensorProto

from artifacts.contract import Precision, Signature, TensorSpec
from artifacts.errors import Problem

ELEMENT_TYPES = {
    Precision.BF16: TensorProto.BFLOAT16,
    Precision.FP32: TensorProto.FLOAT,
    Precision.INT64: TensorProto.INT64,
}
"""Element types as ONNX numbers them."""


def signature_problems(graph: onnx.GraphProto, contract: Signature, name: str, remedy: str) -> Iterator[Problem]:
    """Yield a problem for each input or output that is not the contract's, or one for all that stand in another order.

    Args:
        graph: the graph as it is.
        contract: what it should be.
        name: what the graph is called.
        remedy: the command that makes it again.
    """
    for what, values, specs in (("inputs", graph.input, contract.inputs), ("outputs", graph.output, contract.outputs)):
        expected = {spec.name: _expected(spec) for spec in specs}
        found = {value.name: _found(value) for value in values}
        wrong = [tensor for tensor in {**expected, **found} if expected.get(tensor) != found.get(tensor)]
        for tensor in wrong:
            right, actual = (side.get(tensor, "no such tensor") for side in (expected, found))
            yield Problem(f"{name}: {tensor} among its {what} is not the contract's", right, actual, remedy)
        if not wrong and [*expected] != [*found]:
            yield Problem(f"{name}: its {what} are in another order", ", ".join(expected), ", ".join(found), remedy)


def _expected(spec: TensorSpec) -> str:
    return _spelled(ELEMENT_TYPES[spec.precision], [str(axis) for axis in spec.axes])


def _found(value: onnx.ValueInfoProto) -> str:
    tensor = value.type.tensor_type
    axes = [axis.dim_param or (str(axis.dim_value) if axis.HasField("dim_value") else "?") for axis in tensor.shape.dim]
    return _spelled(tensor.elem_type, axes)


def _spelled(kind: int, axes: list[str]) -> str:
    return f"{TensorProto.DataType.Name(kind)} ({', '.join(axes)})"
