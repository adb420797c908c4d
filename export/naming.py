"""Tensors bear the dotted path of the module that made them (see `artifacts.names`), nodes their path and kind.

The value that leaves a module has the module's own path, every other one `<path>/<Op>`, numbered where there are more.
"""

from __future__ import annotations

import ast
from collections import Counter
from typing import TYPE_CHECKING

from artifacts.contract import Signature
from artifacts.errors import refuse

if TYPE_CHECKING:
    import onnx_ir

_SCOPES = "pkg.torch.onnx.name_scopes"


def rename_signature(graph: onnx_ir.Graph, form: Signature) -> None:
    """Give inputs and outputs the contract's names and order; weights, which are inputs for now, stay at the end.

    The exporter keeps the order of the contract: ids, mask, positions, then key and value of every layer.
    """
    inputs, outputs = len(form.inputs), len(form.outputs)
    if len(graph.inputs) < inputs or len(graph.outputs) != outputs:
        raise refuse(
            "the exporter gives another number of tensors",
            expected=f"{inputs} inputs, {outputs} outputs",
            found=f"{[value.name for value in graph.inputs]}, {[value.name for value in graph.outputs]}",
            remedy="install the versions of constraints.txt",
        )
    for value, spec in zip(graph.inputs, form.inputs, strict=False):
        value.name = spec.name
    for value, spec in zip(graph.outputs, form.outputs, strict=True):
        value.name = spec.name


def rename_values(graph: onnx_ir.Graph) -> None:
    """Name every node and every value that is not an input or output of the graph."""
    paths = {node: _path(node) for node in graph}
    leaving = Counter(paths[node] for node in graph if _leaves(node, paths))
    taken: Counter[str] = Counter()
    for node in graph:
        path = paths[node]
        name = _unique(f"{path}/{node.op_type}", taken)
        node.name = name
        for output in node.outputs:
            if not output.is_graph_output():
                output.name = path if _leaves(node, paths) and leaving[path] == 1 else name
    for value in tuple(graph.initializers.values()):
        users = value.uses()
        value.name = _unique(f"{paths[next(iter(users))[0]] if users else ''}/Constant", taken)


def forget_origin(model: onnx_ir.Model) -> None:
    """Remove the exporter's notes: stack traces, which name paths of this machine, and its own symbols."""
    for node in model.graph:
        node.metadata_props.clear()
        for output in node.outputs:
            output.metadata_props.clear()
    for value in (*model.graph.inputs, *model.graph.initializers.values()):
        value.metadata_props.clear()
    model.graph.metadata_props.clear()
    model.metadata_props.clear()
    model.graph.name = "smollm3"


def _path(node: onnx_ir.Node) -> str:
    """Give the dotted path of the module that a node belongs to; the last of its scopes is the node itself."""
    scopes = [str(scope) for scope in ast.literal_eval(node.metadata_props.get(_SCOPES, "['', '']"))]
    return scopes[-2] if not scopes[-2].startswith("_") else ""


def _leaves(node: onnx_ir.Node, paths: dict[onnx_ir.Node, str]) -> bool:
    """Whether a node's BF16 or FP32 output is used outside the node's module."""
    value = node.outputs[0]
    if value.is_graph_output() or value.dtype is None or not value.dtype.is_floating_point():
        return False
    return any(not _inside(paths[user], paths[node]) for user, _ in value.uses())


def _inside(path: str, module: str) -> bool:
    return path == module or path.startswith(f"{module}.") or not module


def _unique(name: str, taken: Counter[str]) -> str:
    taken[name] += 1
    return name if taken[name] == 1 else f"{name}_{taken[name] - 1}"
