"""The certificate that NoPE layers are NoPE: shift every position by the same number and see which keys move.

RoPE is relative, so the shift changes no logit and no value, only the keys of layers that rotate. A graph that
rotates a NoPE layer, or does not rotate a RoPE layer, shows it in its own outputs: no reference is needed, and the
text that it writes would not tell.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from artifacts.config import ModelConfig
from artifacts.contract import present_name
from runtime.session import Array, Session
from validate.comparison import difference
from validate.play import play
from validate.scenarios import Passage, Scenario

SHIFT = 37
MOVED = 0.1
STILL = 1e-4
"""Limits of a key's largest change, as a part of its largest magnitude; docs/validate.md has what was measured."""


@dataclass(frozen=True)
class Movement:
    """How far one layer's keys and values moved, as a part of their largest magnitude."""

    layer: int
    key: float
    value: float


def measure(session: Session, passage: Passage, layers: int) -> tuple[Movement, ...]:
    """Run a passage with an empty cache at its own positions and at positions shifted by `SHIFT`."""
    scenario = Scenario("certificate", (passage.name,), ((len(passage.tokens),),))
    results = []
    for start in (passage.start, passage.start + SHIFT):
        shifted = Passage(passage.name, passage.tokens, start)
        answer = next(play(session, scenario, {passage.name: shifted}, layers))
        # Copied, because a linear cache is the same memory in the next call.
        results.append({name: array.copy() for name, array in answer.arrays.items()})
    return movements(results[0], results[1], layers)


def movements(before: Mapping[str, Array], after: Mapping[str, Array], layers: int) -> tuple[Movement, ...]:
    """Give each layer's movement; infinite where a tensor is missing, has another shape or is not finite."""

    def moved(name: str) -> float:
        if name not in before or name not in after:
            return float("inf")
        found = difference(name, after[name], before[name])
        return float("inf") if found.problem or not found.elements else found.relative

    return tuple(
        Movement(layer, moved(present_name(layer, "key")), moved(present_name(layer, "value")))
        for layer in range(layers)
    )


def judge(found: Sequence[Movement], config: ModelConfig) -> list[str]:
    """Give every layer that is not what the config says; fewer layers than the model has is a problem too."""
    problems = []
    if [movement.layer for movement in found] != list(range(config.num_hidden_layers)):
        problems.append(f"{len(found)} layers were looked at, the model has {config.num_hidden_layers}")
    for movement in found:
        rotates = config.uses_rope[movement.layer]
        if not (MOVED <= movement.key < float("inf") if rotates else movement.key <= STILL):
            problems.append(
                f"layer {movement.layer} is {'RoPE' if rotates else 'NoPE'} in config.json, but its keys moved by "
                f"{movement.key:.1e} (expected {f'at least {MOVED}' if rotates else f'at most {STILL}'})"
            )
        if not movement.value <= STILL:
            problems.append(
                f"layer {movement.layer}: its values moved by {movement.value:.1e} (expected at most {STILL})"
            )
    return problems
