"""How far a tensor is from what was expected: pure functions, in FP64 sums, over real tokens only.

With r expected and y found, and d = y − r:

- error: max |d| / max |r|.
- slope: 1 + Σ d r / Σ r². A scale that is off shows here however much noise lies on it.
- bias: |Σ d| / n, as a part of the root mean square of r.
- spread: sqrt(Σ d² / Σ r²). What rounding gives is known; more is a fault.
- rows: each token's own slope, squared distance from 1, over what its noise explains (Σ r² d² / (Σ r²)²). Statistics
  that were rounded once a row move a whole row together, which no single value shows.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import reduce
from typing import Any

import numpy as np

from runtime.session import Array


@dataclass(frozen=True)
class Measure:
    """Sums over one tensor, or over several of the same kind.

    Attributes:
        widest: the largest error of any one of them.
        loudest: the largest spread of any one of them.
        begins: position of the first token that is wrong, if some before it are right.
        problem: why nothing can be measured.
    """

    elements: int = 0
    largest: float = 0.0
    magnitude: float = 0.0
    squares: float = 0.0
    expected: float = 0.0
    product: float = 0.0
    total: float = 0.0
    moved: float = 0.0
    explained: float = 0.0
    widest: float = 0.0
    loudest: float = 0.0
    problem: str = ""

    @property
    def slope(self) -> float:
        """Least squares factor between found and expected."""
        return 1 + self.product / self.expected if self.expected else 1.0

    @property
    def bias(self) -> float:
        """Mean difference as a part of the expected root mean square."""
        return _ratio(abs(self.total), (self.expected * self.elements) ** 0.5)

    @property
    def rows(self) -> float:
        """How much more rows' slopes vary than their noise explains; 1 where nothing differs."""
        return self.moved / self.explained if self.explained else 1.0

    def __add__(self, other: Measure) -> Measure:
        """Put the sums of two tensors together."""
        sums = ("elements", "squares", "expected", "product", "total", "moved", "explained")
        largest = ("largest", "magnitude", "widest", "loudest")
        return Measure(
            **{name: getattr(self, name) + getattr(other, name) for name in sums},
            **{name: max(getattr(self, name), getattr(other, name)) for name in largest},
            problem=self.problem or other.problem,
        )


def measure(actual: Array, expected: Array) -> Measure:
    """Measure rows of one tensor, (tokens, width); anything but finite numbers of the same shape is a problem."""
    if actual.shape != expected.shape:
        return Measure(problem=f"has shape {actual.shape}, expected {expected.shape}")
    if not actual.size:
        return Measure(problem="has no elements")
    strange = [int(np.count_nonzero(~np.isfinite(side.astype(np.float32)))) for side in (actual, expected)]
    if any(strange):
        return Measure(problem=f"has {strange[0]} of {actual.size} values not finite, the reference {strange[1]}")
    r = expected.reshape(len(expected), -1).astype(np.float64)
    d = actual.reshape(len(actual), -1).astype(np.float64) - r
    power, products = np.einsum("ij,ij->i", r, r), np.einsum("ij,ij->i", d, r)
    noise = np.einsum("ij,ij,ij,ij->i", r, r, d, d)
    rows = power > 0
    largest, magnitude = float(np.abs(d).max()), float(np.abs(r).max())
    squares, whole = float(np.square(d).sum()), float(power.sum())
    return Measure(
        elements=d.size,
        largest=largest,
        magnitude=magnitude,
        squares=squares,
        expected=whole,
        product=float(products.sum()),
        total=float(d.sum()),
        moved=float(np.square(products[rows] / power[rows]).sum()),
        explained=float((noise[rows] / np.square(power[rows])).sum()),
        widest=_ratio(largest, magnitude),
        loudest=_ratio(squares, whole) ** 0.5,
    )


def combined(measures: Iterable[Measure]) -> Measure:
    """Put the measures of several tensors together."""
    return reduce(Measure.__add__, measures, Measure())


def sensitivity(actual: Array, expected: Array, change: Array) -> tuple[float, float]:
    """Fit d = a·change + b·r by least squares: how far along a known direction a result has moved, and its scale.

    Args:
        actual: what came out.
        expected: what should have, r.
        change: derivative of r with respect to some factor, at 1.

    Returns:
        a and b; a is nothing (0) where the result does not depend on the factor.
    """
    r, g = (side.reshape(-1).astype(np.float64) for side in (expected, change))
    d = actual.reshape(-1).astype(np.float64) - r
    normal = np.array([[g @ g, g @ r], [g @ r, r @ r]])
    solved: Any = np.linalg.lstsq(normal, np.array([g @ d, r @ d]), rcond=1e-9)[0]
    return float(solved[0]), float(solved[1])


def _ratio(part: float, whole: float) -> float:
    if part == 0:
        return 0.0
    return part / whole if whole else float("inf")
