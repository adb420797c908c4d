"""A linear cache of any number of slots, for a session that needs no number in its shapes.

::

    before   attention_mask (B, 4096) …  Range(0, 4096, 1) ─► mask
    after    attention_mask (B, capacity) …  Range(0, Shape(attention_mask)[1], 1) ─► mask

The linear graph says its capacity because TensorRT wants one. Attention over empty slots takes as long as over full
ones, so a cache that is only as long as its longest row is worth having: at 8 rows of a 135M model a step over 256
slots takes a third of one over 2,048.
"""

from __future__ import annotations

from pathlib import Path

import onnx
from onnx import helper, numpy_helper

from artifacts.contract import ATTENTION_MASK, WRITE_INDICES
from artifacts.errors import refuse
from artifacts.names import MASK

CAPACITY = "capacity"
"""Name of the axis once it is free."""


def with_free_capacity(path: Path) -> bytes:
    """Give a graph with its linear cache's capacity made free; a graph without one is given as it is.

    The data files are not read; they must lie where they did when the graph is opened.

    Raises:
        StageError: the mask is not made from the capacity as surgery makes it.
    """
    data = path.read_bytes()
    model = onnx.load_model_from_string(data)
    inputs = {value.name: value for value in model.graph.input}
    if WRITE_INDICES not in inputs:
        return data
    capacity = inputs[ATTENTION_MASK].type.tensor_type.shape.dim[1].dim_value
    _free_shapes(model.graph, capacity)
    _free_mask(model.graph, capacity, path)
    freed: bytes = model.SerializeToString()
    return freed


def _free_shapes(graph: onnx.GraphProto, capacity: int) -> None:
    """Name the axis in the cache, in and out, and in the attention mask; shapes inside the graph are left to infer."""
    for value in [*graph.input, *graph.output]:
        axis = {2: 1, 4: 2}.get(len(value.type.tensor_type.shape.dim))
        if axis is not None:
            dim = value.type.tensor_type.shape.dim[axis]
            if dim.dim_value == capacity:
                dim.dim_param = CAPACITY
    del graph.value_info[:]


def _free_mask(graph: onnx.GraphProto, capacity: int, path: Path) -> None:
    """Let the mask's slots be counted from the attention mask instead of to a number."""
    numbers = {tensor.name for tensor in graph.initializer if _is_scalar(tensor, capacity)}
    numbers |= {
        node.output[0]
        for node in graph.node
        if node.op_type == "Constant" and _is_scalar(node.attribute[0].t, capacity)
    }
    ranges = [node for node in graph.node if node.op_type == "Range" and node.input[1] in numbers]
    if len(ranges) != 1:
        raise refuse(
            f"{path} makes its mask in a way of its own",
            expected=f"one Range up to the capacity, {capacity}",
            found=f"{len(ranges)}",
            remedy="make the graphs again (make surgery)",
        )
    length, scalar = f"{MASK}/capacity", f"{MASK}/capacity.scalar"
    ranges[0].input[1] = scalar
    graph.node.insert(0, helper.make_node("Shape", [ATTENTION_MASK], [length], name=length, start=1, end=2))
    graph.node.insert(1, helper.make_node("Squeeze", [length], [scalar], name=scalar))


def _is_scalar(tensor: onnx.TensorProto, value: int) -> bool:
    """Whether a tensor is one INT64 number without axes; tensors outside the graph are not looked at."""
    if tensor.data_type != onnx.TensorProto.INT64 or tensor.dims or tensor.data_location == onnx.TensorProto.EXTERNAL:
        return False
    return int(numpy_helper.to_array(tensor)) == value
