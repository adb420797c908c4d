"""The FP32 twin computes what a BF16 graph says, in FP32, from the same data file.

For machines without BF16 arithmetic (ONNX Runtime's CPU provider has none)::

    before   weight(BF16) ──────────────► MatMul(BF16) ─► Cast(FP32) ─► Pow ─► …
    after    weight(BF16) ─► Cast(FP32) ─► MatMul(FP32) ──────────────► Pow ─► …

A weight keeps its BF16 bits and its place in the data file; ONNX Runtime folds the one Cast behind it while loading.
What only moves a weight's elements (the embedding's Gather, the tied head's Transpose) stays in BF16, before the Cast.
Measured with a table of 60,000 × 1024 (123 MB in BF16) that is embedding and head: 265 MB of private memory that way
(one FP32 copy), peak 533 MB; Cast before Transpose: 383 and 891 MB; Cast before Gather: 499 and 768 MB; 15 ms a token
in every form. Everything works on protobufs whose external data was not loaded.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

import numpy as np
import onnx
from onnx import TensorProto, helper

from artifacts.config import ModelConfig
from artifacts.names import FP32_SUFFIX

_MOVERS = ("Gather", "Transpose")
_BF16, _FP32 = TensorProto.BFLOAT16, TensorProto.FLOAT


def fp32_twin(
    model: onnx.ModelProto, config: ModelConfig, tables: Mapping[str, TensorProto] | None = None
) -> onnx.ModelProto:
    """Make the FP32 twin of a raw or fused BF16 graph; the graph that was given stays as it is.

    Every tensor that computes keeps its name. Casts that no longer change a type are gone; where such a Cast joined
    two names, the name of an input or output of the graph stays before a module's path, and that before `<path>/<Op>`.

    Args:
        model: a graph whose external data was not loaded; no value of it is read.
        config: the model's facts; the scale of the attention scores comes from it, because the graph holds BF16's
            version of it (0.01 % off at head_dim 128, which costs 1.1e-3 of 0.48 at head_dim 32).
        tables: FP32 initializers that take the place of BF16 ones, by the BF16 one's name (the rotary tables).

    Raises:
        ValueError: a tensor's type cannot be told, or an initializer of `tables` is not FP32.
    """
    twin = onnx.ModelProto()
    twin.CopyFrom(model)
    graph = twin.graph
    types = _element_types(twin)
    weights = _replace_initializers(graph, config, tables or {})
    nodes = list(_cast_weights(graph.node, weights))
    for node in nodes:
        _retype_attributes(node)
    nodes = _drop_idle_casts(nodes, types, {value.name for value in (*graph.input, *graph.output)})
    del graph.node[:]
    graph.node.extend(nodes)
    _retype_values(graph)
    return twin


def _element_types(model: onnx.ModelProto) -> dict[str, int]:
    """Give the element type of every tensor, as it was in the BF16 graph."""
    graph = model.graph
    values = (*graph.input, *graph.output, *graph.value_info)
    types = {value.name: value.type.tensor_type.elem_type for value in values}
    types |= {tensor.name: tensor.data_type for tensor in graph.initializer}
    if any(name and name not in types for node in graph.node for name in node.output):
        inferred = onnx.shape_inference.infer_shapes(model)
        types |= {value.name: value.type.tensor_type.elem_type for value in inferred.graph.value_info}
    return types


def _replace_initializers(
    graph: onnx.GraphProto, config: ModelConfig, tables: Mapping[str, TensorProto]
) -> frozenset[str]:
    """Put FP32 tables and scalars in place; give the names of the BF16 weights that stay in the data file."""
    renamed = {name: table.name for name, table in tables.items()}
    scales = _scale_names(graph, config)
    weights = set()
    for tensor in graph.initializer:
        if tensor.name in tables:
            table = tables[tensor.name]
            if table.data_type != _FP32 or table.dims != tensor.dims:
                raise ValueError(f"{table.name} cannot take the place of {tensor.name}: {table.dims}, {tensor.dims}")
            tensor.CopyFrom(table)
        elif tensor.data_type == _BF16 and tensor.data_location == TensorProto.EXTERNAL:
            weights.add(tensor.name)
        elif tensor.data_type == _BF16:
            _widen(tensor, scales.get(tensor.name))
    for node in graph.node:
        _rename(node.input, renamed)
    return frozenset(weights)


def _scale_names(graph: onnx.GraphProto, config: ModelConfig) -> dict[str, float]:
    """Find the scalars that are BF16's version of the score scale, or of its square root, and what they stand for."""
    scales = (config.scale, config.scale**0.5)
    factors = {name for node in graph.node if node.op_type == "Mul" for name in node.input}
    found: dict[str, float] = {}
    for tensor in graph.initializer:
        if tensor.name in factors and tensor.data_type == _BF16 and np.prod(tensor.dims) == 1:
            value = _values(tensor).item()
            near = [scale for scale in scales if abs(value - scale) <= scale * 2**-8]
            found.update((tensor.name, scale) for scale in near)
    return found


