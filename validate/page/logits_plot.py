"""Logits of each subject against the reference's, nothing marked: points on the diagonal are equal."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING

from validate.layers.findings import LastWord
from validate.page.theme import Plot, Theme, margins

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def logits_plot(words: Sequence[LastWord]) -> Plot | None:
    """Give the scatter; nothing if no subject has a sample of logits."""
    sampled = [word for word in words if word.reference and len(word.reference) == len(word.actual)]
    if not sampled:
        return None
    counts = ", ".join(f"{word.subject}: {word.same} of {word.tokens} next tokens are the same" for word in sampled)
    return Plot(
        "logits",
        "Logits, the last word",
        f"A sample of the unmarked graphs' logits; on the line they are the reference's. {counts}.",
        (max(4.5, 3.6 * len(sampled)), 3.9),
        partial(_draw, sampled),
    )


def _draw(words: Sequence[LastWord], figure: Figure, theme: Theme) -> None:
    panels = figure.subplots(1, len(words), squeeze=False)[0]
    margins(figure, 0.6, 0.1, 0.5, 0.5, 0.28)
    for axes, word in zip(panels, words, strict=True):
        ends = [min(word.reference), max(word.reference)]
        axes.plot(ends, ends, color=theme.grid, linewidth=1.2, zorder=1)
        colour = theme.wrong if word.problem else theme.good
        axes.scatter(word.reference, word.actual, s=6, color=colour, alpha=0.6, linewidths=0, zorder=2, rasterized=True)
        label, _, graph = word.subject.partition(": ")
        axes.set_title(f"{label}\n{graph}: {word.error:.1e} off at most", loc="left", fontsize=8)
        axes.set_xlabel("reference")
        axes.set_ylabel("here")
        axes.grid(True, linewidth=0.5)
