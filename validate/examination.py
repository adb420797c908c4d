"""Examine one runner: everything that is asked of it, against the reference's results on disk."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from artifacts.config import ModelConfig
from artifacts.contract import LOGITS, Form, TensorSpec, signature
from runtime.session import Session
from validate import certificate, greedy
from validate.cache import capacity
from validate.comparison import TOLERANCE, Tally
from validate.exam import Paper, judge_answers, judge_perplexity, sit
from validate.findings import Check, Findings, Noise, abridged
from validate.play import play
from validate.reference import Reference
from validate.runners import Role, Runner
from validate.scenarios import LONG, SHORT, Passage, Scenario, in_one_call, passages, scenarios, too_long

PAD_TOLERANCE = 1e-6
"""Limit of the difference that the pad token makes; measured: none at all, 0.0, in every graph."""
CONTINUATION, ANSWERS, PERPLEXITY = "continuation", "exam", "perplexity"

Progress = Callable[[int, int], None]


def _silent(done: int, total: int) -> None:
    """Tell nobody."""


@dataclass(frozen=True)
class Examination:
    """What a runner is asked, whichever it is.

    Attributes:
        prompt: token ids of the prompt that is continued.
        tokens: how many tokens are chosen.
        reference: where the reference's results lie; the reference itself writes them.
        paper: the exam's questions and a text; empty where the model has none.
    """

    config: ModelConfig
    prompt: tuple[int, ...]
    tokens: int
    reference: Reference
    paper: Paper = field(default_factory=Paper)

    @property
    def layers(self) -> int:
        """Layers of the model."""
        return self.config.num_hidden_layers

    def run(self, runner: Runner, session: Session, progress: Progress = _silent) -> Findings:
        """Examine an entered session.

        Args:
            runner: which one it is, and what is asked of it.
            session: the session.
            progress: is told how many of how many parts are done.
        """
        findings = Findings(runner.name, runner.role.value)
        if runner.form is not None:
            findings.checks.append(check_signature(self.config, runner.form, session, twin=runner.twin))
            if findings.problems:
                return findings
        known = passages(self.config)
        if runner.role is Role.REFERENCE:
            self._choose(session, findings)
        known |= {CONTINUATION: Passage(CONTINUATION, (*self.prompt, *self.reference.read_continuation().tokens[:-1]))}
        judged = runner.role is Role.JUDGED
        asked, findings.left_out = fitting(
            scenarios(known) if judged else in_one_call(self._read_at_once(runner, known)), capacity(session)
        )
        if runner.role is Role.REFERENCE:
            findings.left_out += too_long(self.config)
        for done, scenario in enumerate(asked):
            progress(done, len(asked) + 2)
            findings.checks.append(self._scenario(runner, session, scenario, known, findings))
        if judged:
            findings.checks += [self._pad(session, scenario, known) for scenario in asked if len(scenario.rows) > 1][:1]
        progress(len(asked), len(asked) + 2)
        self._certificate(runner, session, known, findings)
        progress(len(asked) + 1, len(asked) + 2)
        if runner.role is not Role.REFERENCE:
            self._continue(runner, session, findings)
        if self.paper != Paper():
            self._answer(runner, session, findings)
        progress(len(asked) + 2, len(asked) + 2)
        return findings

    def _choose(self, session: Session, findings: Findings) -> None:
        """Let the reference continue the prompt; the others are compared with what it chooses."""
        for _ in greedy.steps(session, self.prompt, self.tokens, self.layers, findings.continuation):
            pass
        self.reference.write_continuation(findings.continuation)

    def _scenario(
        self, runner: Runner, session: Session, scenario: Scenario, known: Mapping[str, Passage], findings: Findings
    ) -> Check:
        """Play one scenario against the reference; the reference itself writes its results first."""
        tally = Tally(TOLERANCE if runner.role is Role.JUDGED else None)
        for number, answer in enumerate(play(session, scenario, known, self.layers)):
            if runner.role is Role.REFERENCE:
                self.reference.write(answer.passage, answer.arrays)
            where = f"call {number // len(scenario.rows) + 1}, row {number % len(scenario.rows) + 1}"
            tally.compare(where, answer.arrays, self.reference.expected(answer))
        if runner.role is Role.NOISE and scenario.rows == (CONTINUATION,) and tally.logits:
            findings.noise = Noise(tally.largest, float(np.sqrt(tally.squares / tally.logits)), tally.magnitude)
        return Check.of(scenario.name, tally)

    def _read_at_once(self, runner: Runner, known: Mapping[str, Passage]) -> list[Passage]:
        """Passages that an unjudged runner reads: the reference all, noise no long one.

        Products in BF16 are slow where the processor has none of its own: 135M parameters took 100 s.
        """
        return [p for p in known.values() if runner.role is Role.REFERENCE or len(p.tokens) < LONG]

    def _pad(self, session: Session, scenario: Scenario, known: Mapping[str, Passage]) -> Check:
        """The same batch with two pad tokens, against each other."""
        tally = Tally(PAD_TOLERANCE)
        first = [
            {name: array.copy() for name, array in answer.arrays.items()}
            for answer in play(session, scenario, known, self.layers)
        ]
        other = replace(scenario, pad=self.config.vocab_size - 1)
        for before, answer in zip(first, play(session, other, known, self.layers), strict=False):
            tally.compare(f"{answer.passage}, pad {other.pad} instead of {scenario.pad}", answer.arrays, before)
        return Check.of("the pad id makes no difference", tally)

    def _certificate(self, runner: Runner, session: Session, known: Mapping[str, Passage], findings: Findings) -> None:
        """Which layers rotate, as the runner's own keys show it; BF16 is measured, not judged."""
        slots = capacity(session)
        if slots is not None and slots < SHORT:
            findings.left_out.append(f"NoPE certificate: needs {SHORT} slots, the capacity is {slots}")
            return
        findings.movements = certificate.measure(session, known["small positions"], self.layers)
        problems = [] if runner.role is Role.NOISE else certificate.judge(findings.movements, self.config)
        check = Check("NoPE certificate", 2 * len(findings.movements), 0, problems=abridged(problems))
        findings.checks.append(check)

    def _continue(self, runner: Runner, session: Session, findings: Findings) -> None:
        """Continue the prompt; logits are compared as long as the tokens are the reference's."""
        needed, slots = len(self.prompt) + self.tokens, capacity(session)
        if slots is not None and needed > slots:
            findings.left_out.append(f"{CONTINUATION}: needs {needed} slots, the capacity is {slots}")
            return
        tally, found = Tally(TOLERANCE if runner.role is Role.JUDGED else None), findings.continuation
        reference = self.reference.read_continuation()
        expected = self.reference.read(CONTINUATION)[LOGITS][len(self.prompt) - 1 :]
        for logits in greedy.steps(session, self.prompt, self.tokens, self.layers, found):
            step = len(found.tokens)
            if found.tokens == reference.tokens[:step]:
                tally.compare(f"step {step}", {LOGITS: logits}, {LOGITS: expected[step]})
        limit = 2 * TOLERANCE * tally.magnitude
        judged = greedy.judge(found, reference, limit) if runner.role is Role.JUDGED else []
        worst = tally.worst["logits"].relative if tally.worst else None
        problems = abridged([*tally.problems, *judged])
        findings.checks.append(
            Check(CONTINUATION, tally.tensors, tally.elements, worst, None, tally.tolerance, problems)
        )

    def _answer(self, runner: Runner, session: Session, findings: Findings) -> None:
        """Answer the exam and read its text; BF16 is measured, not judged."""
        findings.sheet = sit(session, self.paper, self.layers)
        if runner.role is Role.REFERENCE:
            self.reference.write_sheet(findings.sheet)
        reference = self.reference.read_sheet()
        judged = runner.role is Role.JUDGED
        wrong = judge_answers(findings.sheet, reference, self.paper) if judged else []
        answered = len(findings.sheet.answers) - findings.sheet.unanswered
        if findings.sheet.unanswered:
            left = f"{findings.sheet.unanswered} of {len(self.paper.questions)} questions"
            findings.left_out.append(f"{ANSWERS}: {left} are longer than the capacity of {capacity(session)}")
        if answered:
            findings.checks.append(Check(ANSWERS, answered, 0, problems=abridged(wrong)))
        if findings.sheet.perplexity is not None:
            wrong = judge_perplexity(findings.sheet, reference) if judged else []
            findings.checks.append(Check(PERPLEXITY, 1, 0, problems=abridged(wrong)))


