"""Compare named arrays: pure functions that count what they compared and cannot pass on nothing.

A missing name, an extra name, another shape, a value that is not finite on either side, and a comparison of no
elements are each a "no". Names are matched exactly. The measure is the largest difference over the largest magnitude
of the expected tensor.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from artifacts.contract import LOGITS
from runtime.session import Array

TOLERANCE = 1e-4
"""Largest difference of FP32 results, as a part of the tensor's largest magnitude; docs/validate.md has what was
measured."""

EXPLAINED = 8
"""Problems of one tally for which another owner of the tensor is looked for: each looks at every tensor."""

_BLOCK = 1 << 18
"""Elements that are compared at once: 1 MB, so that the copies stay in the processor's cache."""


@dataclass(frozen=True)
class Difference:
    """How far one tensor is from what was expected.

    Attributes:
        largest: largest absolute difference.
        magnitude: largest absolute value that was expected.
        squares: sum of squared differences.
        problem: why the tensor cannot be compared, if it cannot.
    """

    name: str
    elements: int
    largest: float = 0.0
    magnitude: float = 0.0
    squares: float = 0.0
    problem: str = ""

    @property
    def relative(self) -> float:
        """Largest difference as a part of the largest magnitude."""
        if self.largest == 0:
            return 0.0
        return self.largest / self.magnitude if self.magnitude else float("inf")


def difference(name: str, actual: Array, expected: Array) -> Difference:
    """Measure one tensor against what was expected, in blocks; both may be memory-mapped."""
    if actual.shape != expected.shape:
        return Difference(name, 0, problem=f"{name} has shape {actual.shape}, expected {expected.shape}")
    left, right = actual.reshape(-1), expected.reshape(-1)
    largest = magnitude = squares = 0.0
    strange = [0, 0]
    for start in range(0, left.size, _BLOCK):
        found = left[start : start + _BLOCK].astype(np.float32)
        wanted = right[start : start + _BLOCK].astype(np.float32)
        strange[0] += int(np.count_nonzero(~np.isfinite(found)))
        strange[1] += int(np.count_nonzero(~np.isfinite(wanted)))
        with np.errstate(invalid="ignore"):
            found -= wanted
        largest = max(largest, float(np.abs(found).max()))
        magnitude = max(magnitude, float(np.abs(wanted).max()))
        squares += float(np.dot(found, found))
    problem = ""
    if any(strange):
        problem = f"{name}: {strange[0]} of {left.size} values are not finite, of those expected {strange[1]}"
    return Difference(name, int(left.size), largest, magnitude, squares, problem)


@dataclass
class Tally:
    """What a set of comparisons came to; add to it with `compare`.

    Attributes:
        tolerance: largest relative difference that agrees; nothing where only finiteness is judged.
        logits: elements of logits among all; `largest`, `magnitude` and `squares` are theirs too.
        worst: the tensor with the largest relative difference, of logits and of cache tensors.
    """

    tolerance: float | None = TOLERANCE
    tensors: int = 0
    elements: int = 0
    logits: int = 0
    worst: dict[str, Difference] = field(default_factory=dict)
    largest: float = 0.0
    magnitude: float = 0.0
    squares: float = 0.0
    problems: list[str] = field(default_factory=list)

    def compare(self, where: str, actual: Mapping[str, Array], expected: Mapping[str, Array]) -> None:
        """Compare two sets of arrays under the same names.

        Args:
            where: which part of the run it is, for the messages.
            actual: what came out.
            expected: what should have.
        """
        for name in sorted(expected.keys() - actual.keys()):
            self.problems.append(f"{where}: {name} is missing")
        for name in sorted(actual.keys() - expected.keys()):
            self.problems.append(f"{where}: {name} was not expected")
        for name in sorted(expected.keys() & actual.keys()):
            self._add(where, difference(name, actual[name], expected[name]), actual[name], expected)

    def _add(self, where: str, found: Difference, actual: Array, expected: Mapping[str, Array]) -> None:
        self.tensors += found.elements > 0
        self.elements += found.elements
        if found.problem or not found.elements:
            self.problems.append(f"{where}: {found.problem or found.name + ' has no elements'}")
            return
        group = "logits" if found.name == LOGITS else "cache"
        if group not in self.worst or self.worst[group].relative < found.relative:
            self.worst[group] = found
        if group == "logits":
            self.logits += found.elements
            self.largest = max(self.largest, found.largest)
            self.magnitude = max(self.magnitude, found.magnitude)
            self.squares += found.squares
        if self.tolerance is not None and found.relative > self.tolerance:
            few = len(self.problems) < EXPLAINED
            owner = whose(found.name, actual, expected, self.tolerance) if few else ""
            self.problems.append(
                f"{where}: {found.name} is off by {found.relative:.2e} of its largest magnitude {found.magnitude:.3g}"
                + (f"; it holds {owner}" if owner else "")
            )

    def finish(self) -> list[str]:
        """Give every problem, with those of a tally that compared nothing."""
        missing = [f"no {group} compared" for group in ("logits", "cache") if group not in self.worst]
        return [*self.problems, *missing]


def whose(name: str, actual: Array, expected: Mapping[str, Array], tolerance: float) -> str:
    """Give the name of the expected tensor that this one really is, so that swapped names are called by name."""
    for other, array in expected.items():
        if other != name and array.shape == actual.shape and difference(other, actual, array).relative <= tolerance:
            return other
    return ""
