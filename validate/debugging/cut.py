"""Where a sub-graph begins: at the nearest tensors that are compared, so that it holds one step and no more.

Works on protobufs; no weight is read.
"""

from __future__ import annotations

import difflib
from collections.abc import Collection, Iterable
from dataclasses import dataclass, replace

import onnx

from artifacts import names
from artifacts.config import ModelConfig
from artifacts.contract import KINDS, present_name
from artifacts.errors import StageError, refuse
from validate.layers.anatomy import parts


@dataclass(frozen=True)
class Cut:
    """A piece of a graph by the names of its borders.

    Attributes:
        title: what it is called, as a part of a file's name.
        inputs: where it begins: inputs of the graph, then tensors, in the graph's order.
        outputs: where it ends.
        stops: tensors that it may begin at.
        left_out: outputs that were asked for and that the graph and its twin do not both make.
    """

    title: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    stops: frozenset[str]
    left_out: tuple[str, ...] = ()

    def of(self, graph: onnx.GraphProto) -> Cut:
        """Give the piece of another graph with the same outputs: one that is wired otherwise begins elsewhere."""
        return replace(self, inputs=borders(graph, self.outputs, self.stops))


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
    if name not in cuttable(graph, bf16):
        raise _not_cuttable(graph, bf16, name)
    stops = {part.name for part in parts(config)} - {name}
    return _cut(name.replace("/", "~"), graph, bf16, (name,), stops)


def around_layer(graph: onnx.GraphProto, bf16: onnx.GraphProto, config: ModelConfig, layer: int) -> Cut:
    """Cut out one decoder layer with its part of the cache; arguments as for `around_tensor`.

    Raises:
        StageError: the model has no such layer, or the two graphs have no output of it in common.
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
    return _cut(f"layer.{layer}", graph, bf16, outputs, {before, names.MASK})


def _cut(
    title: str, graph: onnx.GraphProto, bf16: onnx.GraphProto, wanted: tuple[str, ...], stops: Collection[str]
) -> Cut:
    """Cut the FP32 twin; only what both graphs make is a border of a piece that is cut out of both."""
    known = cuttable(graph, bf16)
    outputs = tuple(name for name in wanted if name in known)
    if not outputs:
        raise _not_cuttable(graph, bf16, wanted[0])
    left_out = tuple(name for name in wanted if name not in known)
    return Cut(title, (), outputs, frozenset(stops).intersection(known), left_out).of(graph)


def _not_cuttable(graph: onnx.GraphProto, bf16: onnx.GraphProto, name: str) -> StageError:
    """Say which of the two graphs stands in the way of a piece, and what there is instead."""
    known, sides = cuttable(graph, bf16), {"the FP32 twin": graph, "the BF16 graph": bf16}
    makers = [side for side, one in sides.items() if name in producers(one)]
    given = {value.name: "an input, which no node makes" for value in graph.input}
    given |= {weight.name: "a weight, which no node makes" for weight in graph.initializer}
    found = (
        given.get(name, f"no tensor of the name {name}"),
        f"only {''.join(makers)} makes it",
        "at least one of the two makes it of weights alone",
    )
    near = difflib.get_close_matches(name, known, n=5, cutoff=0.4) or known[:5]
    return refuse(
        f"no piece can be cut out around {name!r}",
        expected="a tensor that both the BF16 graph and its FP32 twin make of their inputs: "
        f"one of {len(known)} names, such as {', '.join(near)}",
        found=found[len(makers)],
        remedy="give another TENSOR (--tensor), or the LAYER (--layer) that it is in",
    )


def unlike(twin: Cut, bf16: Cut) -> str:
    """Say in words that a piece of a graph and the same piece of its twin begin elsewhere; nothing if they do not."""
    if set(twin.inputs) == set(bf16.inputs):
        return ""
    ours, theirs = (
        ", ".join(name for name in one.inputs if name not in other.inputs) or "nothing else"
        for one, other in ((twin, bf16), (bf16, twin))
    )
    return (
        "The BF16 graph and its FP32 twin are wired differently: beside what both pieces begin at, "
        f"twin.onnx begins at {ours}, and bf16.onnx at {theirs}."
    )


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
