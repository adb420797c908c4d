"""Weights are stored once: TensorRT's own figure is held against the bytes of the graph's initializers."""

from __future__ import annotations

from artifacts.errors import refuse
from build.graph import SourceGraph
from build.memory import PLAN_EXTRA

TOLERANCE = 1.05
ALIGNMENT = 512
"""Bytes that TensorRT may round each tensor up to; it matters in models of a few KB only."""


def most_weights(graph: SourceGraph) -> int:
    """Bytes that the weights may take in a plan."""
    return int(TOLERANCE * graph.weights) + ALIGNMENT * graph.initializers


def check_stored_once(weights: int | None, plan: int, graph: SourceGraph) -> None:
    """Insist that a plan holds no second copy of the weights.

    Args:
        weights: "Total Weights Memory" as TensorRT logged it, in bytes; None if it did not.
        plan: bytes of the plan; what they leave for weights is judged where TensorRT did not say.
        graph: the graph that the plan was made of.

    Raises:
        StageError: they are more than the graph's.
    """
    found = plan - PLAN_EXTRA if weights is None else weights
    most = most_weights(graph)
    if found > most:
        raise refuse(
            "the plan holds weights more than once",
            expected=f"at most {most} bytes: {graph.weights} of initializers, and 5 %",
            found=f"{found} bytes, {found / graph.weights:.2f} times the initializers",
            remedy="let no profile have a maximum of exactly one row (batch 1, one new token): that is the known cause",
        )
