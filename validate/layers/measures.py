"""How far a tensor is from what was expected: pure functions, in FP64 sums, over real tokens only.

With r expected and y found, and d = y − r:

- error: max |d| / max |r|.
- slope: 1 + Σ w d r / Σ w r², with w = 1 / (r² + m²) and m the median of |r|. A scale that is off shows here however
  much noise lies on it. The weights keep a few large values from speaking for all: in a trained model some channels
  are a thousand times the others, and the rounding of one value is no scale (unweighted, right blocks of a 135M model
  had slopes of up to 2.5e-3; weighted, 2.7e-4).
- bias: |Σ d| / n, as a part of the root mean square of r.
- spread: sqrt(Σ d² / Σ r²). What rounding gives is known; more is a fault.
- rows: the standard deviation of the tokens' own slopes, beyond what independent noise explains (a variance of
  Σ w² r² d² / (Σ w r²)² for each). Statistics that were rounded once a row move a whole row together, which no single
  value shows. Tokens that right rounding moves together are left out (`steady`).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import reduce

import numpy as np

from runtime.session import Array

SAMPLE = 1 << 14
"""Values from which the median is taken; every n-th, n odd, so that they are not all of one channel."""
NEAR = 2.0**-7
"""How near to a power of two a norm's factor must be for its roundings to depend on one another. Simulated with normal
values: single slopes of up to 1.9e-3 nearer than that, 1e-4 (root mean square) farther away."""
AT_ONCE = 1 << 15
"""Values that are summed up at once: 256 KB in FP64, which a processor's cache holds a few times."""


@dataclass(frozen=True)
class Measure:
    """Sums over one tensor, or over several of the same kind.

    Attributes:
        widest: the largest error of any one of them.
        loudest: the largest spread of any one of them.
        problem: why nothing can be measured.
    """

    elements: int = 0
    largest: float = 0.0
    magnitude: float = 0.0
    squares: float = 0.0
    expected: float = 0.0
    weight: float = 0.0
    product: float = 0.0
    total: float = 0.0
    shifted: float = 0.0
    moved: float = 0.0
    count: int = 0
    explained: float = 0.0
    widest: float = 0.0
    loudest: float = 0.0
    problem: str = ""

    @property
    def slope(self) -> float:
        """Least squares factor between found and expected."""
        return 1 + self.product / self.weight if self.weight else 1.0

    @property
    def spread(self) -> float:
        """Root mean square of the difference as a part of the expected one."""
        return float(_ratio(self.squares, self.expected) ** 0.5)

    @property
    def bias(self) -> float:
        """Mean difference as a part of the expected root mean square."""
        return _ratio(abs(self.total), (self.expected * self.elements) ** 0.5)

    @property
    def rows(self) -> float:
        """Standard deviation of the rows' slopes, beyond their noise."""
        beyond = self.moved - self.explained - self.shifted**2 / max(self.count, 1)
        return float((max(beyond, 0.0) / max(self.count, 1)) ** 0.5)

    def __add__(self, other: Measure) -> Measure:
        """Put the sums of two tensors together."""
        sums = (
            "elements",
            "squares",
            "expected",
            "weight",
            "product",
            "total",
            "shifted",
            "moved",
            "count",
            "explained",
        )
        largest = ("largest", "magnitude", "widest", "loudest")
        return Measure(
            **{name: getattr(self, name) + getattr(other, name) for name in sums},
            **{name: max(getattr(self, name), getattr(other, name)) for name in largest},
            problem=self.problem or other.problem,
        )


def steady(inputs: Array, epsilon: float) -> Array:
    """Tell the tokens of an RMS norm whose values are rounded each in its own way.

    A BF16 value times nearly a power of two is rounded back to its own digits. All values of a token are then off by
    the same factor, and nothing is wrong.

    Args:
        inputs: what the norm is given, (tokens, width).
        epsilon: added to the mean square.

    Returns:
        (tokens,), boolean.
    """
    factors = 1 / np.sqrt(np.square(inputs.astype(np.float64)).mean(axis=1) + epsilon)
    digits = 2 * np.frexp(factors)[0]
    return np.asarray(np.minimum(digits - 1, 1 - digits / 2) > NEAR)


