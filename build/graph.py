"""The graph that a plan is made of: its signature, its data files, and how many bytes of weights it uses.

Only the graph's own few hundred KB are read. Places in the data file are checked here, so that a bad one gives one
clear message instead of TensorRT's list of asserts.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import onnx
from onnx import TensorProto

from artifacts.config import ModelConfig
from artifacts.contract import ATTENTION_MASK, Form, Signature, signature
from artifacts.errors import StageError, refuse
from artifacts.external import external_problems, place, size
from artifacts.graph_signature import signature_problems
from artifacts.layout import ModelFolder


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
    problems += signature_problems(graph, contract, path.name, folder.command("surgery"))
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
