"""Everything between a layer's norm and its output projection becomes one product and one `GroupQueryAttention`.

::

    before   x ─► MatMul q ─► Reshape ─► Transpose ─► RotaryEmbedding ─► Mul scale ─► Attention ─► Transpose ─► Reshape
             x ─► MatMul k ─► Reshape ─► Transpose ─► RotaryEmbedding ─► Concat, TensorScatter ─┤
             x ─► MatMul v ─► Reshape ─► Transpose ─► Concat, TensorScatter ────────────────────┤
             attention_mask ─► … ───────────────────────────────────────────────────────────────┘
    after    x ─► MatMul (q | k | v) ─► GroupQueryAttention (past, tables, how many tokens each row holds)

ONNX Runtime's own operator, for graphs in its memory only. It rotates (but not in a NoPE layer), writes the cache where
it lies (see `runtime.in_place`), and looks at no empty slot. Instead of the mask it is told where a row ends: **a row's
tokens lie in its first slots, without holes**, which is how `runtime.linear_cache` keeps them. The weights of q, k and
v are joined by ONNX Runtime when it loads the graph; they are read once, into place, as they were before.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np
import onnx
from onnx import NodeProto, TensorProto, helper, numpy_helper

from artifacts.contract import INPUT_IDS, KINDS, WRITE_INDICES, past_name, present_name
from artifacts.errors import refuse
from artifacts.names import ATTENTION, O_PROJ, layer

DOMAIN = "com.microsoft"
ENDS, LAST, LONGEST = "cache.ends", "cache.last", "cache.longest"
"""INT32: tokens of each row after the step (B), one less (B), and the most of them (1)."""
WIDTHS = 16
"""What the operator wants head_dim to be a multiple of."""
QKV_PROJ = "self_attn.qkv_proj"
_ENDS_64, _NEW, _ONE = "cache.ends.int64", "cache.new", "cache.one"

Makers = Mapping[str, NodeProto]
"""The node that makes a tensor, by the tensor's name."""


@dataclass(frozen=True)
class Layer:
    """One layer's attention.

    Attributes:
        index: its number.
        products: q, k and v, (B, S, H·D), (B, S, K·D) and (B, S, K·D), from one input.
        weights: of these, BF16, (in, H·D), (in, K·D) and (in, K·D).
        heads: H and K.
        rotation: what rotates q; none in a NoPE layer.
        scale: factor of the scores.
        result: (B, S, H·D), which the output projection takes.
    """

    index: int
    products: tuple[NodeProto, NodeProto, NodeProto]
    weights: list[str]
    heads: tuple[int, int]
    rotation: NodeProto | None
    scale: float
    result: str


def group_query_attention(graph: onnx.GraphProto) -> None:
    """Fuse every layer; what is not used any more is left in the graph.

    Raises:
        StageError: a layer's attention is made in another way than surgery makes it, or its heads are of no width that
            the operator takes.
    """
    makers = {output: node for node in graph.node for output in node.output}
    constants = {tensor.name: tensor for tensor in graph.initializer}
    cache = next(value for value in graph.input if value.name == past_name(0, KINDS[0]))
    width = cache.type.tensor_type.shape.dim[3].dim_value
    if width % WIDTHS:
        raise refuse(
            "ONNX Runtime's CPU operator takes no heads of this width",
            expected=f"head_dim a multiple of {WIDTHS}",
            found=str(width),
            remedy="run a plan (--plan)",
        )
    count = len(graph.output) // len(KINDS)
    layers = {found.result: found for found in (_match(makers, constants, index, width) for index in range(count))}
    presents = {present_name(index, kind) for index in range(count) for kind in KINDS}
    nodes = [*_lengths(graph)]
    for node in graph.node:
        if node.output[0] in layers:
            nodes += _rewrite(layers[node.output[0]])
        elif node.output[0] not in presents:
            nodes.append(node)
    del graph.node[:]
    graph.node.extend(nodes)


def _match(makers: Makers, constants: Mapping[str, TensorProto], index: int, width: int) -> Layer:
    """Take one layer's attention apart, from its output projection back; heads are `width` wide."""
    result = makers[layer(index, O_PROJ)].input[0]
    *_, attention = _back(makers, result, "Reshape", "Transpose", "Attention")
    (scaled,) = _back(makers, attention.input[0], "Mul")
    rotates = makers[scaled.input[0]].op_type == "RotaryEmbedding"
    steps = (*(["RotaryEmbedding"] if rotates else []), "Transpose", "Reshape", "MatMul")
    q = _back(makers, scaled.input[0], *steps)
    keys, values = (makers[present_name(index, kind)] for kind in KINDS)
    k = _back(makers, keys.input[1], *steps)
    v = _back(makers, values.input[1], "Transpose", "Reshape", "MatMul")
    products = (q[-1], k[-1], v[-1])
    weights = [_back(makers, product.input[1], "Cast")[0].input[0] for product in products]
    heads = (constants[weights[0]].dims[1] // width, constants[weights[1]].dims[1] // width)
    scale = numpy_helper.to_array(constants[scaled.input[1]]).item()
    return Layer(index, products, weights, heads, q[0] if rotates else None, scale, result)


def _back(makers: Makers, tensor: str, *kinds: str) -> list[NodeProto]:
    """Follow a tensor back through the first inputs of nodes, which must be of these kinds."""
    nodes: list[NodeProto] = []
    name = tensor
    for kind in kinds:
        node = makers.get(name)
        if node is None or node.op_type != kind:
            raise refuse(
                f"{tensor} is made in a way of its own",
                expected=" of ".join(kinds),
                found=" of ".join([*(known.op_type for known in nodes), node.op_type if node else name]),
                remedy="make the graphs again (make surgery)",
            )
        nodes.append(node)
        name = node.input[0]
    return nodes


def _lengths(graph: onnx.GraphProto) -> Iterator[NodeProto]:
    """Yield what counts the tokens of each row."""
    graph.initializer.append(numpy_helper.from_array(np.array([1], np.int32), _ONE))
    yield helper.make_node("Shape", [INPUT_IDS], [_NEW], start=1, end=2)
    yield helper.make_node("Add", [WRITE_INDICES, _NEW], [_ENDS_64])
    yield helper.make_node("Cast", [_ENDS_64], [ENDS], to=TensorProto.INT32)
    yield helper.make_node("Sub", [ENDS, _ONE], [LAST])
    yield helper.make_node("ReduceMax", [ENDS], [LONGEST], keepdims=1)


def _rewrite(found: Layer) -> Iterator[NodeProto]:
    """Yield the joined weights, their product and the attention."""
    path = layer(found.index, QKV_PROJ)
    weight, wide = f"{path}.weight", f"{path}.weight.fp32"
    past, present = ([name(found.index, kind) for kind in KINDS] for name in (past_name, present_name))
    tables = found.rotation.input[1:] if found.rotation else []
    yield helper.make_node("Concat", found.weights, [weight], axis=1)
    yield helper.make_node("Cast", [weight], [wide], to=TensorProto.FLOAT)
    yield helper.make_node("MatMul", [found.products[0].input[0], wide], [path], path)
    yield helper.make_node(
        "GroupQueryAttention",
        [path, "", "", *past, LAST, LONGEST, *tables],
        [found.result, *present],
        layer(found.index, ATTENTION),
        domain=DOMAIN,
        num_heads=found.heads[0],
        kv_num_heads=found.heads[1],
        scale=found.scale,
        do_rotary=int(found.rotation is not None),
    )
