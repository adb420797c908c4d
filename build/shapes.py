"""Shapes as trtexec spells them, `input_ids:1x512,past_key_values.*:1x4x0x128`, and the profiles that they make.

What the user leaves out follows the formula of `build.profiles`. Each shape is read as a step (batch, new, past), and
steps are what is checked: one batch everywhere, mask = past + new, min ≤ opt ≤ max, numbers where the contract has
numbers. As in trtexec, a name may have one wildcard and quotes, and shapes given only for opt hold for min and max.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from artifacts.contract import BATCH, PAST, SEQUENCE, TOTAL, TensorSpec
from artifacts.errors import Problem, StageError
from build.profiles import POINTS, Step, StepProfile

Shape = tuple[int, ...]
EXAMPLE = "input_ids:1x512,attention_mask:1x512"


@dataclass
class GivenShapes:
    """What `--minShapes`, `--optShapes` and `--maxShapes` said of one profile: point → name or pattern → shape."""

    points: dict[str, dict[str, Shape]] = field(default_factory=dict)


def parse_shapes(text: str) -> dict[str, Shape]:
    """Read one specification.

    >>> parse_shapes("input_ids:1x512,'past_key_values.*':1x4x0x128")
    {'input_ids': (1, 512), 'past_key_values.*': (1, 4, 0, 128)}

    Raises:
        StageError: every part that cannot be read.
    """
    shapes: dict[str, Shape] = {}
    problems = []
    for part in text.split(","):
        match = re.fullmatch(r"\s*('?)([^':]+)\1:(\d+(?:x\d+)*)\s*", part)
        if match is None or match[2].count("*") > 1 or match[2] in shapes:
            problems.append(
                _wrong("a shape cannot be read", f"name:1x2x3, each name once, as in {EXAMPLE}", repr(part))
            )
        else:
            shapes[match[2]] = tuple(int(length) for length in match[3].split("x"))
    if problems:
        raise StageError(problems)
    return shapes


def resolve(
    given: Mapping[int, GivenShapes], formula: Sequence[StepProfile], inputs: Sequence[TensorSpec]
) -> tuple[StepProfile, ...]:
    """Make the profiles: the formula's, changed and added to by what the user gave.

    Args:
        given: shapes by the profile's index.
        formula: prefill and decode.
        inputs: the graph's inputs by the contract.

    Raises:
        StageError: everything that is wrong with the shapes.
    """
    problems = [
        Problem(
            "there is no such profile",
            "--profile 0 (prefill), 1 (decode) or more",
            str(index),
            "python -m build --help",
        )
        for index in given
        if index < 0
    ]
    if problems:
        raise StageError(problems)
    count = max([*given, len(formula) - 1]) + 1
    missing = [index for index in range(len(formula), count) if index not in given]
    if missing:
        problems.append(_wrong("profiles have a gap", f"numbers 0 to {count - 1}", f"none of number {missing[0]}"))
    profiles = []
    for index in sorted({*range(len(formula)), *given}):
        default = formula[index] if index < len(formula) else None
        profile = _profile(index, given.get(index, GivenShapes()), default, inputs, problems)
        if profile is not None:
            profiles.append(profile)
    if problems:
        raise StageError(problems)
    return tuple(profiles)


def _profile(
    index: int,
    given: GivenShapes,
    default: StepProfile | None,
    inputs: Sequence[TensorSpec],
    problems: list[Problem],
) -> StepProfile | None:
    points = dict(given.points)
    if set(points) == {"opt"}:
        points = dict.fromkeys(POINTS, points["opt"])
    steps: dict[str, Step] = {}
    for point in POINTS:
        where = f"--{point}Shapes of profile {index}"
        step = getattr(default, point) if default else None
        solved = _step(where, points.get(point, {}), step, inputs, problems)
        if solved is not None:
            steps[point] = solved
    if len(steps) < len(POINTS):
        return None
    profile = StepProfile(default.name if default else f"profile-{index}", **steps)
    problems.extend(_order(index, profile))
    return profile


def _step(
    where: str, shapes: Mapping[str, Shape], default: Step | None, inputs: Sequence[TensorSpec], problems: list[Problem]
) -> Step | None:
    """Read a step out of some inputs' shapes; axes that they do not tell are the formula's."""
    before = len(problems)
    known: dict[str, tuple[str, int]] = {}
    for name, lengths in shapes.items():
        matched = [spec for spec in inputs if _matches(name, spec.name)]
        if not matched:
            names = ", ".join(spec.name for spec in inputs[:5])
            problems.append(_wrong(f"{where}: no input is called {name}", f"{names} …", name))
        for spec in matched:
            wrong = list(_read(where, spec, lengths, known))
            problems.extend(wrong)
            if wrong:
                # The others of this pattern would say the same: 72 times for SmolLM3-3B.
                break
    if len(problems) > before:
        return None
    axes = {axis: length for axis, (_, length) in known.items()}
    if not any(PAST in spec.axes for spec in inputs):
        axes[PAST] = 0
    step = _solve(axes, default)
    if step is None:
        found = ", ".join(sorted(shapes)) or "nothing"
        problems.append(_wrong(f"{where} do not tell batch, new and past tokens", EXAMPLE, found))
    else:
        problems.extend(_agree(where, step, known))
    return step if len(problems) == before else None


def _read(where: str, spec: TensorSpec, lengths: Shape, known: dict[str, tuple[str, int]]) -> Iterator[Problem]:
    """Take the axes' lengths from one input's shape, and say where they contradict the contract or each other."""
    wanted = "x".join(str(axis) for axis in spec.axes)
    found = "x".join(str(length) for length in lengths)
    if len(lengths) != len(spec.axes):
        yield _wrong(f"{where}: {spec.name} has another rank", wanted, found)
        return
    for axis, length in zip(spec.axes, lengths, strict=True):
        if isinstance(axis, int):
            if length != axis:
                yield _wrong(f"{where}: {spec.name} has another fixed axis", wanted, found)
                return
            continue
        other, known_length = known.setdefault(axis, (spec.name, length))
        if known_length != length:
            yield _wrong(f"{where}: {axis} differs", f"{known_length}, as {other} has it", f"{spec.name}:{found}")


def _solve(axes: Mapping[str, int], default: Step | None) -> Step | None:
    """Complete a step: mask and one of past and new tell the other."""
    batch, new, past, total = (axes.get(axis) for axis in (BATCH, SEQUENCE, PAST, TOTAL))
    if total is not None and past is not None and new is None:
        new = total - past
    if new is None and default is not None:
        new = default.new
    if total is not None and new is not None and past is None:
        past = total - new
    if default is not None:
        batch = default.batch if batch is None else batch
        past = default.past if past is None else past
    if batch is None or new is None or past is None:
        return None
    return Step(batch, new, past)


def _agree(where: str, step: Step, known: Mapping[str, tuple[str, int]]) -> Iterator[Problem]:
    if step.batch < 1 or step.new < 1 or step.past < 0:
        found = f"batch {step.batch}, new {step.new}, past {step.past}"
        yield _wrong(
            f"{where}: no step has these shapes", "batch and new tokens of at least 1, past of at least 0", found
        )
    elif TOTAL in known and known[TOTAL][1] != step.total:
        found = f"{known[TOTAL][0]} has {known[TOTAL][1]}"
        yield _wrong(f"{where}: the mask is not past + new", f"{step.past} + {step.new} = {step.total}", found)


def _order(index: int, profile: StepProfile) -> Iterator[Problem]:
    for axis in profile.min.axes:
        lengths = [getattr(profile, point).axes[axis] for point in POINTS]
        if lengths != sorted(lengths):
            found = ", ".join(f"{point} {length}" for point, length in zip(POINTS, lengths, strict=True))
            what = f"profile {index}: {axis} does not grow from min to max"
            yield Problem(what, "min ≤ opt ≤ max", found, "give all three of --minShapes, --optShapes and --maxShapes")


def _matches(pattern: str, name: str) -> bool:
    before, star, after = pattern.partition("*")
    if not star:
        return pattern == name
    return name.startswith(before) and name.endswith(after) and len(name) >= len(before) + len(after)


def _wrong(what: str, expected: str, found: str) -> Problem:
    return Problem(what, expected, found, "correct the shapes; python -m build --help says how they are spelled")
