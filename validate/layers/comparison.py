"""The comparison itself: a reference is recorded, subjects are judged against it, blocks against their own inputs."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from functools import partial

import numpy as np

from artifacts import names
from artifacts.config import ModelConfig
from artifacts.contract import KINDS, LOGITS, present_name
from runtime.session import Array
from validate.layers.anatomy import ATTENTION, OTHER, Part
from validate.layers.calls import Call
from validate.layers.limits import CARRIED, NORMS, STRUCTURE
from validate.layers.measures import Measure, Scores, measure, steady
from validate.layers.record import Record
from validate.layers.rows import rows
from validate.layers.subject import NetworkSubject, Subject

NO_CALL = ""
"""Stands for a call where a tensor cannot be compared in any."""
STEP = 2.0**-6
"""How far q is scaled up and down to find out how a result depends on its scores."""


@dataclass
class Tally:
    """What one subject showed under one instrument.

    Attributes:
        measures: for every tensor, a measure for each call by its name.
        scores: for every attention under `precision`, sums for the slope of its scores.
        absent: tensors that cannot be compared, and that neither the contract names nor whoever asked.
        lent: tensors that the subject gave the reference, which had none of them.
    """

    measures: dict[str, dict[str, Measure]] = field(default_factory=dict)
    scores: dict[str, Scores] = field(default_factory=dict)
    absent: list[str] = field(default_factory=list)
    lent: set[str] = field(default_factory=set)

    def add(self, name: str, call: Call, found: Measure) -> None:
        """Note what a tensor came to in one call."""
        self.measures.setdefault(name, {})[call.name] = found

    def leave_out(self, part: Part, problem: str) -> None:
        """Note a tensor that cannot be compared: a problem if it is one of the contract, or was asked for by name."""
        if part.kind == OTHER and not part.asked:
            self.absent.append(part.name)
        else:
            self.measures[part.name] = {NO_CALL: Measure(problem=problem)}


@dataclass(frozen=True)
class Comparison:
    """What is compared, of which model, on which calls, with which reference.

    Attributes:
        parts: the tensors, in graph order.
        reference: what the reference made; `record` fills it.
        brief: whether each model is loaded once, and what was compared with PyTorch in the same run is left out.
    """

    config: ModelConfig
    parts: tuple[Part, ...]
    calls: tuple[Call, ...]
    reference: Record
    brief: bool = False

    def record(self, subject: Subject, into: Record | None = None) -> None:
        """Keep what a subject makes of every call; without `into`, as the reference, with the masks of the calls.

        The past of a call is the cache that the reference made in the call before.
        """
        record = into or self.reference
        cache = [present_name(layer, kind) for layer in range(self.config.num_hidden_layers) for kind in KINDS]
        # The raw export has no counterpart of other tensors, and may have others under their names.
        shown = [part.name for part in self.parts if part.kind != OTHER or into is not None]
        # A network's blocks are computed again from what feeds them, compared or not.
        feeding = [name for part in self.parts for name in part.feeds if into is not None]
        wanted = [name for name in dict.fromkeys([*shown, *feeding, *cache, LOGITS]) if name in subject.names]
        for call in self.calls:
            feeds = {**call.feeds, **self.reference.past(call, self.config)}
            subject.stream(feeds, wanted, partial(record.write, call))
            if into is None:
                record.write(call, names.MASK, call.mask)

    def structure(self, subject: Subject) -> Tally:
        """Judge every tensor of a subject against the reference.

        Tensors without a name of the contract, which the reference cannot have, are taken into it from the first
        subject that has them, so that the next one is compared with them.
        """
        tally = Tally()
        for part in self.parts:
            if part.name not in subject.names:
                tally.leave_out(part, "is missing")
        wanted = [part.name for part in self.parts if part.name in subject.names]
        for call in self.calls:
            kept = self.reference.names(call)

            def observe(name: str, array: Array, call: Call = call, kept: Collection[str] = kept) -> None:
                part = self.by_name[name]
                if name in kept:
                    tally.add(name, call, self.compare(part, call, array, self.reference.read(call, name)))
                elif part.kind == OTHER:
                    self.reference.write(call, name, array)
                    tally.lent.add(name)
                else:
                    tally.add(name, call, Measure(problem="has no counterpart in the reference"))

            subject.stream({**call.feeds, **self.reference.past(call, self.config)}, wanted, observe)
        return tally

    def without_noise(self, twin: NetworkSubject, tally: Tally) -> dict[str, float]:
        """Measure what is a little off once more, from the reference's own inputs: only the block's own error is left.

        Only inside layers: the raw reference has all positions of what comes after them, and the graph the last one.

        Returns:
            The error that each tensor had carried, of those whose blocks are right.
        """
        known, carried = {*twin.names, *twin.program.inputs}, dict[str, float]()
        for part in self.parts:
            for call in self.calls if part.layer is not None else ():
                found = tally.measures.get(part.name, {}).get(call.name)
                if found is None or found.problem or not STRUCTURE < found.widest <= CARRIED:
                    continue
                if not _lacking(part, [{*self.reference.names(call), *call.feeds}], known):
                    wanted, own = self.block(twin, self.reference, part, call)
                    again = self.compare(part, call, own, wanted)
                    if not again.problem and again.widest <= STRUCTURE:
                        tally.add(part.name, call, again)
                        carried[part.name] = max(found.widest, carried.get(part.name, 0.0))
        return carried

    def precision(self, twin: NetworkSubject, network: Record) -> Tally:
        """Judge every block of a recorded BF16 network against the same block in FP32, from the block's own inputs."""
        tally, computed = Tally(), []
        known = {*twin.names, *twin.program.inputs}
        kept = [{*network.names(call), *call.feeds} for call in self.calls]
        for part in self.parts:
            lacking = _lacking(part, kept, known)
            if lacking:
                tally.leave_out(part, lacking)
            else:
                computed.append(part)
        for call in self.calls:
            for part in computed:
                self._block(twin, network, part, call, tally)
        return tally

    def block(self, twin: NetworkSubject, network: Record, part: Part, call: Call) -> tuple[Array, Array]:
        """Give one block's result as the BF16 network has it, and as FP32 makes it of the same inputs."""
        feeds = self._feeds(twin, network, part, call)
        return network.read(call, part.name), twin.between(feeds, [part.name])[part.name]

    def _feeds(self, twin: NetworkSubject, network: Record, part: Part, call: Call) -> dict[str, Array]:
        inputs = {name: network.read(call, name) for name in part.feeds if name not in call.feeds}
        needed = twin.program.needs([part.name], inputs)
        past = self.reference.past(call, self.config, needed)
        return {**{name: call.feeds[name] for name in needed if name in call.feeds}, **past, **inputs}

    def _block(self, twin: NetworkSubject, network: Record, part: Part, call: Call, tally: Tally) -> None:
        feeds = self._feeds(twin, network, part, call)
        actual, expected = network.read(call, part.name), twin.between(feeds, [part.name])[part.name]
        inputs = feeds[part.feeds[0]] if part.kind in NORMS else None
        tally.add(part.name, call, self.compare(part, call, actual, expected, inputs))
        if part.kind == ATTENTION:
            change = self._change(twin, part, feeds)
            sides = [side.values for array in (actual, expected, change) if (side := rows(part, call, array))]
            if len(sides) == 3:
                sums = Scores.of(*sides)
                tally.scores[part.name] = tally.scores[part.name] + sums if part.name in tally.scores else sums

    def _change(self, twin: NetworkSubject, part: Part, feeds: Mapping[str, Array]) -> Array:
        """Give the derivative of an attention's output with respect to a factor of its scores, at 1."""
        query = part.feeds[0]
        up, down = (
            twin.between({**feeds, query: np.float32(factor) * feeds[query]}, [part.name])[part.name]
            for factor in (1 + STEP, 1 - STEP)
        )
        found: Array = (up - down) / np.float32(2 * STEP)
        return found

    def compare(self, part: Part, call: Call, actual: Array, expected: Array, inputs: Array | None = None) -> Measure:
        """Measure the real tokens of one tensor of one call; `inputs` are what a norm was given, if it is one."""
        found, wanted = rows(part, call, actual, like=expected), rows(part, call, expected, like=actual)
        if found is None or wanted is None:
            return Measure(problem=f"has shape {actual.shape}, expected {expected.shape}")
        given = None if inputs is None else rows(part, call, inputs, like=expected)
        among = None if given is None else steady(given.values, self.config.rms_norm_eps)
        return measure(found.values, wanted.values, among)

    @property
    def by_name(self) -> Mapping[str, Part]:
        """The parts by name."""
        return {part.name: part for part in self.parts}


def _lacking(part: Part, kept: Collection[Collection[str]], known: Collection[str]) -> str:
    """Say why a block cannot be computed again; nothing if it can.

    Args:
        part: which tensor it makes.
        kept: names that the BF16 network gave in each call.
        known: names that the twin has.
    """
    if not all(part.name in names for names in kept):
        return "is missing"
    feeds = [name for name in part.feeds if not all(name in names for names in kept)]
    if feeds:
        return f"cannot be computed again from its own inputs: {', '.join(feeds)} is missing"
    unknown = [name for name in (part.name, *part.feeds) if name not in known]
    return f"cannot be computed again in FP32: the twin has no {', '.join(unknown)}" if unknown else ""
