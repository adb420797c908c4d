"""Limits, each set from what correct graphs give; docs/layers.md has the table that they were read from.

Structure: an FP32 twin may differ by 1e-4 of a tensor's largest magnitude. Right graphs: up to 5.1e-5 (an attention in
8 layers of sharp random weights), 1.6e-5 in a trained model of 135M.

Precision: a block of the BF16 network against the same block in FP32 from the same inputs. What correct rounding gives
depends on how often a block rounds: a projection or a sum once, a norm twice, an attention its scaled q, its
probabilities and its result, SwiGLU four times before its projection.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from artifacts import names
from validate.layers.anatomy import ATTENTION, OTHER, Part
from validate.layers.measures import Measure, Scores

STRUCTURE = 1e-4
CARRIED = 1e-3
"""What is off by more than STRUCTURE and no more than this is computed once more from the reference's own inputs: noise
of FP32 grows from layer to layer (1.3e-4 in attentions of 36 layers of sharp random weights), a fault stays a fault."""
LOGITS_SPREAD = 0.15
"""Of a whole BF16 network's logits, root mean square of the difference over that of the logits. Wide on purpose: noise
grows with depth, and what is wrong was seen block by block before; garbage is at 1."""
SURE = 6
"""Standard errors that a slope of scores must be off by."""
EXACT = (names.EMBEDDING, names.MASK, "present.key", "present.value")
"""Kinds that only move values: no rounding, no difference."""
NORMS = (names.NORM, names.POST_NORM, names.FINAL_NORM)


def spelled(limit: float) -> str:
    """Write a limit as short as it is true.

    >>> spelled(1e-4), spelled(1.2e-2)
    ('1e-04', '1.2e-02')
    """
    return f"{limit:.1e}".replace(".0e", "e")


@dataclass(frozen=True)
class Limits:
    """How far each measure of a block may be from what is right."""

    slope: float = 1e-3
    bias: float = 1e-3
    spread: float = 5e-3
    rows: float = float("inf")


ROUNDED_ONCE = Limits()
BY_KIND = {
    ATTENTION: Limits(spread=1.2e-2),
    names.DOWN_PROJ: Limits(spread=1.2e-2),
    OTHER: Limits(spread=1.2e-2),
    **dict.fromkeys(NORMS, Limits(spread=6e-3, rows=5.5e-4)),
    **dict.fromkeys(EXACT, Limits(0, 0, 0)),
}


@dataclass(frozen=True)
class Judgement:
    """The measure that decided, or that is nearest to its limit."""

    measure: str
    distance: float
    limit: float

    @property
    def wrong(self) -> bool:
        """Whether it is over its limit, or no number."""
        return not self.distance <= self.limit


def judge_structure(part: Part, found: Measure) -> Judgement:
    """Judge a tensor of an FP32 twin; what only moves values must be equal wherever its inputs are."""
    return Judgement("error", found.widest, 0.0 if part.kind == names.MASK else STRUCTURE)


def judge_precision(part: Part, found: Measure, scores: Scores | None = None) -> Judgement:
    """Judge a block.

    Args:
        part: which block it ends.
        found: sums over all calls.
        scores: what is known of an attention's scores; their slope takes the place of the result's own.
    """
    limits = BY_KIND.get(part.kind, ROUNDED_ONCE)
    if scores is not None:
        # Scores that make no difference cannot be judged: nearly flat attention, one slot only.
        limits = replace(limits, slope=max(limits.slope, SURE * scores.noise))
    distances = {
        "slope": abs((found.slope if scores is None else scores.slope) - 1),
        "bias": found.bias,
        "spread": found.loudest,
        "rows": found.rows,
    }
    judged = [Judgement(name, distance, getattr(limits, name)) for name, distance in distances.items()]
    return next((one for one in judged if one.wrong), max(judged, key=_nearness))


def _nearness(judgement: Judgement) -> float:
    return judgement.distance / judgement.limit if judgement.limit else 0.0
