"""Weights are stored once: TensorRT's own figure is held against the bytes of the graph's initializers."""

from __future__ import annotations

from artifacts.errors import refuse
from build.graph import SourceGraph

TOLERANCE = 1.05
ALIGNMENT = 512
"""Bytes that TensorRT may round each tensor up to; it matters in models of a few KB only."""


def most_weights(graph: SourceGraph) -> int:
    """Bytes that the weights may take in a plan."""
    return int(TOLERANCE * graph.weights) + ALIGNMENT * graph.initializers


def check_stored_once(weights: int | None, graph: SourceGraph) -> None:
    """Insist that a plan holds no second copy of the weights.

    Args:
        weights: "Total Weights Memory" as TensorRT logged it, in bytes; None if it did not.
        graph: the graph that the plan was made of.

    Raises:
        StageError: they are more than the graph's, or unknown.
    """
    most = most_weights(graph)
    if weights is None:
        raise refuse(
            "TensorRT did not say how much the plan's weights take",
            expected="a line with Total Weights Memory in its log",
            remedy="build in a process of its own: another logger was given to TensorRT before ours",
        )
    if weights > most:
        raise refuse(
            "the plan holds weights more than once",
            expected=f"at most {most} bytes: {graph.weights} of initializers, and 5 %",
            found=f"{weights} bytes, {weights / graph.weights:.2f} times the initializers",
            remedy="let no profile have a maximum of exactly one row (batch 1, one new token): that is the known cause",
        )
