"""A sum and the norm behind it become one `SkipSimplifiedLayerNormalization`.

::

    before   stream, x ─► Add ─┬─► RMSNormalization ─► y
                               └─► the next stream
    after    stream, x ─► SkipSimplifiedLayerNormalization ─► y, the next stream

ONNX Runtime's own operator, for graphs in its memory only. Two matches in each layer but one: the first layer's first
norm takes the embeddings, and the last norm only one position of the last sum.
"""

from __future__ import annotations

import onnx
from onnx import NodeProto, helper

from artifacts.contract import KINDS
from artifacts.errors import refuse
from runtime.group_query_attention import DOMAIN


def skip_normalization(graph: onnx.GraphProto) -> None:
    """Fuse every norm of a sum.

    Raises:
        StageError: there are more or fewer than a graph of surgery's has.
    """
    sums = {node.output[0]: node for node in graph.node if node.op_type == "Add"}
    norms = [node for node in graph.node if node.op_type == "RMSNormalization" and node.input[0] in sums]
    expected = len(graph.output) - 2
    if len(norms) != expected:
        raise refuse(
            "the graph's norms are in places of their own",
            expected=f"{expected} of {len(graph.output) // len(KINDS)} layers behind a sum",
            found=f"{len(norms)}",
            remedy="make the graphs again (make surgery)",
        )
    fused = {norm.output[0]: _fuse(sums[norm.input[0]], norm) for norm in norms}
    gone = {norm.input[0] for norm in norms}
    nodes = [fused.get(node.output[0], node) for node in graph.node if node.output[0] not in gone]
    del graph.node[:]
    graph.node.extend(nodes)


def _fuse(total: NodeProto, norm: NodeProto) -> NodeProto:
    epsilon = next(attribute.f for attribute in norm.attribute if attribute.name == "epsilon")
    return helper.make_node(
        "SkipSimplifiedLayerNormalization",
        [*total.input, norm.input[1]],
        [norm.output[0], "", "", total.output[0]],
        norm.output[0],
        domain=DOMAIN,
        epsilon=epsilon,
    )
