"""The comparison itself: a reference is recorded, subjects are judged against it, blocks against their own inputs."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

import numpy as np

from artifacts.config import ModelConfig
from artifacts.contract import KINDS, present_name
from artifacts.names import MASK
from runtime.session import Array
from validate.layers.anatomy import ATTENTION, Part
from validate.layers.calls import Call
from validate.layers.measures import Measure, measure, sensitivity
from validate.layers.record import Record
from validate.layers.rows import rows
from validate.layers.subject import NetworkSubject, Subject

STEP = 2.0**-6
"""How far q is scaled up and down to find out how a result depends on its scores."""


@dataclass
class Tally:
    """What one subject showed under one instrument.

    Attributes:
        measures: for every tensor, a measure for each call by its name.
        scores: for every attention under `precision`, sums for the slope of its scores.
        problems: what belongs to no measure: tensors that are missing or have no counterpart.
    """

    measures: dict[str, dict[str, Measure]] = field(default_factory=dict)
    scores: dict[str, list[tuple[float, float]]] = field(default_factory=dict)
    problems: list[str] = field(default_factory=list)

    def add(self, name: str, call: Call, found: Measure) -> None:
        """Note what a tensor came to in one call."""
        self.measures.setdefault(name, {})[call.name] = found


@dataclass(frozen=True)
class Comparison:
    """What is compared, of which model, on which calls, with which reference.

    Attributes:
        parts: the tensors, in graph order.
        reference: what the reference made; `record` fills it.
    """

    config: ModelConfig
    parts: tuple[Part, ...]
    calls: tuple[Call, ...]
    reference: Record

    def record(self, subject: Subject, into: Record | None = None) -> None:
        """Keep what a subject makes of every call; without `into`, as the reference, with the masks of the calls.

        The reference's own past comes from what it made of the call before.
        """
        record = into or self.reference
        always = [present_name(layer, kind) for layer in range(self.config.num_hidden_layers) for kind in KINDS]
        wanted = [part.name for part in self.parts] + [name for name in always if name not in self.by_name]
        wanted = [name for name in wanted if name in subject.names]
        for call in self.calls:
            feeds = {**call.feeds, **self.reference.past(call, self.config)}
            subject.stream(feeds, wanted, lambda name, array, call=call: record.write(call, name, array))
            if into is None:
                record.write(call, MASK, call.mask)

    def structure(self, subject: Subject) -> Tally:
        """Judge every tensor of a subject against the reference."""
        tally = Tally()
        known = self.reference.names(self.calls[0])
        wanted = [part.name for part in self.parts if part.name in subject.names]
        tally.problems += [f"{part.name} is missing" for part in self.parts if part.name not in subject.names]
        tally.problems += [f"{name} has no counterpart in the reference" for name in wanted if name not in known]
        wanted = [name for name in wanted if name in known]
        for call in self.calls:

            def observe(name: str, array: Array, call: Call = call) -> None:
                expected = self.reference.read(call, name)
                tally.add(name, call, self.compare(self.by_name[name], call, array, expected))

            subject.stream({**call.feeds, **self.reference.past(call, self.config)}, wanted, observe)
        return tally

    def precision(self, twin: NetworkSubject, network: Record) -> Tally:
        """Judge every block of a recorded BF16 network against the same block in FP32, from the block's own inputs."""
        tally = Tally()
        kept = network.names(self.calls[0])
        tally.problems += [f"{part.name} is missing" for part in self.parts if part.name not in kept]
        for part in self.parts:
            missing = [name for name in (part.name, *part.feeds) if name not in kept and name not in twin.program.inputs]
            if part.name in kept and missing:
                tally.problems.append(f"{part.name} cannot be computed again: {', '.join(missing)} is missing")
            for call in self.calls if not missing else ():
                self._block(twin, network, part, call, tally)
        return tally

    def _block(self, twin: NetworkSubject, network: Record, part: Part, call: Call, tally: Tally) -> None:
        inputs = {name: network.read(call, name) for name in part.feeds if name not in twin.program.inputs}
        past = self.reference.past(call, self.config, [part.layer] if part.kind.startswith("present") else [])
        feeds = {**call.feeds, **past, **inputs}
        actual = network.read(call, part.name)
        expected = twin.between(feeds, [part.name])[part.name]
        tally.add(part.name, call, self.compare(part, call, actual, expected))
        if part.kind == ATTENTION:
            change = self._change(twin, part, feeds)
            sides = [rows(part, call, array) for array in (actual, expected, change)]
            if all(side is not None for side in sides):
                fit = sensitivity(*(side.values for side in sides if side is not None))
                tally.scores.setdefault(part.name, []).append(fit)

    def _change(self, twin: NetworkSubject, part: Part, feeds: Mapping[str, Array]) -> Array:
        """Give the derivative of an attention's output with respect to a factor of its scores, at 1."""
        query = part.feeds[0]
        up, down = (
            twin.between({**feeds, query: np.float32(factor) * feeds[query]}, [part.name])[part.name]
            for factor in (1 + STEP, 1 - STEP)
        )
        found: Array = (up - down) / np.float32(2 * STEP)
        return found

    def compare(self, part: Part, call: Call, actual: Array, expected: Array) -> Measure:
        """Measure the real tokens of one tensor of one call."""
        found, wanted = rows(part, call, actual, like=expected), rows(part, call, expected, like=actual)
        if found is None or wanted is None:
            return Measure(problem=f"has shape {actual.shape}, expected {expected.shape}")
        return measure(found.values, wanted.values)

    @property
    def by_name(self) -> Mapping[str, Part]:
        """The parts by name."""
        return {part.name: part for part in self.parts}
