"""What BF16 noise would hide in graphs that are not compared block by block, read off the graphs themselves.

`model.onnx` is compared block by block (`validate.layers`), and every FP32 twin with PyTorch. The other BF16 graphs,
`model_linear.onnx` (which `serve` wants a plan of) and `model_all.onnx`, are evaluated, and their results are judged by
finiteness alone. So every node of theirs must be one of these::

    what their form makes otherwise (mask, cache, last position)    as their own FP32 twin has it
    everything else                                                 as model.onnx has it

What a form makes otherwise is told by the twins: it is what differs between the form's twin and `model_fp32.onnx`.
And every BF16 graph rotates by its twin's tables, rounded: in all rows, also those that no call reaches.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import onnx
from onnx import numpy_helper

from artifacts.contract import Form
from artifacts.layout import ModelFolder
from artifacts.names import FP32_SUFFIX
from runtime.session import Array

JUDGED = Form.MODEL
FORMS = (JUDGED, Form.MODEL_LINEAR, Form.MODEL_ALL)

Node = tuple[str, str, tuple[str, ...], tuple[bytes, ...]]
"""Operator, domain, inputs, attributes."""


@dataclass(frozen=True)
class Kinship:
    """How one BF16 graph stands to the graphs that are judged.

    Attributes:
        form: the graph.
        nodes: nodes that were found in a judged graph; of `model.onnx`, which is judged itself, all.
        rows: rows of the rotary tables that were compared, cos and sin of each node that rotates.
        problems: what is otherwise; empty if nothing is.
    """

    form: str
    nodes: int
    rows: int
    problems: tuple[str, ...]

    @property
    def words(self) -> str:
        """What was held against what."""
        whose = "compared block by block" if self.form == JUDGED.value else f"as in {JUDGED.value} or in its own twin"
        return f"{self.form}: {self.nodes:,} nodes, {whose}; {self.rows:,} rows of rotary tables, as in its twin"


def look(folder: ModelFolder) -> tuple[Kinship, ...]:
    """Hold every fused BF16 graph of a model against the graphs that are judged."""
    known = {form: (_Graph(folder.graph(form)), _Graph(folder.graph(form, twin=True))) for form in FORMS}
    found = []
    for form, (graph, twin) in known.items():
        problems = list(_strangers(graph, twin, *known[JUDGED]))
        rows, otherwise = _rotation(graph, twin)
        problems += otherwise
        if not graph.nodes or (twin.rotates and not rows):
            problems.append(f"{form.file_name()}: nothing was held against a judged graph")
        found.append(Kinship(form.value, len(graph.nodes), rows, tuple(problems)))
    return tuple(found)


class _Graph:
    """A graph's nodes by their first output, its weights, which stay where they lie, and the tables of what rotates."""

    def __init__(self, path: Path) -> None:
        graph = onnx.load(str(path), load_external_data=False).graph
        self.name, self._folder = path.name, path.parent
        self.nodes = {node.output[0]: _node(node) for node in graph.node}
        self.weights: Mapping[str, bytes] = {
            tensor.name: tensor.SerializeToString(deterministic=True) for tensor in graph.initializer
        }
        # By the node's own name: where the BF16 graph rotates in FP32, the result is another tensor than the twin's.
        self.rotates = {node.name: tuple(node.input[1:3]) for node in graph.node if node.op_type == "RotaryEmbedding"}
        self._tensors = {tensor.name: tensor for tensor in graph.initializer}

    def values(self, name: str) -> Array:
        """Read a weight."""
        found: Array = numpy_helper.to_array(self._tensors[name], str(self._folder))
        return found


def _node(node: onnx.NodeProto) -> Node:
    attributes = sorted(attribute.SerializeToString(deterministic=True) for attribute in node.attribute)
    return node.op_type, node.domain, tuple(node.input), tuple(attributes)


def _without_suffix(node: Node | None) -> Node | None:
    """Give a twin's node as its BF16 graph spells it: a weight that is cast for the twin has a name of its own."""
    if node is None:
        return None
    kind, domain, inputs, attributes = node
    return kind, domain, tuple(name.removesuffix(FP32_SUFFIX) for name in inputs), attributes


def _strangers(graph: _Graph, twin: _Graph, judged: _Graph, judged_twin: _Graph) -> Iterator[str]:
    """Yield what a graph has that neither `model.onnx` nor its own twin has, and what it lacks."""
    own = {name for name in twin.nodes if twin.nodes[name] != judged_twin.nodes.get(name)}
    for name, node in graph.nodes.items():
        right = _without_suffix(twin.nodes[name]) if name in own else judged.nodes.get(name)
        if node != right:
            where = twin.name if name in own else judged.name
            yield f"{graph.name}: {name} ({node[0]}) is not made as in {where}"
    lacking = judged.nodes.keys() - graph.nodes.keys() - (judged_twin.nodes.keys() - twin.nodes.keys())
    yield from (f"{graph.name}: {name} is not made, which {judged.name} makes" for name in sorted(lacking))
    for name, weight in graph.weights.items():
        if weight not in (judged.weights.get(name), twin.weights.get(name)):
            yield f"{graph.name}: {name} is not the weight of that name in {judged.name}"


def _rotation(graph: _Graph, twin: _Graph) -> tuple[int, list[str]]:
    """Compare the tables of each node that rotates with the twin's, rounded to their type; gives rows and problems."""
    rows, problems, seen = 0, list[str](), set[tuple[str, str]]()
    for name, tables in graph.rotates.items():
        for ours, theirs in zip(tables, twin.rotates.get(name, ()), strict=False):
            if (ours, theirs) in seen:
                continue
            seen.add((ours, theirs))
            mine, right = graph.values(ours), twin.values(theirs)
            rows += len(mine)
            if mine.shape != right.shape or (mine != right.astype(mine.dtype)).any():
                problems.append(f"{graph.name}: {ours} is not {theirs}, {_first_row(mine, right)}")
    unlike = graph.rotates.keys() ^ twin.rotates.keys()
    return rows, problems + [f"{graph.name}: {name} rotates in one of it and its twin only" for name in sorted(unlike)]


def _first_row(mine: Array, right: Array) -> str:
    """Say where two tables part."""
    if mine.shape != right.shape:
        return f"{mine.shape} for {right.shape}"
    differs = (mine != right.astype(mine.dtype)).any(axis=-1)
    return f"from position {int(np.argmax(differs))} on"
