"""Axes get the contract's names, and every one is compared with the contract on the way.

The exporter calls them s44, s53 or `s36 + s70`, and gives attention_mask a batch of its own.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from artifacts.contract import Axis, Signature
from artifacts.errors import Problem, StageError

if TYPE_CHECKING:
    import onnx_ir

REMEDY = "install the versions of constraints.txt; the exporter gives other axes than those that were tested"


def name_axes(graph: onnx_ir.Graph, form: Signature) -> None:
    """Rename every symbolic axis in the graph, and set those of inputs and outputs to the contract's.

    Raises:
        StageError: every axis that is symbolic where the contract has a number, or the reverse, or a symbol that
            stands for two axes of the contract.
    """
    import onnx_ir

    values = {str(value.name): value for value in (*graph.inputs, *graph.outputs)}
    known: dict[str, str] = {}
    problems = []
    for spec in form:
        shape = values[spec.name].shape
        found = tuple(shape) if shape is not None else ()
        if len(found) != len(spec.axes):
            problems.append(Problem(f"{spec.name} has another rank", str(spec.axes), str(shape), REMEDY))
            continue
        for axis, dimension in zip(spec.axes, found, strict=True):
            if not _agree(axis, dimension, known):
                problems.append(Problem(f"{spec.name} has another axis", str(axis), str(dimension), REMEDY))
    if problems:
        raise StageError(problems)
    for value in _all_values(graph):
        if value.shape is not None:
            value.shape = onnx_ir.Shape([_renamed(dimension, known) for dimension in value.shape])
    for spec in form:
        values[spec.name].shape = onnx_ir.Shape(spec.axes)


def _agree(axis: Axis, dimension: int | onnx_ir.SymbolicDim, known: dict[str, str]) -> bool:
    """Compare one axis, and remember what its symbol stands for."""
    if isinstance(axis, int) or isinstance(dimension, int):
        return axis == dimension
    symbol = str(dimension.value)
    return not symbol.isdigit() and known.setdefault(symbol, axis) == axis


def _renamed(dimension: int | onnx_ir.SymbolicDim, known: dict[str, str]) -> int | str | None:
    return dimension if isinstance(dimension, int) else known.get(str(dimension.value))


def _all_values(graph: onnx_ir.Graph) -> list[onnx_ir.Value]:
    return [*graph.inputs, *(output for node in graph for output in node.outputs)]
