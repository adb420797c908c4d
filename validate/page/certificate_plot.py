"""The NoPE certificate as a strip: a row for each runner, a cell for each layer."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING

from validate.certificate import MOVED, SHIFT, STILL, Movement
from validate.findings import Findings
from validate.page.theme import Plot, Theme, margins
from validate.runners import Role

if TYPE_CHECKING:
    from matplotlib.figure import Figure
    from matplotlib.patches import Patch

CONFIG = "config.json"


def certificate_plot(uses_rope: Sequence[bool], findings: Sequence[Findings]) -> Plot | None:
    """Give the strip; nothing if no runner moved its keys."""
    measured = [found for found in findings if found.movements]
    if not measured:
        return None
    return Plot(
        "certificate",
        "NoPE certificate",
        f"Every position is shifted by {SHIFT}: keys of a RoPE layer (R) must move, keys of a NoPE layer (N) must stay "
        "where they are. The first row is what config.json says; a red cell with ! contradicts it.",
        (min(10.6, max(6.0, 3.5 + 0.24 * len(uses_rope))), 0.7 + 0.3 * (len(measured) + 1)),
        partial(_draw, uses_rope, measured),
    )


def contradicts(movement: Movement, rotates: bool, *, judged: bool) -> bool:
    """Whether a layer's keys moved otherwise than config.json says; BF16 is measured against the wider limit only."""
    if rotates:
        return not MOVED <= movement.key < float("inf")
    return not movement.key <= (STILL if judged else MOVED)


def _draw(uses_rope: Sequence[bool], findings: Sequence[Findings], figure: Figure, theme: Theme) -> None:
    axes = figure.subplots()
    margins(figure, 0.3 + 0.072 * max(len(found.runner) for found in findings), 0.1, 0.1, 0.5)
    rows: list[tuple[str, list[tuple[str, str]]]] = [(CONFIG, [_cell(rotates, False, theme) for rotates in uses_rope])]
    for found in findings:
        moved = {movement.layer: movement for movement in found.movements}
        judged = found.role != Role.NOISE.value
        cells = []
        for layer, rotates in enumerate(uses_rope):
            wrong = layer not in moved or contradicts(moved[layer], rotates, judged=judged)
            cells.append(_cell(rotates, wrong, theme))
        rows.append((found.runner, cells))
    for place, (_, cells) in enumerate(rows):
        for layer, (colour, letter) in enumerate(cells):
            axes.add_patch(_box(layer, place, colour, theme))
            axes.text(layer, place, letter, ha="center", va="center", fontsize=7, color=theme.background)
    axes.set_xlim(-0.5, len(uses_rope) - 0.5)
    axes.set_ylim(len(rows) - 0.5, -0.5)
    axes.set_yticks(range(len(rows)), [name for name, _ in rows], fontsize=8)
    axes.set_xticks(range(0, len(uses_rope), max(1, len(uses_rope) // 18)))
    axes.tick_params(length=0)
    axes.set_xlabel("layer")
    for spine in axes.spines.values():
        spine.set_visible(False)


def _cell(rotates: bool, wrong: bool, theme: Theme) -> tuple[str, str]:
    if wrong:
        return theme.wrong, "!"
    return (theme.good, "R") if rotates else (theme.other, "N")


def _box(layer: int, place: int, colour: str, theme: Theme) -> Patch:
    from matplotlib.patches import Rectangle

    return Rectangle((layer - 0.45, place - 0.42), 0.9, 0.84, facecolor=colour, edgecolor=theme.background)
