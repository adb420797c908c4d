"""The last word: logits of graphs with nothing marked, because a marked graph is optimised as another one.

A twin's logits must be the reference's. A BF16 network's must be within BF16's noise of them, and choose the same
tokens but where the reference's two largest logits are nearer than that noise.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import numpy as np

from artifacts.contract import LOGITS, Form, signature
from runtime.session import Array
from validate.layers.anatomy import Part
from validate.layers.calls import Call
from validate.layers.comparison import Comparison
from validate.layers.findings import LastWord
from validate.layers.limits import LOGITS_SPREAD, STRUCTURE, spelled
from validate.layers.measures import Measure, combined, measure
from validate.layers.record import Record
from validate.layers.rows import rows
from validate.layers.subject import NetworkSubject, Subject

SAMPLE = 2000
"""Logits of which a report may draw a picture."""
UNMARKED = "unmarked/logits"
"""Where the reference's logits with nothing marked are kept."""

_PART = Part(LOGITS, None, LOGITS, ())


def record(comparison: Comparison, reference: Subject) -> None:
    """Keep the reference's logits with nothing marked."""
    for call, outputs in _outputs(comparison, reference):
        comparison.reference.write(call, UNMARKED, outputs[LOGITS])


def keep_marked(comparison: Comparison) -> None:
    """Take the marked reference's logits for them, where loading the graph once more would take too long."""
    for call in comparison.calls:
        comparison.reference.write(call, UNMARKED, comparison.reference.read(call, LOGITS))


def last_word(comparison: Comparison, subject: Subject, *, twin: bool, said: Record | None = None) -> LastWord:
    """Compare a subject's logits with nothing marked, and the names of its outputs with the contract's.

    Args:
        comparison: with the reference's logits.
        subject: who is asked.
        twin: whether it is an FP32 twin.
        said: what it said with marks, where these change nothing: it is not asked again.
    """
    spec = signature(comparison.config, Form.MODEL, twin=twin)
    contract, measures, pairs, problem = {output.name for output in spec.outputs}, [], [], ""
    asked = _outputs(comparison, subject) if said is None else _recorded(comparison, subject, said)
    for call, outputs in asked:
        wrong = sorted(contract ^ outputs.keys())
        if wrong:
            words = [
                f"output {name} {'is missing' if name in contract else 'is not of the contract'}" for name in wrong
            ]
            return LastWord(subject.label, 0, float("inf"), 0, 0, 0, problem="; ".join(words))
        expected = comparison.reference.read(call, UNMARKED)
        found, wanted = (
            rows(_PART, call, one, like=other)
            for one, other in ((outputs[LOGITS], expected), (expected, outputs[LOGITS]))
        )
        if found is None or wanted is None:
            problem = f"logits have shape {outputs[LOGITS].shape}, expected {expected.shape}"
        else:
            measures.append(measure(found.values, wanted.values))
            pairs.append((wanted.values, found.values))
    return _judge(subject.label, combined(measures), pairs, problem, twin=twin)


def _outputs(comparison: Comparison, subject: Subject) -> Iterator[tuple[Call, Mapping[str, Array]]]:
    with subject.unmarked() as run:
        for call in comparison.calls:
            yield call, run({**call.feeds, **comparison.reference.past(call, comparison.config)})


def _recorded(comparison: Comparison, subject: Subject, said: Record) -> Iterator[tuple[Call, Mapping[str, Array]]]:
    """Yield the outputs that the subject declares; of those that nobody recorded the name is all that counts."""
    assert isinstance(subject, NetworkSubject)
    for call in comparison.calls:
        kept, unknown = said.names(call), np.zeros(0, np.float32)
        yield call, {name: said.read(call, name) if name in kept else unknown for name in subject.program.outputs}


def _judge(label: str, whole: Measure, pairs: list[tuple[Array, Array]], problem: str, *, twin: bool) -> LastWord:
    if not pairs:
        return LastWord(label, 0, float("inf"), 0, 0, 0, problem=problem or "no logits were compared")
    wanted, found = (np.concatenate([pair[side] for pair in pairs]) for side in (0, 1))
    same, ties = _tokens(wanted, found, STRUCTURE * whole.magnitude if twin else LOGITS_SPREAD * _rms(wanted))
    distance, limit = (whole.widest, STRUCTURE) if twin else (whole.spread, LOGITS_SPREAD)
    reasons = [whole.problem and f"logits {whole.problem}", problem]
    if not distance <= limit:
        reasons.append(f"logits are off by {distance:.2e} ({spelled(limit)} allowed)")
    if same + ties < len(wanted):
        reasons.append(f"{len(wanted) - same - ties} of {len(wanted)} tokens are others, and no ties")
    chosen = np.random.default_rng(0).choice(wanted.size, min(SAMPLE, wanted.size), replace=False)
    sample = [tuple(float(value) for value in side.reshape(-1)[chosen]) for side in (wanted, found)]
    problem = "; ".join(filter(None, reasons))
    return LastWord(label, whole.elements, whole.widest, len(wanted), same, ties, sample[0], sample[1], problem)


def _tokens(wanted: Array, found: Array, noise: float) -> tuple[int, int]:
    """Count tokens that are the same, and others whose two candidates the reference holds within twice the noise."""
    right, chosen = wanted.argmax(axis=1), found.argmax(axis=1)
    places = np.arange(len(wanted))
    gaps = wanted[places, right] - wanted[places, chosen]
    other = right != chosen
    return int((~other).sum()), int((other & (gaps <= 2 * noise)).sum())


def _rms(values: Array) -> float:
    return float(np.sqrt(np.square(values.astype(np.float64)).mean()))
