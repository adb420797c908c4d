"""Two optimization profiles, prefill and decode, from one formula, so that no step of a generation falls between them.

A step feeds S new tokens after P past ones, to B sequences at once, and T = P + S. A profile is a box of such steps:
each axis lies within its own bounds. With a context of C tokens, the box for up to N new tokens is

    batch 1…B    new 1…N    past 0…C-1    total 1…C-1+N

Its far corner lies up to N-1 tokens beyond the context. It has to: at min, opt and max T must be P + S, and a box that
ended at T = C would leave out the last token of the context (past C-1, new 1), or a chunk that begins anywhere but at a
multiple of the chunk. Prefill has N = the chunk, decode N = 2: a decode profile of exactly one row makes
TensorRT-RTX store all weights a second time.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from artifacts.contract import BATCH, PAST, SEQUENCE, TOTAL, TensorSpec

DECODE_NEW = 2
"""Most new tokens of a decode step. One would be enough, and would double the plan."""

POINTS = ("min", "opt", "max")


@dataclass(frozen=True)
class Step:
    """One call of the model: `batch` sequences get `new` tokens each after `past` that the cache holds."""

    batch: int
    new: int
    past: int

    @property
    def total(self) -> int:
        """Length of the attention mask, T = P + S."""
        return self.past + self.new

    @property
    def axes(self) -> dict[str, int]:
        """Length of every symbolic axis of the contract."""
        return {BATCH: self.batch, SEQUENCE: self.new, PAST: self.past, TOTAL: self.total}


@dataclass(frozen=True)
class StepProfile:
    """A box of steps; `name` is prefill, decode, or profile-N for one that the user added."""

    name: str
    min: Step
    opt: Step
    max: Step

    def takes(self, step: Step) -> bool:
        """Whether every axis of the step lies within the box."""
        low, high = self.min.axes, self.max.axes
        return all(low[axis] <= length <= high[axis] for axis, length in step.axes.items())

    def shapes(self, inputs: Iterable[TensorSpec]) -> dict[str, tuple[tuple[int, ...], ...]]:
        """Give each input's shapes at min, opt and max."""
        return {spec.name: tuple(shape(spec, getattr(self, point)) for point in POINTS) for spec in inputs}

    def record(self, inputs: Sequence[TensorSpec]) -> dict[str, object]:
        """Give the profile as JSON values: the graph's symbolic axes at min, opt and max."""
        used = {axis for spec in inputs for axis in spec.axes}
        points = {point: getattr(self, point).axes for point in POINTS}
        return {"name": self.name} | {
            point: {axis: length for axis, length in axes.items() if axis in used} for point, axes in points.items()
        }


def shape(spec: TensorSpec, step: Step) -> tuple[int, ...]:
    """Give a tensor's shape in one step."""
    return tuple(axis if isinstance(axis, int) else step.axes[axis] for axis in spec.axes)


def default_profiles(batch: int, context: int, chunk: int, *, linear: bool = False) -> tuple[StepProfile, StepProfile]:
    """Give the prefill and the decode profile.

    Args:
        batch: most sequences at once.
        context: C, tokens that past and new may have together.
        chunk: most new tokens of a prefill step, at most `context`.
        linear: the cache has a fixed capacity, so that past is no axis of the graph.
    """
    first, half, last = Step(1, 1, 0), context // 2, context - 1
    if linear:
        half = last = 0
    prefill = StepProfile("prefill", first, Step(batch, chunk, 0), Step(batch, chunk, last))
    decode = StepProfile("decode", first, Step(batch, 1, half), Step(batch, DECODE_NEW, last))
    return prefill, decode


def first_hole(
    profiles: Sequence[StepProfile], batch: int, context: int, chunk: int, *, linear: bool = False
) -> Step | None:
    """Find a step that no profile takes, among all with new ≤ chunk and past + new ≤ context; None if there is none.

    For one batch and one past, a profile takes an interval of new tokens; the intervals are joined from the left.

    Args:
        profiles: the boxes.
        batch: most sequences at once.
        context: C, tokens that past and new may have together.
        chunk: most new tokens of a prefill step.
        linear: the cache has a fixed capacity, so that only batch and new tokens are axes of the graph.
    """
    for rows in _batches(profiles, batch):
        for past in (0,) if linear else range(context):
            bounds = sorted(_taken(profile, rows, past, linear) for profile in profiles)
            covered = 0
            for low, high in bounds:
                if low <= covered + 1:
                    covered = max(covered, high)
            if covered < min(chunk, context - past):
                return Step(rows, covered + 1, past)
    return None


def _batches(profiles: Sequence[StepProfile], batch: int) -> list[int]:
    """Give the batch sizes where a profile begins or ends; what holds there holds between them."""
    edges = {1, batch}
    for profile in profiles:
        edges |= {profile.min.batch - 1, profile.min.batch, profile.max.batch, profile.max.batch + 1}
    return sorted(rows for rows in edges if 1 <= rows <= batch)


def _taken(profile: StepProfile, rows: int, past: int, linear: bool) -> tuple[int, int]:
    """Give the least and most new tokens that a profile takes; (1, 0) for none."""
    low, high = profile.min, profile.max
    if not low.batch <= rows <= high.batch or not (linear or low.past <= past <= high.past):
        return 1, 0
    if linear:
        return low.new, high.new
    return max(low.new, low.total - past), min(high.new, high.total - past)
