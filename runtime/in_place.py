"""The cache of a graph on a CPU: rows of slots, written in place. The files' two forms both become it.

::

               attention_mask   past_key_values.*    present.*                write_indices
    model      (B, past + S)    (B, K, past, D)      (B, K, past + S, D)      none
    …_linear   (B, 4096)        (B, K, 4096, D)      (B, K, 4096, D)          (B)
    after      (B, capacity)    (B, K, capacity, D)  (B, K, capacity, D)      (B)

The operator that reads and writes the cache here (`runtime.group_query_attention`) is told where each row ends and
needs no other length: a cache that grows is not joined anew each step, and one with a capacity is only as long as its
longest row. The files say what they say because TensorRT wants the one or the other.
"""

from __future__ import annotations

import onnx
from onnx import TensorProto, helper

from artifacts.contract import ATTENTION_MASK, WRITE_INDICES

CAPACITY = "capacity"
"""Name of the slots' axis in what is read and in what is written."""
_SLOTS = {2: 1, 4: 2}
"""The slots' axis by the number of axes: of the mask, and of the cache."""


def in_place(graph: onnx.GraphProto) -> None:
    """Name the slots' axis in mask and cache, in and out, and take in where each row's new tokens go.

    Shapes inside the graph are left to infer. What counts slots there must not be computed any more: that is the mask.
    """
    inputs = {value.name: value for value in graph.input}
    rows = inputs[ATTENTION_MASK].type.tensor_type.shape.dim[0].dim_param
    if WRITE_INDICES not in inputs:
        graph.input.append(helper.make_tensor_value_info(WRITE_INDICES, TensorProto.INT64, [rows]))
    cache = [value for value in [*graph.input, *graph.output] if len(value.type.tensor_type.shape.dim) == max(_SLOTS)]
    for value in [inputs[ATTENTION_MASK], *cache]:
        axes = value.type.tensor_type.shape.dim
        axes[_SLOTS[len(axes)]].Clear()
        axes[_SLOTS[len(axes)]].dim_param = CAPACITY
    del graph.value_info[:]
