"""The graph that a plan is made of: its signature, its data files, and how many bytes of weights it uses.

Only the graph's own few hundred KB are read. Places in the data file are checked here, so that a bad one gives one
clear message instead of TensorRT's list of asserts.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

import onnx
from onnx import TensorProto, helper

from artifacts.config import ModelConfig
from artifacts.contract import ATTENTION_MASK, Form, Precision, Signature, TensorSpec, signature
from artifacts.errors import Problem, StageError, refuse
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
        graph = onnx.load(str(path), load_external_data=False).graph
    except Exception as error:  # protobuf's own exception class differs between its implementations
        raise refuse(f"{path} is not an ONNX graph", found=str(error), remedy=folder.surgery_command) from None
    used = {name for node in graph.node for name in node.input}
    tensors = [tensor for tensor in graph.initializer if tensor.name in used]
    capacity = _capacity(graph) if form.linear else None
    problems = [*_judge_places(path, tensors, folder.export_command)]
    contract = signature(config, form, capacity=capacity)
    problems += _judge_signature(path, graph, contract, folder.surgery_command)
    if problems:
        raise StageError(problems)
    files = {_place(tensor)["location"] for tensor in tensors if tensor.data_location == TensorProto.EXTERNAL}
    weights = sum(_size(tensor) for tensor in tensors)
    return SourceGraph(path, form, contract, capacity, tuple(sorted(files)), weights, len(tensors))


def _capacity(graph: onnx.GraphProto) -> int:
    """Read C off the mask's second axis; 0 where there is none, which no contract matches."""
    for value in graph.input:
        dims = value.type.tensor_type.shape.dim
        if value.name == ATTENTION_MASK and len(dims) > 1:
            return int(dims[1].dim_value)
    return 0


def _place(tensor: onnx.TensorProto) -> Mapping[str, str]:
    return {entry.key: entry.value for entry in tensor.external_data}


def _size(tensor: onnx.TensorProto) -> int:
    """Bytes of a tensor's values, from its shape and type."""
    return int(math.prod(tensor.dims) * helper.tensor_dtype_to_np_dtype(tensor.data_type).itemsize)


def _judge_places(path: Path, tensors: Iterable[onnx.TensorProto], remedy: str) -> Iterator[Problem]:
    """Say of every external tensor whether its bytes are there; what is wrong with a whole file is said once."""
    told: set[str] = set()
    for tensor in tensors:
        if tensor.data_location == TensorProto.EXTERNAL:
            problem = _judge_place(path, tensor, remedy)
            if problem is not None and problem.what not in told:
                told.add(problem.what)
                yield problem


def _judge_place(path: Path, tensor: onnx.TensorProto, remedy: str) -> Problem | None:
    location = _place(tensor).get("location", "")
    file = path.parent / location
    if len(PurePosixPath(location).parts) != 1 or location == ".." or file.is_symlink():
        what = f"{path.name}: the weights of {tensor.name} lie outside the graph's folder"
        return Problem(what, "a plain file beside the graph", repr(location), remedy)
    if not file.is_file():
        return Problem(f"{path.name}: its data file {location} is missing", str(file), "no such file", remedy)
    return _judge_extent(path, tensor, file, remedy)


def _judge_extent(path: Path, tensor: onnx.TensorProto, file: Path, remedy: str) -> Problem | None:
    place, size = _place(tensor), file.stat().st_size
    try:
        offset, length = int(place.get("offset", "0")), int(place.get("length", str(_size(tensor))))
    except ValueError:
        offset, length = -1, -1
    if offset >= 0 and length == _size(tensor):
        end = offset + length
        if end <= size:
            return None
        what, found = f"{path.name}: its data file {file.name} ends before its weights do", f"{size} bytes"
        return Problem(what, f"{end} bytes or more, where {tensor.name} ends", found, remedy)
    expected = f"{_size(tensor)} bytes within the {size} bytes of {file.name}"
    found = f"offset {place.get('offset', '0')}, length {place.get('length', 'none')}"
    return Problem(f"{path.name}: the weights of {tensor.name} are not in the data file", expected, found, remedy)


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
