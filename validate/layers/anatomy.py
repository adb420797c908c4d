"""Which tensors are compared, in graph order, and what feeds each of them.

A tensor and what feeds it are the two ends of a block: `model.layers.3.mlp.down_proj` is made of gate and up, so the
block is SwiGLU and the down projection. Inputs of the graph feed every block that wants them and are not named here.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from artifacts import names
from artifacts.config import ModelConfig
from artifacts.contract import ATTENTION_MASK, INPUT_IDS, LOGITS, present_name
from artifacts.errors import refuse

LAYER = "layer"
ATTENTION = names.ATTENTION
NARROW = "/bf16"
"""How the BF16 tensors of a twin end, which no FP32 runtime gives: the embedding before it is widened."""
OTHER = "other"
"""Kind of every tensor that the contract does not name."""


@dataclass(frozen=True)
class Part:
    """One tensor that is compared.

    Attributes:
        layer: its decoder layer; nothing outside the layers.
        kind: what it is in its layer.
        feeds: the compared tensors (or inputs of the graph) that it is made of.
        asked: whether it was asked for by its name.
    """

    name: str
    layer: int | None
    kind: str
    feeds: tuple[str, ...]
    asked: bool = False


def parts(config: ModelConfig) -> tuple[Part, ...]:
    """Name every tensor of the contract inside a graph, in graph order."""
    found = [
        Part(names.EMBEDDING, None, names.EMBEDDING, (INPUT_IDS,)),
        Part(names.MASK, None, names.MASK, (ATTENTION_MASK,)),
    ]
    stream = names.EMBEDDING
    for index in range(config.num_hidden_layers):
        found += _layer(index, stream, config.uses_rope[index])
        stream = names.layer(index)
    found.append(Part(names.FINAL_NORM, None, names.FINAL_NORM, (stream,)))
    found.append(Part(LOGITS, None, LOGITS, (names.FINAL_NORM,)))
    return tuple(found)


def _layer(index: int, stream: str, rotates: bool) -> Iterator[Part]:
    def part(kind: str, *feeds: str) -> Part:
        return Part(names.layer(index, kind), index, kind, tuple(names.layer(index, feed) for feed in feeds))

    q, k = (names.Q_ROTARY, names.K_ROTARY) if rotates else (names.Q_PROJ, names.K_PROJ)
    key, value = present_name(index, "key"), present_name(index, "value")
    yield Part(names.layer(index, names.NORM), index, names.NORM, (stream,))
    for projection in (names.Q_PROJ, names.K_PROJ, names.V_PROJ):
        yield part(projection, names.NORM)
    if rotates:
        yield part(names.Q_ROTARY, names.Q_PROJ)
        yield part(names.K_ROTARY, names.K_PROJ)
    yield Part(key, index, "present.key", (names.layer(index, k),))
    yield Part(value, index, "present.value", (names.layer(index, names.V_PROJ),))
    query = names.layer(index, q)
    yield Part(names.layer(index, ATTENTION), index, ATTENTION, (query, key, value, names.MASK))
    yield part(names.O_PROJ, ATTENTION)
    residual = names.layer(index, names.RESIDUAL)
    yield Part(residual, index, names.RESIDUAL, (stream, names.layer(index, names.O_PROJ)))
    yield part(names.POST_NORM, names.RESIDUAL)
    yield part(names.GATE_PROJ, names.POST_NORM)
    yield part(names.UP_PROJ, names.POST_NORM)
    yield part(names.DOWN_PROJ, names.GATE_PROJ, names.UP_PROJ)
    yield Part(names.layer(index), index, LAYER, (residual, names.layer(index, names.DOWN_PROJ)))


def every(known: tuple[Part, ...], made: Mapping[str, tuple[str, ...]]) -> tuple[Part, ...]:
    """Put every tensor of a graph among the named ones, in the graph's order.

    Args:
        known: the named parts, in order.
        made: for every tensor that a node makes from others, those others, in topological order.
    """
    named = {part.name: part for part in known}
    others = tuple(
        Part(name, _layer_of(name), OTHER, feeds)
        for name, feeds in made.items()
        if name not in named and not name.endswith(NARROW)
    )
    order = {name: place for place, name in enumerate(made)}
    return tuple(sorted((*known, *others), key=lambda part: order.get(part.name, len(order))))


def _layer_of(name: str) -> int | None:
    head, _, rest = name.partition("model.layers.")
    number = rest.partition(".")[0].partition("/")[0]
    return int(number) if not head and number.isdigit() else None


def narrow(known: tuple[Part, ...], asked: str) -> tuple[Part, ...]:
    """Keep what was asked for: `named` and `all` keep everything, `3,7` layers, anything else tensors by name.

    Raises:
        StageError: there is no such layer or tensor.
    """
    if asked in ("named", "all"):
        return known
    wanted = [word.strip() for word in asked.split(",") if word.strip()]
    layers = {part.layer for part in known}
    names = {part.name for part in known} | {str(layer) for layer in layers if layer is not None}
    unknown = [word for word in wanted if word not in names]
    if unknown or not wanted:
        raise refuse(
            f"there is no layer or tensor {', '.join(unknown) or 'named'}",
            expected=f"all, layers 0 to {max(layer for layer in layers if layer is not None)}, or a tensor's name "
            f"such as {known[-2].name}",
            found=f"--layers {asked!r}",
            remedy="correct --layers (LAYERS=)",
        )
    return tuple(
        replace(part, asked=part.name in wanted) for part in known if part.name in wanted or str(part.layer) in wanted
    )


def made_by_nodes(graph: Path) -> dict[str, tuple[str, ...]]:
    """Give every tensor of an ONNX file that depends on its inputs, with those that it is made of, in order."""
    import onnx

    model = onnx.load(str(graph), load_external_data=False)
    varies = {value.name for value in model.graph.input}
    made: dict[str, tuple[str, ...]] = {}
    for node in model.graph.node:
        feeds = tuple(name for name in node.input if name in varies)
        if feeds:
            varies.update(node.output)
            made |= dict.fromkeys(filter(None, node.output), feeds)
    return made
