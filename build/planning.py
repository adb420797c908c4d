"""From what was asked for and what the model can do to the profiles of one plan, before anything is built."""

from __future__ import annotations

import math
from collections.abc import Iterator

from artifacts.config import ModelConfig
from artifacts.contract import Signature
from artifacts.errors import Problem, StageError
from build.graph import SourceGraph
from build.options import DEFAULT_CHUNK, DEFAULT_CONTEXT, BuildOptions
from build.profiles import Step, StepProfile, default_profiles, first_hole, shape
from build.shapes import resolve

MOST_ELEMENTS = (1 << 31) - 1
"""Of one tensor; NVIDIA's support matrix of TensorRT names this limit for every layer."""


class Planning:
    """The profiles of one plan.

    Attributes:
        inputs: the graph's inputs by the contract.
        context: tokens that past and new may have together.
        chunk: most new tokens of a prefill step.
        profiles: prefill and decode, changed and added to by the user's shapes.
        hole: a step that no profile takes; None if every step is taken. Only the user's own shapes can leave one.
    """

    def __init__(self, options: BuildOptions, config: ModelConfig, graph: SourceGraph) -> None:
        linear = graph.capacity is not None
        self.inputs = graph.signature.inputs
        self.context = _context(options, config, graph)
        self.chunk = min(options.prefill_chunk or DEFAULT_CHUNK, self.context)
        batch = options.max_batch_size
        formula = default_profiles(batch, self.context, self.chunk, linear=linear)
        self.profiles: tuple[StepProfile, ...] = resolve(options.shapes, formula, self.inputs)
        self.hole: Step | None = first_hole(self.profiles, batch, self.context, self.chunk, linear=linear)
        assert self.hole is None or options.shapes, "the formula leaves no hole"
        _check_positions(self.profiles, config)
        _check_volumes(self.profiles, graph.signature)


def _context(options: BuildOptions, config: ModelConfig, graph: SourceGraph) -> int:
    """Decide C. A linear cache has its capacity in its shapes: a smaller context would change nothing in the plan."""
    asked, positions = options.max_context, config.max_positions
    if asked is not None and asked > positions:
        problem = Problem(
            "--max-context is longer than the model's positions",
            f"at most {positions}",
            str(asked),
            f"--max-context {positions}",
        )
        raise StageError(problem)
    if graph.capacity is None:
        context = min(DEFAULT_CONTEXT, positions) if asked is None else asked
    elif asked is not None and asked != graph.capacity:
        problem = Problem(
            "--max-context is not the capacity of the linear cache, which is fixed in the graph",
            f"--max-context {graph.capacity}, or none",
            str(asked),
            f'make the graph with another capacity (make surgery … SURGERY_ARGS="--capacity {asked}")',
        )
        raise StageError(problem)
    else:
        context = min(graph.capacity, positions)
    if options.prefill_chunk is not None and options.prefill_chunk > context:
        found = f"{options.prefill_chunk} > {context}"
        remedy = f"--prefill-chunk {context} or less"
        raise StageError(Problem("--prefill-chunk is longer than the context", f"at most {context}", found, remedy))
    return context


def _check_positions(profiles: tuple[StepProfile, ...], config: ModelConfig) -> None:
    """Refuse shapes whose first new token has a position that the model has not; the box's corner may lie beyond."""
    problems = [
        Problem(
            f"profile {profile.name} goes beyond the model's positions",
            f"past below {config.max_positions} and no more new tokens than that",
            f"past {profile.max.past}, new {profile.max.new}",
            "give smaller --maxShapes",
        )
        for profile in profiles
        if profile.max.past >= config.max_positions or profile.max.new > config.max_positions
    ]
    if problems:
        raise StageError(problems)


def _check_volumes(profiles: tuple[StepProfile, ...], signature: Signature) -> None:
    """Refuse shapes of which TensorRT could not number the elements; it would say so after minutes, or not at all."""
    problems = list(_too_large(profiles, signature))
    if problems:
        raise StageError(problems)


def _too_large(profiles: tuple[StepProfile, ...], signature: Signature) -> Iterator[Problem]:
    """Yield the largest tensor of each profile that has too many elements."""
    for profile in profiles:
        spec = max(signature, key=lambda spec: math.prod(shape(spec, profile.max)))
        lengths = shape(spec, profile.max)
        if math.prod(lengths) > MOST_ELEMENTS:
            yield Problem(
                f"profile {profile.name}: {spec.name} is larger than a tensor of TensorRT can be",
                f"at most {MOST_ELEMENTS:,} elements",
                f"{'x'.join(map(str, lengths))} = {math.prod(lengths):,}",
                "give a smaller --max-batch-size, --max-context or --maxShapes",
            )
