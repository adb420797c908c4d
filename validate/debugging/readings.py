"""What each side makes of a sub-graph: ONNX Runtime of all its tensors, TensorRT's network of its outputs.

Both are written as Polygraphy writes its results, under the same names, so that its tools read them.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto

from runtime.session import Array
from validate.debugging.graphs import open_in_memory
from validate.layers.comparison import STEP

_FLOATS = (TensorProto.FLOAT, TensorProto.BFLOAT16)


def every_tensor(graph: Path, feeds: Mapping[str, Array]) -> dict[str, Array]:
    """Give every tensor that ONNX Runtime computes in an FP32 graph; BF16 ones, which numpy has not, are left out."""
    model = onnx.load(str(graph), load_external_data=False)
    known = {value.name: value for value in (*model.graph.value_info, *model.graph.output)}
    outputs = [known.get(name, onnx.ValueInfoProto(name=name)) for node in model.graph.node for name in node.output]
    readable = [value for value in outputs if value.type.tensor_type.elem_type != TensorProto.BFLOAT16]
    del model.graph.output[:]
    model.graph.output.extend(readable)
    session = open_in_memory(model, graph.parent)
    names = [value.name for value in readable]
    takes = {value.name for value in session.get_inputs()}
    results = session.run(names, {name: array for name, array in feeds.items() if name in takes})
    return dict(zip(names, results, strict=True))


def change_by_scores(graph: Path, feeds: Mapping[str, Array], query: str, output: str) -> Array:
    """Give the derivative of an attention's result with respect to a factor of its scores, at 1, by ONNX Runtime."""
    up, down = (
        every_tensor(graph, {**feeds, query: np.float32(factor) * feeds[query]})[output]
        for factor in (1 + STEP, 1 - STEP)
    )
    found: Array = (up - down) / np.float32(2 * STEP)
    return found


def with_aliases(values: Mapping[str, Array], graph: Path) -> dict[str, Array]:
    """Add the tensors that a BF16 graph has and its FP32 twin has not: those that a cast parts from a known one."""
    model = onnx.load(str(graph), load_external_data=False).graph
    types = {value.name: value.type.tensor_type.elem_type for value in (*model.value_info, *model.input, *model.output)}
    casts = [
        (node.input[0], node.output[0])
        for node in model.node
        if node.op_type == "Cast" and types.get(node.input[0]) in _FLOATS and types.get(node.output[0]) in _FLOATS
    ]
    found = dict(values)
    # Forth and back, because one cast's tensors may be known from the next cast's only.
    for left, right in (*casts, *reversed(casts)):
        if left in found:
            found.setdefault(right, found[left])
        elif right in found:
            found[left] = found[right]
    return found


def network_outputs(graph: Path, feeds: Mapping[str, Array]) -> dict[str, Array]:
    """Evaluate TensorRT's network of a graph on the CPU; BF16 inside, FP32 outside."""
    from validate.network.runner import NetworkRunner

    with NetworkRunner(graph) as runner:
        takes = runner.get_input_metadata(use_numpy_dtypes=False)
        return dict(runner.infer({name: feeds[name] for name in takes}))


def save_feeds(feeds: Mapping[str, Array], path: Path) -> None:
    """Write feeds of one call as `polygraphy run --save-inputs` does."""
    from polygraphy.json import save_json

    save_json([dict(feeds)], str(path))


def save_outputs(outputs: Mapping[str, Array], runner: str, path: Path) -> None:
    """Write outputs of one call as `polygraphy run --save-outputs` does."""
    from polygraphy.comparator import RunResults
    from polygraphy.comparator.struct import IterationResult
    from polygraphy.json import save_json

    results = RunResults()
    results.append((runner, [IterationResult(outputs=dict(outputs), runner_name=runner)]))
    save_json(results, str(path))
