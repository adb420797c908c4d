"""A sub-graph that stands alone: cut by Polygraphy, with fixed shapes and with its own weights in it.

`polygraphy surgeon extract` reads every weight of the model (6.5 GB and half a minute for the 3B one). Here the same
loader cuts the graph without its data, and only the weights of what is left are read.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper
from onnx.external_data_helper import load_external_data_for_tensor, uses_external_data

from artifacts.backend import Backend, load
from runtime.session import Array
from validate.debugging.cut import Cut

BORDER = "/bf16"
"""What a border tensor's name gets inside a graph that is FP32 outside and BF16 inside."""

_BF16, _FP32 = TensorProto.BFLOAT16, TensorProto.FLOAT
_FOLDED = ("Cast", "Transpose")


def extract(model: onnx.ModelProto, data_folder: Path, cut: Cut, values: Mapping[str, Array]) -> onnx.ModelProto:
    """Cut a piece out of a graph and put its weights into it.

    Args:
        model: the whole graph, external data not loaded.
        data_folder: where its data files lie.
        cut: the piece.
        values: an array for each of its inputs; their shapes become the piece's.
    """
    load(Backend.preferred())
    from polygraphy.backend.onnx import extract_subgraph
    from polygraphy.common import TensorMetadata

    inputs, outputs = TensorMetadata(), TensorMetadata()
    for name in cut.inputs:
        inputs.add(name, None, values[name].shape)
    for name in cut.outputs:
        outputs.add(name, None, None)
    piece: onnx.ModelProto = extract_subgraph(model, inputs, outputs, check_meta=False)
    del piece.graph.value_info[:]
    for value in piece.graph.output:
        value.type.tensor_type.ClearField("shape")
    fold_weights(piece.graph, data_folder)
    return onnx.shape_inference.infer_shapes(piece, data_prop=True)


def fold_weights(graph: onnx.GraphProto, data_folder: Path) -> None:
    """Read the weights, and compute at once what only casts or transposes one: then every node depends on an input."""
    for tensor in graph.initializer:
        if uses_external_data(tensor):
            load_external_data_for_tensor(tensor, str(data_folder))
            tensor.ClearField("external_data")
            tensor.data_location = TensorProto.DEFAULT
    constants = {tensor.name: tensor for tensor in graph.initializer}
    nodes = []
    for node in graph.node:
        if node.op_type in _FOLDED and node.input[0] in constants:
            constants[node.output[0]] = _folded(node, constants[node.input[0]])
        else:
            nodes.append(node)
    used = {name for node in nodes for name in node.input}
    kept = [tensor for name, tensor in constants.items() if name in used]
    _replace(graph, nodes, kept)


def _folded(node: onnx.NodeProto, tensor: onnx.TensorProto) -> onnx.TensorProto:
    array = numpy_helper.to_array(tensor)
    if node.op_type == "Cast":
        array = array.astype(helper.tensor_dtype_to_np_dtype(helper.get_node_attr_value(node, "to")))
    else:
        permutation = {attribute.name: attribute.ints for attribute in node.attribute}.get("perm")
        array = np.transpose(array, permutation)
    return numpy_helper.from_array(np.ascontiguousarray(array), node.output[0])


def _replace(graph: onnx.GraphProto, nodes: Sequence[onnx.NodeProto], weights: Sequence[onnx.TensorProto]) -> None:
    new = onnx.GraphProto()
    new.node.extend(nodes)
    new.initializer.extend(weights)
    del graph.node[:], graph.initializer[:]
    graph.MergeFrom(new)


def fp32_border(model: onnx.ModelProto) -> onnx.ModelProto:
    """Make every BF16 input and output FP32 and cast inside, because Polygraphy knows no BF16 arrays.

    ::

        before   x (BF16) ─► MatMul ─► y (BF16)
        after    x (FP32) ─► Cast ─► x/bf16 ─► MatMul ─► y/bf16 ─► Cast ─► y (FP32)

    Values that were rounded to BF16 before lose nothing in the first Cast, and none does in the second.
    """
    graph = model.graph
    bordering = [value for value in (*graph.input, *graph.output) if value.type.tensor_type.elem_type == _BF16]
    renamed = {value.name: value.name + BORDER for value in bordering}
    nodes = list(graph.node)
    for node in nodes:
        node.input[:] = [renamed.get(name, name) for name in node.input]
        node.output[:] = [renamed.get(name, name) for name in node.output]
    given = {value.name for value in graph.input}
    for value in bordering:
        value.type.tensor_type.elem_type = _FP32
    before = [_cast(name, name + BORDER, _BF16) for name in renamed if name in given]
    after = [_cast(name + BORDER, name, _FP32) for name in renamed if name not in given]
    _replace(graph, [*before, *nodes, *after], list(graph.initializer))
    del graph.value_info[:]
    return onnx.shape_inference.infer_shapes(model, data_prop=True)


def _cast(source: str, target: str, kind: int) -> onnx.NodeProto:
    return helper.make_node("Cast", [source], [target], name=f"{target}/Cast", to=kind)


def last_position(model: onnx.ModelProto, output: str, shape: Sequence[int]) -> None:
    """Keep the last position of an output that gives every position, where the other graph gives only that one."""
    graph = model.graph
    value = next(value for value in graph.output if value.name == output)
    length = value.type.tensor_type.shape.dim[1].dim_value if len(shape) > 1 else 0
    if len(shape) != 3 or shape[1] != 1 or length == 1:
        return
    for node in graph.node:
        node.output[:] = [f"{name}/all" if name == output else name for name in node.output]
        node.input[:] = [f"{name}/all" if name == output else name for name in node.input]
    graph.initializer.append(numpy_helper.from_array(np.array([length - 1]), f"{output}/last"))
    graph.node.append(
        helper.make_node("Gather", [f"{output}/all", f"{output}/last"], [output], name=f"{output}/Gather", axis=1)
    )
    value.type.tensor_type.shape.dim[1].dim_value = 1


def save(model: onnx.ModelProto, path: Path) -> None:
    """Write a graph and, beside it, its weights in one file that is named after it."""
    data = path.with_suffix(".onnx_data")
    onnx.save_model(model, str(path), save_as_external_data=True, location=data.name)
    if data.exists():
        data.chmod(path.stat().st_mode)  # onnx makes it for the owner alone, and the folder is there to be handed on
