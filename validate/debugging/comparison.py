"""How far each side's outputs are from the reference's, and what follows from who differs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from runtime.session import Array
from validate.layers.limits import ROUNDED_ONCE, SURE
from validate.layers.measures import Scores, measure

TOLERANCE = 1e-4
"""Limit for FP32, of the largest magnitude; over every kind of piece of `random:tiny` 1.3e-6 at most was measured."""
BF16_TOLERANCE = 2.0**-5
"""Limit for BF16, the same; its rounding alone came to 0.015 over a whole layer, 0.006 over one step."""
MANY = 100
"""Tokens from which on one step's slope, and the factor of an attention's scores, is held to the report's limit."""
BF16_SLOPE = 2.0**-8
"""Limit of a BF16 output's slope from 1 over fewer tokens, and of a whole layer: BF16's last bit. Rounding alone came
to 0.9e-3 over a step on few tokens, 1.9e-3 over a layer, and 2.9e-4 over a step on many."""
FEW_SCORES = 4e-3
"""Limit of the factor of the scores over fewer tokens: correct BF16 was 1.7e-4 off over 301 tokens, and up to 2.4e-3
over 22 or less; `Attention.scale` was 3.1e-3 off."""


@dataclass(frozen=True)
class Reading:
    """One output of one side.

    Attributes:
        side: who computed it.
        error: largest difference from the reference as a part of its largest magnitude.
        slope: least squares factor between the two.
        limit: of the slope's distance from 1.
        problem: why nothing can be measured.
        scores: of an attention, by which factor its scores are off, and the limit of that factor's distance from 1.
    """

    side: str
    output: str
    error: float
    slope: float
    limit: float
    problem: str = ""
    scores: tuple[float, float] | None = None

    @property
    def bf16(self) -> bool:
        """Whether BF16's rounding is in it."""
        return is_bf16(self.side)

    @property
    def right(self) -> bool:
        """Whether it is within its limits."""
        widest = BF16_TOLERANCE if self.bf16 else TOLERANCE
        scores = self.scores is None or abs(self.scores[0] - 1) <= self.scores[1]
        return not self.problem and self.error <= widest and abs(self.slope - 1) <= self.limit and scores

    @property
    def verdict(self) -> str:
        """Whether it is right, with the factor of its scores where that is known."""
        words = "within its limit" if self.right else "WRONG"
        return words if self.scores is None else f"{words}; scores × {self.scores[0]:.5f} ± {self.scores[1]:.1e}"


def is_bf16(side: str) -> bool:
    """Whether a side computes in BF16."""
    return side.endswith("bf16.onnx")


def slope_limit(tokens: int, *, whole_layer: bool) -> float:
    """Give how far from 1 the slope of a BF16 output may be, for a piece that reads so many tokens."""
    return BF16_SLOPE if whole_layer or tokens < MANY else ROUNDED_ONCE.slope


def read_all(
    expected: Mapping[str, Array],
    sides: Mapping[str, Mapping[str, Array]],
    slope: float,
    change: Array | None = None,
) -> tuple[Reading, ...]:
    """Compare every side's outputs with the reference's.

    Args:
        expected: what is right.
        sides: what each side gave.
        slope: limit of a BF16 slope's distance from 1 (see `slope_limit`).
        change: of an attention alone, the derivative of its result with respect to a factor of its scores.
    """
    found = []
    for side, outputs in sides.items():
        for name, wanted in expected.items():
            measured = measure(outputs[name], wanted)
            scores = None if change is None or measured.problem else _scores(outputs[name], wanted, change)
            limit = slope if is_bf16(side) else TOLERANCE
            found.append(Reading(side, name, measured.widest, measured.slope, limit, measured.problem, scores))
    return tuple(found)


def _scores(actual: Array, expected: Array, change: Array) -> tuple[float, float]:
    """Give the factor of the scores, and how far from 1 it may be; arrays are (B, H, S, D)."""
    tokens = [side.swapaxes(1, 2).reshape(side.shape[0] * side.shape[2], -1) for side in (actual, expected, change)]
    found = Scores.of(*tokens)
    many = len(tokens[0]) >= MANY
    return found.slope, max(ROUNDED_ONCE.slope if many else FEW_SCORES, SURE * found.noise)


def conclusion(readings: Sequence[Reading], unlike: str = "") -> str:
    """Say in words whose fault the difference is, in the order in which the sides depend on each other.

    Args:
        readings: what was measured, ONNX Runtime's first.
        unlike: that the piece in BF16 begins elsewhere than its twin, in words, if it does.
    """
    return f"{unlike} {_conclusion(readings, bool(unlike))}".lstrip()


def _conclusion(readings: Sequence[Reading], unlike: bool) -> str:
    wrong = list(dict.fromkeys(reading.side for reading in readings if not reading.right))
    if not wrong:
        return (
            "Every side is within its limit here: this piece alone does not show a fault on this call. If the report "
            "judged by another number (spread, rows) or over more calls, try another --call, one of many tokens for a "
            "slope; the values are in the files below. Else cut a larger piece (`make debug LAYER=…`)."
        )
    if wrong[0].startswith("ONNX Runtime"):
        if not any(map(is_bf16, wrong)):
            return (
                "ONNX Runtime is wrong on the FP32 twin, and the BF16 graph, which is what goes to TensorRT, is within "
                "its limit: either the twin alone is wrong (what made it of the BF16 graph, or changed it since), or "
                "the fault is too small to be told from BF16's rounding. TensorRT has no part in it."
            )
        return (
            "ONNX Runtime shows it as well: the graph itself says something else than the raw export. It is a fault "
            "of surgery, or of whatever changed the graph since; TensorRT has no part in it."
        )
    if not is_bf16(wrong[0]):
        return (
            "ONNX Runtime is right and TensorRT's network is not, in FP32: TensorRT's parser understood this piece "
            "differently. This folder is what to send to NVIDIA."
        )
    if unlike:
        return (
            "In FP32 both are right and in BF16 TensorRT's network is not: the fault is in how the BF16 graph is "
            "wired, and its twin does not have it."
        )
    return (
        "In FP32 both are right; in BF16 TensorRT's network is further off than rounding explains: the types or the "
        "order of rounding in the BF16 graph, or what the parser makes of them."
    )
