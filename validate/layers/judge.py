"""Turns tallies into rows of the report, in graph order."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from validate.layers.anatomy import Part
from validate.layers.comparison import Tally
from validate.layers.findings import Instrument, TensorFinding
from validate.layers.limits import Judgement, judge_precision, judge_structure, spelled
from validate.layers.measures import Measure, Scores, combined


def judge(parts: Sequence[Part], tally: Tally, instrument: Instrument, subject: str) -> list[TensorFinding]:
    """Give a row for every tensor that was compared."""
    return [
        _row(part, order, tally.measures[part.name], tally.scores.get(part.name), instrument, subject)
        for order, part in enumerate(parts)
        if part.name in tally.measures
    ]


def wrong_calls(row: TensorFinding, part: Part, measures: Mapping[str, Measure]) -> frozenset[str]:
    """Name the calls in which a tensor alone is wrong; the worst one where only all of them together are."""
    judged = judge_structure if row.instrument == "structure" else judge_precision
    wrong = frozenset(name for name, found in measures.items() if found.problem or judged(part, found).wrong)
    return wrong or frozenset((row.scenario,))


def _row(
    part: Part,
    order: int,
    measures: Mapping[str, Measure],
    scores: Scores | None,
    instrument: Instrument,
    subject: str,
) -> TensorFinding:
    whole = combined(measures.values())
    found = judge_structure(part, whole) if instrument == "structure" else judge_precision(part, whole, scores)
    slope = scores.slope if scores and instrument == "precision" else whole.slope
    broken = next((name for name, one in measures.items() if one.problem), None)
    return TensorFinding(
        name=part.name,
        layer=part.layer,
        kind=part.kind,
        order=order,
        instrument=instrument,
        subject=subject,
        scenario=_worst(measures, found.measure) if broken is None else broken,
        elements=whole.elements,
        error=whole.widest,
        magnitude=whole.magnitude,
        slope=slope,
        bias=whole.bias,
        spread=whole.loudest,
        rows=whole.rows,
        measure=found.measure,
        limit=found.limit,
        problem=_problem(part, whole, found),
    )


def _worst(measures: Mapping[str, Measure], measure: str) -> str:
    """Name the call that speaks loudest for what decided: sums over many tokens, or the largest single value."""
    loudness: Mapping[str, Callable[[Measure], float]] = {
        "error": lambda found: found.widest,
        "spread": lambda found: found.loudest,
        "slope": lambda found: abs(found.product),
        "bias": lambda found: abs(found.total),
        "rows": lambda found: found.moved - found.explained,
    }
    return max(measures, key=lambda name: loudness[measure](measures[name]))


def _problem(part: Part, whole: Measure, found: Judgement) -> str:
    if whole.problem:
        return f"{part.name} {whole.problem}"
    if not found.wrong:
        return ""
    return f"{part.name}: {found.measure} is off by {found.distance:.2e} ({spelled(found.limit)} allowed)"
