"""Real values at a sub-graph's borders: the reference reads what comes before, then the call that is looked at.

The reference is ONNX Runtime on the raw export's FP32 twin. Its cache and its values are rounded to BF16, so that a
BF16 graph and an FP32 graph are given the very same numbers.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import onnx

from artifacts import names
from artifacts.config import ModelConfig
from artifacts.contract import KINDS, past_name, present_name
from artifacts.errors import refuse
from artifacts.layout import ModelFolder
from runtime.session import Array
from validate.debugging.cut import needed
from validate.debugging.graphs import open_in_memory, part_of
from validate.layers.calls import Call, calls
from validate.layers.record import rounded

USUAL = "chunk of 5 after 301"
"""A filled cache, several new tokens, positions beyond 300: most of what goes wrong in practice is wrong here."""


def choose_call(config: ModelConfig, wanted: str | None) -> Call:
    """Find a call of the comparison by its name; the usual one if none is named, or the last that fits the model.

    Raises:
        StageError: there is no such call.
    """
    known = {call.name: call for call in calls(config)}
    if wanted is None:
        return known.get(USUAL, list(known.values())[-1])
    if wanted not in known:
        raise refuse(
            f"there is no call {wanted!r}",
            expected=f"one of {', '.join(map(repr, known))}",
            remedy="give another --call, or none for the usual one",
        )
    return known[wanted]


def capture(
    folder: ModelFolder, config: ModelConfig, model: onnx.ModelProto, call: Call, wanted: Iterable[str]
) -> dict[str, Array]:
    """Run the reference and give the values of one call, rounded to BF16.

    Args:
        folder: the model's folder.
        config: the model's facts.
        model: the reference's graph under the contract's names, without its weights.
        call: the call that is looked at.
        wanted: names of the graph's inputs, of tensors in it, or the mask's.
    """
    known = {call.name: call for call in calls(config)}
    inputs = {value.name for value in model.graph.input}
    inner = [name for name in wanted if name not in inputs and name != names.MASK]
    reader = _Reader(folder, model, inner, wanted, config.num_hidden_layers)
    line = [call]
    while line[0].after is not None:
        line.insert(0, known[line[0].after])
    past = reader.empty(config, len(call.ids))
    for earlier in line[:-1]:
        past = reader.present(reader.run({**earlier.feeds, **past}))
    feeds = {**call.feeds, **past}
    found = {**feeds, names.MASK: call.mask, **reader.run(feeds)}
    return {name: rounded(found[name]) for name in wanted}


class _Reader:
    """The reference on the part of its graph that is needed, with as many layers' caches as that takes."""

    def __init__(
        self, folder: ModelFolder, model: onnx.ModelProto, inner: Sequence[str], wanted: Iterable[str], layers: int
    ) -> None:
        given = needed(model.graph, inner)[1] | set(wanted)
        cached = [layer for layer in range(layers) if given & {past_name(layer, kind) for kind in KINDS}]
        self._cache = {
            past_name(layer, kind): present_name(layer, kind)
            for layer in range(max(cached, default=-1) + 1)
            for kind in KINDS
        }
        self._names = list(dict.fromkeys([*self._cache.values(), *inner]))
        self._session: Any = open_in_memory(part_of(model, self._names), folder.onnx) if self._names else None

    def run(self, feeds: Mapping[str, Array]) -> dict[str, Array]:
        """Run once."""
        if self._session is None:
            return {}
        takes = {value.name for value in self._session.get_inputs()}
        results = self._session.run(self._names, {name: array for name, array in feeds.items() if name in takes})
        return dict(zip(self._names, results, strict=True))

    def present(self, results: Mapping[str, Array]) -> dict[str, Array]:
        """Give what a call left in the cache as the past of the next, rounded to BF16."""
        return {past: rounded(results[present]) for past, present in self._cache.items()}

    def empty(self, config: ModelConfig, batch: int) -> dict[str, Array]:
        """Give an empty cache."""
        shape = (batch, config.num_key_value_heads, 0, config.head_dim)
        return {past: np.zeros(shape, np.float32) for past in self._cache}
