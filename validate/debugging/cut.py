"""Where a sub-graph begins: at the nearest tensors that are compared, so that it holds one step and no more.

Works on protobufs; no weight is read.
"""

from __future__ import annotations

import difflib
from collections.abc import Collection, Iterable
from dataclasses import dataclass

import onnx

from artifacts import names
from artifacts.config import ModelConfig
from artifacts.contract import KINDS, present_name
from artifacts.errors import refuse
from validate.layers.anatomy import parts


@dataclass(frozen=True)
class Cut:
    """A piece of a graph by the names of its borders.

    Attributes:
        title: what it is called; also its folder's name.
        inputs: where it begins: inputs of the graph, then tensors, in the graph's order.
        outputs: where it ends.
    """

    title: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]


def around_tensor(graph: onnx.GraphProto, bf16: onnx.GraphProto, config: ModelConfig, name: str) -> Cut:
    """Cut out the nodes between a tensor and the nearest compared tensors before it.

    Args:
        graph: the FP32 twin, in which the borders are looked for.
        bf16: the graph that it is the twin of.
        config: the model's facts.
        name: the tensor.

    Raises:
        StageError: the two graphs do not both make a tensor of that name from what they are fed.
    """
    made, known = producers(graph).keys() | producers(bf16).keys(), cuttable(graph, bf16)
    if name not in known:
        near = difflib.get_close_matches(name, known, n=5, cutoff=0.4)
        reason = "only one of the two makes it, or of weights alone" if name in made else "no tensor of that name"
        raise refuse(
            f"no piece can be cut out around {name!r}",
            expected="a tensor that both the BF16 graph and its FP32 twin make of their inputs: "
            f"one of {len(known)} names, such as {', '.join(near or known[:5])}",
            found=reason,
            remedy="give another TENSOR (--tensor)",
        )
    stops = {part.name for part in parts(config)} - {name}
    return Cut(name.replace("/", "~"), borders(graph, [name], stops), (name,))


def around_layer(graph: onnx.GraphProto, config: ModelConfig, layer: int) -> Cut:
    """Cut out one decoder layer with its part of the cache.

    Raises:
        StageError: the model has no such layer.
    """
    if not 0 <= layer < config.num_hidden_layers:
        raise refuse(
            f"the model has no layer {layer}",
            expected=f"0 to {config.num_hidden_layers - 1}",
            found=str(layer),
            remedy="give another LAYER (--layer)",
        )
    before = names.layer(layer - 1) if layer else names.EMBEDDING
    outputs = (names.layer(layer), *(present_name(layer, kind) for kind in KINDS))
    return Cut(f"layer.{layer}", borders(graph, outputs, {before, names.MASK}), outputs)


def cuttable(graph: onnx.GraphProto, bf16: onnx.GraphProto) -> list[str]:
    """Name the tensors that a piece of both graphs can end in: both make them, and not of weights alone."""
    other = set(_fed(bf16))
    return [name for name in _fed(graph) if name in other]


def _fed(graph: onnx.GraphProto) -> list[str]:
    """Name what depends on an input of the graph, in its order; nodes are sorted, as ONNX demands."""
    fed = dict.fromkeys(value.name for value in graph.input)
    given = len(fed)
    for node in graph.node:
        if any(name in fed for name in node.input):
            fed.update(dict.fromkeys(name for name in node.output if name))
    return list(fed)[given:]


def producers(graph: onnx.GraphProto) -> dict[str, onnx.NodeProto]:
    """Give the node that makes each tensor."""
    return {name: node for node in graph.node for name in node.output if name}


def borders(graph: onnx.GraphProto, outputs: Collection[str], stops: Collection[str]) -> tuple[str, ...]:
    """Walk back from the outputs and give every stop and every input of the graph that is met.

    What depends on weights alone is no border: it belongs to the piece.
    """
    made, given = producers(graph), [value.name for value in graph.input]
    found, seen, waiting = set[str](), set[str](), list(outputs)
    while waiting:
        for source in made[waiting.pop()].input:
            if source in seen:
                continue
            seen.add(source)
            if source in given or (source in stops and source in made):
                found.add(source)
            elif source in made:
                waiting.append(source)
    ordered = [*given, *made]
    return tuple(name for name in ordered if name in found and name not in outputs)


def needed(graph: onnx.GraphProto, outputs: Iterable[str]) -> tuple[list[onnx.NodeProto], set[str]]:
    """Give the nodes that the outputs need, in their order, and the inputs of the graph that they need."""
    made, given = producers(graph), {value.name for value in graph.input}
    wanted, waiting = set[str](), list(outputs)
    while waiting:
        name = waiting.pop()
        if name and name not in wanted:
            wanted.add(name)
            waiting += made[name].input if name in made else []
    return [node for node in graph.node if wanted & set(node.output)], wanted & given
