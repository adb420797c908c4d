"""The graph as ONNX Runtime runs it on a CPU: the file's, with a third of its nodes.

A decode step reads every weight once, and no operator can change that. What can be saved is the rest: 830 nodes of a
135M model, each of them some microseconds for arrays of 576 numbers; slots of the cache that nobody filled; a cache
joined anew for every token. The file keeps to standard operators; this is made of it when it is loaded, and reads no
weight.
"""

from __future__ import annotations

from pathlib import Path

import onnx
from onnx import helper

from runtime.group_query_attention import DOMAIN, group_query_attention
from runtime.in_place import in_place
from runtime.skip_normalization import skip_normalization


def host_graph(path: Path) -> bytes:
    """Give the FP32 twin of `model` or `model_linear`, made ready for a CPU.

    Args:
        path: the graph; the data files beside it are not read and must lie there when the graph is opened.

    Raises:
        StageError: it is not built as surgery builds it.
    """
    model = onnx.load(path, load_external_data=False)
    in_place(model.graph)
    group_query_attention(model.graph)
    skip_normalization(model.graph)
    _drop_unused(model.graph)
    model.opset_import.append(helper.make_opsetid(DOMAIN, 1))
    data: bytes = model.SerializeToString()
    return data


def _drop_unused(graph: onnx.GraphProto) -> None:
    """Leave out what no output needs, such as the mask."""
    needed = {value.name for value in graph.output}
    kept = []
    for node in reversed(graph.node):
        if needed.intersection(node.output):
            needed.update(node.input)
            kept.append(node)
    del graph.node[:]
    graph.node.extend(reversed(kept))
