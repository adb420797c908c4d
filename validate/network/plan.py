"""A plan is one kind of run: the steps between what is fed and what is wanted, with numbered slots for tensors."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

from validate.network.steps import Step

if TYPE_CHECKING:
    import torch


class Move(NamedTuple):
    """One step of a plan: where its inputs lie, where its result goes, and which slots are empty afterwards."""

    step: Step
    inputs: tuple[int, ...]
    output: int
    asked: str | None
    emptied: tuple[int, ...]


@dataclass(frozen=True)
class Plan:
    """What one kind of run evaluates.

    Attributes:
        reached: every tensor that it touches.
        initial: the slots as they are before a run, constants in their places.
        feeds: slot by name of what is fed.
        moves: the steps, in order.
        given: names that are wanted and not computed (feeds and constants), with their slots.
    """

    reached: frozenset[str]
    initial: list[Any]
    feeds: Mapping[str, int]
    moves: tuple[Move, ...]
    given: tuple[tuple[str, int], ...]


def make_plan(
    steps: Sequence[Step],
    constants: Mapping[str, torch.Tensor],
    *,
    wanted: frozenset[str],
    fed: frozenset[str],
    whole: bool,
) -> Plan:
    """Walk back from what is wanted to what is fed, and number the tensors on the way.

    Args:
        steps: all steps, in order.
        constants: tensors that need no step.
        wanted: names to be computed.
        fed: names that are given and so need no step.
        whole: also evaluate the steps that have no result (assertions).
    """
    chosen = _between(steps, wanted, fed, whole)
    made = {step.output for step in chosen}
    reached = {name for step in chosen for name in step.inputs if name} | wanted
    slots: dict[str | None, int] = {None: 0} | {name: index + 1 for index, name in enumerate(sorted(reached))}
    aside = len(slots)
    ends = _ends(chosen, slots)
    moves = tuple(
        Move(
            step,
            tuple(slots[name] for name in step.inputs),
            aside if step.output is None else slots.get(step.output, aside),
            step.output if step.output in wanted else None,
            ends[index],
        )
        for index, step in enumerate(chosen)
    )
    return Plan(
        reached=frozenset(reached),
        initial=[*(constants.get(name) if name and name not in fed else None for name in slots), None],
        feeds={name: slots[name] for name in fed if name in slots},
        moves=moves,
        given=tuple((name, slots[name]) for name in sorted(wanted) if name not in made),
    )


def _between(steps: Sequence[Step], wanted: frozenset[str], fed: frozenset[str], whole: bool) -> list[Step]:
    """Give the steps that lead to the wanted tensors, without those whose results are fed."""
    needed = set(wanted)
    found = []
    for step in reversed(steps):
        if (step.output is None and whole) or (step.output in needed and step.output not in fed):
            found.append(step)
            needed.update(filter(None, step.inputs))
    return found[::-1]


def _ends(steps: Sequence[Step], slots: Mapping[str | None, int]) -> list[tuple[int, ...]]:
    """Give, for every step, the slots that no later step reads."""
    last: dict[str, int] = {}
    for index, step in enumerate(steps):
        last.update(dict.fromkeys(filter(None, (*step.inputs, step.output)), index))
    ends: list[list[int]] = [[] for _ in steps]
    for name, index in last.items():
        ends[index].append(slots[name])
    return [tuple(names) for names in ends]
