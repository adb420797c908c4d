"""The graph that a plan is made of: its signature, its data files, and how many bytes of weights it uses.

Only the graph's own few hundred KB are read. Places in the data file are checked here, so that a bad one gives one
clear message instead of TensorRT's list of asserts.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import onnx
from onnx import TensorProto

from artifacts.config import ModelConfig
from artifacts.contract import ATTENTION_MASK, Form, Precision, Signature, TensorSpec, signature
from artifacts.errors import Problem, StageError, refuse
from artifacts.external import external_problems, place, size
from artifacts.layout import ModelFolder

_TYPES = {
    Precision.BF16: TensorProto.BFLOAT16,
    Precision.FP32: TensorProto.FLOAT,
    Precision.INT64: TensorProto.INT64,
}


@dataclass(frozen=True)
class SourceGraph:
    """A fused graph as it lies on disk.

    Attributes:
        path: its file.
        form: which of the forms it is.
        signature: its inputs and outputs, which are the contract's.
        capacity: slots of the linear cache; None where the cache is concatenated.
        data_files: files beside it that hold its weights.
        weights: bytes of the initializers that its nodes use.
        initializers: how many they are.
    """

    path: Path
    form: Form
    signature: Signature
    capacity: int | None
    data_files: tuple[str, ...]
    weights: int
    initializers: int


def read_graph(folder: ModelFolder, form: Form, config: ModelConfig) -> SourceGraph:
    """Read and judge one graph.

    Raises:
        StageError: it is no ONNX file, its weights are not where it says, or its signature is not the contract's.
    """
    path = folder.graph(form)
    try:
        model = onnx.load(str(path), load_external_data=False)
    except Exception as error:  # protobuf's own exception class differs between its implementations
        raise refuse(f"{path} is not an ONNX graph", found=str(error), remedy=folder.command("surgery")) from None
    graph = model.graph
    used = {name for node in graph.node for name in node.input}
    tensors = [tensor for tensor in graph.initializer if tensor.name in used]
    capacity = _capacity(graph) if form.linear else None
    problems = external_problems(model, folder.onnx, folder.command("export"))
    contract = signature(config, form, capacity=capacity)
    problems += _judge_signature(path, graph, contract, folder.command("surgery"))
    if problems:
        raise StageError(problems)
    files = {place(tensor)[0] for tensor in tensors if tensor.data_location == TensorProto.EXTERNAL}
    weights = sum(size(tensor) for tensor in tensors)
    return SourceGraph(path, form, contract, capacity, tuple(sorted(files)), weights, len(tensors))


def _capacity(graph: onnx.GraphProto) -> int:
    """Read C off the mask's second axis; 0 where there is none, which no contract matches."""
    for value in graph.input:
        dims = value.type.tensor_type.shape.dim
        if value.name == ATTENTION_MASK and len(dims) > 1:
            return int(dims[1].dim_value)
    return 0


def _judge_signature(path: Path, graph: onnx.GraphProto, contract: Signature, remedy: str) -> Iterator[Problem]:
    for what, values, specs in (("inputs", graph.input, contract.inputs), ("outputs", graph.output, contract.outputs)):
        expected = {spec.name: _describe(spec) for spec in specs}
        found = {value.name: _describe_value(value) for value in values}
        for name in [name for name in {**expected, **found} if expected.get(name) != found.get(name)]:
            yield Problem(
                f"{path.name}: {name} among its {what} is not the contract's",
                expected.get(name, "no such tensor"),
                found.get(name, "no such tensor"),
                remedy,
            )


def _describe(spec: TensorSpec) -> str:
    return f"{TensorProto.DataType.Name(_TYPES[spec.precision])} ({', '.join(map(str, spec.axes))})"


def _describe_value(value: onnx.ValueInfoProto) -> str:
    tensor = value.type.tensor_type
    axes = [axis.dim_param or str(axis.dim_value) for axis in tensor.shape.dim]
    return f"{TensorProto.DataType.Name(tensor.elem_type)} ({', '.join(axes)})"