def check_signature(config: ModelConfig, form: Form, session: Session, *, twin: bool) -> Check:
    """Hold the names, types and axes that a graph declares against the contract."""
    slots = capacity(session) if form.linear else None
    if form.linear and slots is None:
        return Check("signature", 0, 0, problems=("its cache has no fixed capacity",))
    wanted = signature(config, form, twin=twin, capacity=slots)
    problems = []
    for side, found, specs in (("input", session.inputs, wanted.inputs), ("output", session.outputs, wanted.outputs)):
        expected = {spec.name: spec for spec in specs}
        problems += [f"{side} {name} is missing" for name in expected if name not in found]
        problems += [f"{side} {name} is not of the contract" for name in found if name not in expected]
        problems += [
            f"{side} {name} is {found[name].precision.value} {found[name].axes}, "
            f"expected {spec.precision.value} {spec.axes}"
            for name, spec in expected.items()
            if name in found and not agrees(found[name], spec)
        ]
    return Check("signature", len(list(wanted)), 0, problems=abridged(problems))


def agrees(found: TensorSpec, wanted: TensorSpec) -> bool:
    """Whether a tensor is what the contract says; TensorRT has no name ("") for the dynamic axes of an output."""
    axes = zip(found.axes, wanted.axes, strict=False)
    same = all(one == other or (one == "" and isinstance(other, str)) for one, other in axes)
    return same and len(found.axes) == len(wanted.axes) and found.precision is wanted.precision


def fitting(asked: Sequence[Scenario], slots: int | None) -> tuple[tuple[Scenario, ...], list[str]]:
    """Part the scenarios that fit a linear cache's capacity from those that do not, which are named."""
    fits = tuple(scenario for scenario in asked if slots is None or scenario.slots <= slots)
    return fits, [f"{s.name}: needs {s.slots} slots, the capacity is {slots}" for s in asked if s not in fits]
