"""Optimization profiles as an engine enforces them: a call has to lie within one of the boxes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from artifacts.contract import TensorSpec
from artifacts.errors import Problem, StageError
from build.profiles import StepProfile

Shape = tuple[int, ...]


def check_profiles(
    profiles: Sequence[StepProfile], inputs: Iterable[TensorSpec], shapes: Mapping[str, Shape]
) -> StepProfile | None:
    """Give the first profile that takes these shapes; None where there are no profiles.

    Args:
        profiles: the boxes.
        inputs: the network's inputs.
        shapes: the shape that each is fed with.

    Raises:
        StageError: no profile takes them; for every profile, the inputs that lie outside it.
    """
    specs = tuple(inputs)
    problems = []
    for profile in profiles:
        limits = profile.shapes(specs)
        outside = [name for name, shape in shapes.items() if not _within(shape, limits[name])]
        if not outside:
            return profile
        bounds = "; ".join(f"{name} {list(limits[name][0])} … {list(limits[name][-1])}" for name in outside)
        found = "; ".join(f"{name} {list(shapes[name])}" for name in outside)
        remedy = "feed a step within a profile, or build with wider ones (python -m build --help)"
        problems.append(
            Problem(f"the optimization profile {profile.name} does not take this call", bounds, found, remedy)
        )
    if problems:
        raise StageError(problems)
    return None


def _within(shape: Shape, limits: Sequence[Shape]) -> bool:
    low, high = limits[0], limits[-1]
    return len(shape) == len(low) and all(a <= size <= b for a, size, b in zip(low, shape, high, strict=True))
