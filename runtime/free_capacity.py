"""A linear cache of any number of slots, for a session that needs no number in its shapes.

::

    before   attention_mask (B, 4096), past_key_values.* and present.* (B, K, 4096, D)
    after    attention_mask (B, capacity), past_key_values.* and present.* (B, K, capacity, D)

The linear graph says its capacity because TensorRT wants one. A cache that is only as long as its longest row needs
less memory.
"""

from __future__ import annotations

import onnx

from artifacts.contract import ATTENTION_MASK, WRITE_INDICES

CAPACITY = "capacity"
"""Name of the axis once it is free."""


def free_capacity(graph: onnx.GraphProto) -> None:
    """Name the axis in the cache, in and out, and in the attention mask; a graph of the other form stays as it is.

    Shapes inside the graph are left to infer. What counts slots there must not be computed any more: that is the mask,
    which `runtime.group_query_attention` needs no longer.
    """
    inputs = {value.name: value for value in graph.input}
    if WRITE_INDICES not in inputs:
        return
    capacity = inputs[ATTENTION_MASK].type.tensor_type.shape.dim[1].dim_value
    for value in [*graph.input, *graph.output]:
        axis = {2: 1, 4: 2}.get(len(value.type.tensor_type.shape.dim))
        if axis is not None:
            dim = value.type.tensor_type.shape.dim[axis]
            if dim.dim_value == capacity:
                dim.dim_param = CAPACITY
    del graph.value_info[:]