def measure(actual: Array, expected: Array, among: Array | None = None) -> Measure:
    """Measure rows of one tensor, (tokens, width); anything but finite numbers of the same shape is a problem.

    A number without axes is one row of one value.

    Args:
        actual: what was found.
        expected: what is right.
        among: which rows' own slopes count, (tokens,), boolean; all of them if not given.
    """
    if actual.shape != expected.shape:
        return Measure(problem=f"has shape {actual.shape}, expected {expected.shape}")
    if not actual.size:
        return Measure(problem="has no elements")
    r, y = (side.reshape(len(np.atleast_1d(side)), -1) for side in (expected, actual))
    middle = float(np.median(np.abs(r.reshape(-1)[:: r.size // SAMPLE | 1].astype(np.float64))))
    step = max(1, AT_ONCE // r.shape[1])
    rows = np.ones(len(r), np.bool_) if among is None else among
    pieces = (slice(row, row + step) for row in range(0, len(r), step))
    whole = combined(_sums(y[piece], r[piece], middle, rows[piece]) for piece in pieces)
    if whole.problem:
        strange = [int(np.count_nonzero(~np.isfinite(side.astype(np.float32)))) for side in (actual, expected)]
        return Measure(problem=f"has {strange[0]} of {actual.size} values not finite, the reference {strange[1]}")
    widest, loudest = _ratio(whole.largest, whole.magnitude), _ratio(whole.squares, whole.expected) ** 0.5
    return replace(whole, widest=widest, loudest=loudest)


def _sums(actual: Array, expected: Array, middle: float, among: Array) -> Measure:
    """Sum up some rows, few enough that all of it stays in the processor's cache."""
    r = expected.astype(np.float64)
    d = actual.astype(np.float64) - r
    square, change = np.square(r), np.abs(d)
    largest, magnitude = float(change.max()), float(np.abs(r).max())
    # A value that is not finite on either side is one of these too; a BF16 value is finite in FP64 if it was.
    if not np.isfinite(largest + magnitude):
        return Measure(problem="is not finite")
    weighted = r / np.maximum(square + middle**2, np.finfo(np.float64).tiny)
    power, moved = np.einsum("ij,ij->i", weighted, r), weighted * d
    products, noise = moved.sum(axis=1), np.einsum("ij,ij->i", moved, moved)
    counted = among & (power > 0)
    slopes = products[counted] / power[counted]
    return Measure(
        elements=d.size,
        largest=largest,
        magnitude=magnitude,
        squares=float(np.einsum("ij,ij->", d, d)),
        expected=float(square.sum()),
        weight=float(power.sum()),
        product=float(products.sum()),
        total=float(d.sum()),
        shifted=float(slopes.sum()),
        moved=float(np.square(slopes).sum()),
        count=len(slopes),
        explained=float((noise[counted] / np.square(power[counted])).sum()),
    )


def combined(measures: Iterable[Measure]) -> Measure:
    """Put the measures of several tensors together."""
    return reduce(Measure.__add__, measures, Measure())


@dataclass(frozen=True)
class Scores:
    """Sums that tell by which factor the scores of an attention are off: d = a·g + b·r, fitted by least squares.

    g is the derivative of the result with respect to a factor of the scores, at 1. A direction of its own: a scale of
    the scores hardly scales the result, and is lost in its noise; along g it is found again.

    Attributes:
        sums: Σ g², Σ g r, Σ r², Σ g d, Σ r d, Σ d² of each token, (tokens, 6).
        elements: values in all.
    """

    sums: Array
    elements: int

    @classmethod
    def of(cls, actual: Array, expected: Array, change: Array) -> Scores:
        """Sum up one call; (tokens, width) each."""
        r, g = (side.reshape(len(side), -1).astype(np.float64) for side in (expected, change))
        d = actual.reshape(len(actual), -1).astype(np.float64) - r
        pairs = ((g, g), (g, r), (r, r), (g, d), (r, d), (d, d))
        return cls(np.stack([np.einsum("ij,ij->i", left, right) for left, right in pairs], axis=1), d.size)

    def __add__(self, other: Scores) -> Scores:
        """Put two calls together."""
        return Scores(np.concatenate([self.sums, other.sums]), self.elements + other.elements)

    @property
    def slope(self) -> float:
        """1 + a."""
        return 1 + self._fit()[0]

    @property
    def noise(self) -> float:
        """Standard error of the slope; infinite where scores make no difference.

        The larger of two: as if all differences were independent, and as if those of one token were not. How a token's
        probabilities are rounded is shared by all of its values, which counts where attention is nearly flat.
        """
        gg, gr, rr, _, _, dd = self.sums.sum(axis=0)
        apart = gg - gr * gr / rr if rr else 0.0
        if not apart > 0:
            return float("inf")
        a, b = self._fit()
        _, _, _, gd, rd, _ = self.sums.T
        # Each token's part of the normal equation along g, freed of r.
        parts = gd - self.sums[:, :2] @ (a, b) - gr / rr * (rd - self.sums[:, 1:3] @ (a, b))
        return float(max((dd / self.elements / apart) ** 0.5, np.square(parts).sum() ** 0.5 / apart))

    def _fit(self) -> tuple[float, float]:
        gg, gr, rr, gd, rd, _ = (float(whole) for whole in self.sums.sum(axis=0))
        apart = gg * rr - gr * gr
        return ((gd * rr - rd * gr) / apart, (rd * gg - gd * gr) / apart) if apart > 0 else (0.0, 0.0)


def _ratio(part: float, whole: float) -> float:
    if part == 0:
        return 0.0
    return part / whole if whole else float("inf")
