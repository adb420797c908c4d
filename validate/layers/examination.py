"""Examines every subject of one model and finds the first wrong tensor."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from runtime.session import Array
from validate.layers.anatomy import Part
from validate.layers.calls import Call
from validate.layers.comparison import NO_CALL, Comparison, Tally
from validate.layers.evidence import candidates, look
from validate.layers.findings import FirstWrong, Instrument, LastWord, TensorFinding
from validate.layers.judge import judge, wrong_calls
from validate.layers.limits import BY_KIND, ROUNDED_ONCE, STRUCTURE
from validate.layers.record import Record
from validate.layers.subject import NetworkSubject, Subject
from validate.layers.words import Case, explain

Pair = Callable[[Part, Call], tuple[Array, Array]]
"""Gives one tensor of one call again: as it came out and as it should have."""


@dataclass
class Examination:
    """What is known so far: rows of all subjects, and a case for the first wrong tensor of each."""

    comparison: Comparison
    rows: list[TensorFinding] = field(default_factory=list)
    cases: list[Case] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)
    last: list[LastWord] = field(default_factory=list)

    def structure(self, subject: Subject) -> None:
        """Judge an entered subject against the reference."""
        tally = self.comparison.structure(subject)
        carried = self.comparison.without_noise(subject, tally) if isinstance(subject, NetworkSubject) else {}
        if carried:
            self.notes.append(
                f"{subject.label}: {len(carried)} tensors are off by up to {max(carried.values()):.1e} end to end, and "
                "right from the reference's own inputs: noise of FP32 that grew from layer to layer"
            )

        def again(part: Part, call: Call) -> tuple[Array, Array]:
            found: dict[str, Array] = {}
            feeds = {**call.feeds, **self.comparison.reference.past(call, self.comparison.config)}
            subject.stream(feeds, [part.name], found.__setitem__)
            return found[part.name], self.comparison.reference.read(call, part.name)

        self._take(tally, "structure", subject.label, again)

    def precision(self, twin: NetworkSubject, network: Record, label: str) -> None:
        """Judge a recorded BF16 network block by block; its entered twin computes the blocks again."""
        tally = self.comparison.precision(twin, network)
        self._take(tally, "precision", label, lambda part, call: self.comparison.block(twin, network, part, call))

    def _take(self, tally: Tally, instrument: Instrument, label: str, again: Pair) -> None:
        parts = self.comparison.parts
        rows = judge(parts, tally, instrument, label)
        self.rows += rows
        if tally.absent:
            names = ", ".join(tally.absent[:4]) + (" …" if len(tally.absent) > 4 else "")
            self.notes.append(
                f"{label}, {instrument}: {len(tally.absent)} tensors without a contract name are not compared: {names}"
            )
        if not tally.lent and not any(row.elements for row in rows):
            self.problems.append(f"{label}, {instrument}: nothing was compared")
        wrong = next((row for row in rows if row.problem), None)
        if wrong is not None:
            self.cases.append(self._case(parts[wrong.order], wrong, rows, tally, again))

    def _case(self, part: Part, row: TensorFinding, rows: list[TensorFinding], tally: Tally, again: Pair) -> Case:
        comparison, calls = self.comparison, {call.name: call for call in self.comparison.calls}
        wrong, evidence = frozenset(calls), None
        if row.scenario != NO_CALL:
            wrong = wrong_calls(row, part, tally.measures[part.name])
        call = next((call for call in comparison.calls if call.name in wrong and row.scenario != NO_CALL), None)
        if call is not None:
            limit = STRUCTURE if row.instrument == "structure" else 4 * BY_KIND.get(part.kind, ROUNDED_ONCE).spread
            names = comparison.reference.names(call)
            others = {name: other for name, other in comparison.by_name.items() if name in names}
            known = candidates(part, others, lambda name: comparison.reference.read(call, name))
            evidence = look(part, call, *again(part, call), limit, known)
        before = [other for other in rows if other.kind == part.kind and other.layer == (part.layer or 0) - 1]
        return Case(
            part=part,
            row=row,
            evidence=evidence,
            wrong_calls=wrong,
            calls=tuple(calls),
            filled=frozenset(call.name for call in comparison.calls if call.past),
            before=before[0].error / row.error if before and row.error else 0.0,
        )

    @property
    def first(self) -> FirstWrong | None:
        """The first wrong tensor in graph order; of several subjects the one that was judged first."""
        if not self.cases:
            return None
        case = min(self.cases, key=lambda case: case.row.order)
        pattern, words = explain(case, self._elsewhere(case), self.comparison.config)
        verdicts = self._verdicts(case.row)
        return FirstWrong(
            name=case.part.name,
            layer=case.part.layer,
            instrument=case.row.instrument,
            subject=case.row.subject,
            scenario=case.row.scenario,
            feeds=tuple((name, verdicts[name]) for name in case.part.feeds if name in verdicts),
            pattern=pattern,
            words=words,
        )

    def _verdicts(self, row: TensorFinding) -> Mapping[str, bool]:
        return {
            other.name: other.verdict
            for other in self.rows
            if (other.subject, other.instrument) == (row.subject, row.instrument)
        }

    def _elsewhere(self, case: Case) -> Mapping[str, frozenset[str]]:
        """In which calls other subjects have the same tensor wrong, by structure."""
        cases = {other.row.subject: other for other in self.cases if other.part.name == case.part.name}
        return {
            row.subject: cases.get(row.subject, case).wrong_calls if row.problem else frozenset[str]()
            for row in self.rows
            if row.name == case.part.name and row.instrument == "structure" and row.subject != case.row.subject
        }
