"""Small graphs of one operator or a few, sent through TensorRT's real parser and, beside it, ONNX Runtime."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import onnx
import torch
from numpy.typing import NDArray
from onnx import TensorProto, helper

from artifacts.contract import OPSET
from validate.network import Program, load_program
from validate.network.arrays import to_array, to_tensor

Array = NDArray[Any]
NAMES = {
    np.dtype(np.float32): TensorProto.FLOAT,
    np.dtype(np.int64): TensorProto.INT64,
    np.dtype(np.int32): TensorProto.INT32,
    np.dtype(np.bool_): TensorProto.BOOL,
    np.dtype(np.int8): TensorProto.INT8,
    np.dtype(ml_dtypes.bfloat16): TensorProto.BFLOAT16,
}


def node(kind: str, inputs: str, outputs: str = "y", **attributes: Any) -> onnx.NodeProto:
    """Make a node; names are separated by spaces, `-` is an absent input."""
    names = ["" if name == "-" else name for name in inputs.split()]
    return helper.make_node(kind, names, outputs.split(), name=f"the {kind}", **attributes)


def model(
    nodes: onnx.NodeProto | Sequence[onnx.NodeProto],
    feeds: Mapping[str, Array],
    constants: Mapping[str, Array | onnx.TensorProto] | None = None,
    fixed: str = "",
) -> onnx.ModelProto:
    """Make a graph; every axis of an input is dynamic, unless its name is in `fixed`. What nobody uses is an output."""
    steps = [nodes] if isinstance(nodes, onnx.NodeProto) else list(nodes)
    inputs = [
        helper.make_tensor_value_info(
            name,
            NAMES[array.dtype],
            list(array.shape) if name in fixed.split() else [f"{name}{axis}" for axis in range(array.ndim)],
        )
        for name, array in feeds.items()
    ]
    used = {name for step in steps for name in step.input}
    stored = [
        value if isinstance(value, onnx.TensorProto) else tensor(name, value)
        for name, value in (constants or {}).items()
    ]
    graph = helper.make_graph(steps, "one", inputs, [], stored)
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", OPSET)], ir_version=11)
    for info in onnx.shape_inference.infer_shapes(made).graph.value_info:
        if info.name not in used:
            made.graph.output.append(info)
    return made


def tensor(name: str, array: Array) -> onnx.TensorProto:
    """Make an initializer; BF16 arrays are those of ml_dtypes."""
    return helper.make_tensor(name, NAMES[array.dtype], array.shape, array.tobytes(), raw=True)


def packed(name: str, kind: int, shape: Sequence[int], data: bytes) -> onnx.TensorProto:
    """Make an initializer of a type that numpy does not have, from its bytes."""
    return helper.make_tensor(name, kind, shape, data, raw=True)


def program(folder: Path, graph: onnx.ModelProto) -> Program:
    """Save a graph and compile what TensorRT makes of it."""
    path = folder / "one.onnx"
    onnx.save(graph, path)
    return load_program(path)


def evaluate(folder: Path, graph: onnx.ModelProto, feeds: Mapping[str, Array]) -> dict[str, torch.Tensor]:
    """Evaluate what TensorRT makes of a graph; the feeds are left as they are."""
    made = program(folder, graph)
    return made.run({name: to_tensor(array.copy()) for name, array in feeds.items()})


def onnxruntime_says(graph: onnx.ModelProto, feeds: Mapping[str, Array]) -> dict[str, Array]:
    """Run a graph in ONNX Runtime, unoptimized: its fusion of an INT8 dequantization is off by 0.2 % in itself."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    session = onnxruntime.InferenceSession(graph.SerializeToString(), options, providers=["CPUExecutionProvider"])
    names = [output.name for output in session.get_outputs()]
    return dict(zip(names, session.run(names, dict(feeds)), strict=True))


def largest_difference(folder: Path, graph: onnx.ModelProto, feeds: Mapping[str, Array]) -> float:
    """Give the largest difference from ONNX Runtime's outputs, over the largest magnitude or 1.

    Types and shapes must be the same, and NaN and infinities must stand in the same places.
    """
    expected, worst = onnxruntime_says(graph, feeds), 0.0
    for name, found in evaluate(folder, graph, feeds).items():
        array, right = to_array(found), expected[name]
        assert (array.dtype, array.shape) == (right.dtype, right.shape)
        finite = np.isfinite(right) if right.dtype.kind == "f" else np.ones(right.shape, bool)
        assert np.array_equal(array[~finite], right[~finite], equal_nan=True)
        if finite.any():
            wide, exact = array[finite].astype(float), right[finite].astype(float)
            worst = max(worst, float(np.abs(wide - exact).max() / max(1.0, np.abs(exact).max())))
    return worst