def _widen(tensor: TensorProto, value: float | None) -> None:
    """Make a BF16 tensor that lies in the graph an FP32 one: of `value`, or of its own values."""
    values = _values(tensor) if value is None else np.full(tuple(tensor.dims), value, np.float32)
    widened = onnx.numpy_helper.from_array(values, tensor.name)
    tensor.CopyFrom(widened)


def _values(tensor: TensorProto) -> np.ndarray[tuple[int, ...], np.dtype[np.float32]]:
    return onnx.numpy_helper.to_array(tensor).astype(np.float32)


def _cast_weights(nodes: Iterable[onnx.NodeProto], weights: frozenset[str]) -> Iterator[onnx.NodeProto]:
    """Yield the nodes in order, with one Cast behind each BF16 weight, or behind what moves its elements."""
    cast: set[str] = set()
    for node in nodes:
        if node.op_type in _MOVERS and node.input[0] in weights:
            name = node.output[0]
            node.output[0] = f"{name}/bf16"
            yield from (node, _to_fp32(node.output[0], name))
            continue
        for position, name in enumerate(node.input):
            if name in weights:
                node.input[position] = name + FP32_SUFFIX
                if name not in cast:
                    cast.add(name)
                    yield _to_fp32(name, name + FP32_SUFFIX)
        yield node


def _to_fp32(name: str, wide: str) -> onnx.NodeProto:
    return helper.make_node("Cast", [name], [wide], name=f"{wide}/Cast", to=_FP32)


def _retype_attributes(node: onnx.NodeProto) -> None:
    """Turn the BF16 that a node's attributes ask for into FP32."""
    for attribute in node.attribute:
        if attribute.type == onnx.AttributeProto.TENSOR and attribute.t.data_type == _BF16:
            _widen(attribute.t, None)
        elif attribute.name in ("to", "dtype", "output_dtype") and attribute.i == _BF16:
            attribute.i = _FP32


def _drop_idle_casts(nodes: list[onnx.NodeProto], types: Mapping[str, int], contract: set[str]) -> list[onnx.NodeProto]:
    """Take out every Cast from floating point to FP32 that the change of types left idle, and join its two names."""
    idle = [node for node in nodes if _is_idle(node, types)]
    joined: dict[str, str] = {}
    for node in idle:
        source = joined.get(node.input[0], node.input[0])
        kept, gone = sorted((source, node.output[0]), key=lambda name: (name not in contract, "/" in name))
        joined = {name: kept if known == gone else known for name, known in joined.items()} | {gone: kept}
    dropped = {id(node) for node in idle}
    rest = [node for node in nodes if id(node) not in dropped]
    for node in rest:
        _rename(node.input, joined)
        _rename(node.output, joined)
    return rest


def _is_idle(node: onnx.NodeProto, types: Mapping[str, int]) -> bool:
    if node.op_type != "Cast" or helper.get_node_attr_value(node, "to") != _FP32:
        return False
    name = node.input[0]
    if name.endswith("/bf16") or node.output[0].endswith(FP32_SUFFIX):
        return False
    if types.get(name, 0) == TensorProto.UNDEFINED:
        raise ValueError(f"the type of {name}, an input of the Cast {node.name}, cannot be told")
    return types[name] in (_BF16, _FP32)


def _rename(names: list[str], renamed: Mapping[str, str]) -> None:
    for position, name in enumerate(names):
        if name in renamed:
            names[position] = renamed[name]


def _retype_values(graph: onnx.GraphProto) -> None:
    """Say FP32 wherever the graph's inputs, outputs and known values said BF16; forget values that are gone."""
    made = {name for node in graph.node for name in node.output}
    known = [value for value in graph.value_info if value.name in made]
    for value in (*graph.input, *graph.output, *known):
        if value.type.tensor_type.elem_type == _BF16:
            value.type.tensor_type.elem_type = _FP32
    del graph.value_info[:]
    graph.value_info.extend(known)
