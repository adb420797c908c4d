"""Says in words what the pattern of a wrong tensor means, and where to look next."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from artifacts import names
from artifacts.config import ModelConfig
from validate.layers.anatomy import Part
from validate.layers.evidence import Evidence
from validate.layers.findings import TensorFinding
from validate.layers.subject import RUNTIME

ROTATED = (names.Q_ROTARY, names.K_ROTARY, "present.key")
WHOLE = 256
"""BF16 holds every integer up to this one, and no odd one above."""
GROWTH = 1 / 8
"""A tensor whose counterpart one layer before had this part of its error was not made wrong here."""


@dataclass(frozen=True)
class Case:
    """One wrong tensor and what is known around it.

    Attributes:
        row: its finding.
        evidence: what a close look showed; nothing if it could not be compared.
        wrong_calls: the calls in which it is wrong; all calls are `calls`, those with a filled cache `filled`.
        before: error of the same kind one layer before, as a part of this one's.
    """

    part: Part
    row: TensorFinding
    evidence: Evidence | None
    wrong_calls: frozenset[str]
    calls: Sequence[str]
    filled: frozenset[str]
    before: float


def explain(case: Case, elsewhere: Mapping[str, frozenset[str]], config: ModelConfig) -> tuple[str, str]:
    """Give one word for the pattern, and sentences that say what it means.

    Args:
        case: the wrong tensor.
        elsewhere: for other subjects that were judged by structure the calls in which they have it wrong, by label.
        config: the model's facts.
    """
    pattern, meaning = _pattern(case, config)
    return pattern, " ".join(filter(None, (f"{case.row.problem};", meaning, _whose_fault(case, elsewhere))))


def _pattern(case: Case, config: ModelConfig) -> tuple[str, str]:
    seen = case.evidence
    if seen is None:
        return "bookkeeping", "it cannot be compared; look at names, shapes and values before anything else."
    if seen.holds:
        return "structure", f"it holds what {seen.holds} should hold: names, weights or cache entries are swapped."
    if seen.heads:
        order = ", ".join(map(str, seen.heads))
        return (
            "structure",
            f"its heads stand in the order {order}: heads are permuted (weights, or how they are grouped).",
        )
    if case.part.kind == names.MASK:
        return "position", _mask(case)
    if case.row.measure == "rows":
        return "precision", "whole tokens are scaled, each by its own factor: statistics of the norm are kept in BF16."
    if case.row.measure == "slope" and case.part.kind == names.ATTENTION:
        scale = case.row.slope or 0.0
        return "slope", f"its scores are {scale:.4f} times what they should be: the score scale, or q or k, is scaled."
    if seen.scaled:
        return "slope", f"every value is {seen.slope:.4f} times what it should be: a scale is off."
    where = _where(case)
    if where:
        return "position", where
    if case.part.kind in ROTATED and not (seen.begins is not None and seen.begins > WHOLE):
        return _rotation(case, config)
    if case.row.instrument == "structure" and case.before > GROWTH:
        return "growing", "the layer before is nearly as far off: it grows from layer to layer, which is precision."
    if seen.begins is not None and seen.begins > 0:
        return (
            "position",
            f"right up to position {seen.begins - 1}, wrong from {seen.begins}: cache, mask or positions"
            + (" (BF16 holds no odd integer above 256)." if seen.begins > WHOLE else "."),
        )
    if case.row.instrument == "precision":
        return "precision", "it is rounded more, or earlier, than it should be."
    return "structure", "wrong from the start, at every position: weights or config."


def _rotation(case: Case, config: ModelConfig) -> tuple[str, str]:
    layer = case.part.layer or 0
    says = "rotates" if config.uses_rope[layer] else "does not rotate"
    return "structure", f"config.json says that layer {layer} {says}: the rotation, its theta or its tables are others."


def _where(case: Case) -> str:
    """Say which calls are wrong, where that tells something."""
    right = set(case.calls) - case.wrong_calls
    plain = {name for name in case.calls if "padded" not in name}
    if plain & right and plain & case.wrong_calls and plain & case.wrong_calls <= case.filled:
        return "right with an empty cache, wrong with a filled one: cache or mask (a causal mask aligned otherwise)."
    if (
        right
        and case.evidence is not None
        and case.evidence.padded_only
        and all("padded" in c for c in case.wrong_calls)
    ):
        return "right without padding, wrong in padded rows: a mask of positions instead of slots, or none of padding."
    return ""


def _mask(case: Case) -> str:
    return _where(case) or "queries may look at other slots than they should: the mask itself is made wrong."


def _whose_fault(case: Case, elsewhere: Mapping[str, frozenset[str]]) -> str:
    """Say what the other subjects say of the same tensor."""
    if case.row.instrument == "precision":
        if not case.row.scenario:
            return ""  # no block was computed again
        return "The block is recomputed from its own inputs, so the fault is in this block of the BF16 graph."
    right = sorted(label for label, wrong in elsewhere.items() if not wrong)
    wrong = sorted(label for label, wrong in elsewhere.items() if wrong)
    if wrong and elsewhere[wrong[0]] != case.wrong_calls:
        calls = ", ".join(sorted(elsewhere[wrong[0]]))
        words = "TensorRT's parser took the graph otherwise (docs/importer.md)."
        return f"{wrong[0]} is wrong in other calls ({calls}): {words}"
    if wrong:
        return "Both runtimes say so: the fault is in the graph, not in what TensorRT made of it."
    if right and case.row.subject.startswith(RUNTIME):
        return f"{right[0]} has it right on the same file: ONNX Runtime computes it otherwise, or with more noise."
    if right:
        return f"{right[0]} has it right on the same file: TensorRT's parser took it otherwise (docs/importer.md)."
    return ""
