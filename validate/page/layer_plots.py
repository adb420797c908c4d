"""Pictures over the layers of one view: errors and slopes as lines, how much of its limit each tensor uses as a map."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from validate.layers.findings import TensorFinding
from validate.layers.limits import ROUNDED_ONCE, STRUCTURE
from validate.page.theme import Plot, Theme, margins
from validate.page.views import View, used

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.axis import Axis
    from matplotlib.figure import Figure

MARKERS = "osD^vPX*<>hpd"
LEAST_USED, MOST_USED = 1e-3, 1e3

Value = Callable[[TensorFinding], float | None]


def layer_plots(view: View) -> list[Plot]:
    """Give the pictures of a view: two of lines over the layers, where there is something in them, and the map."""
    words = "Largest difference, of the largest magnitude" if view.measure == "error" else "Spread around FP32"
    height = 1.5 + 0.24 * (len(view.kinds) + 4)
    map_size = (min(10.6, max(7.6, 3.6 + 0.24 * (view.layers + 2))), height)
    lines = [
        Plot(
            f"error-{view.slug}",
            "Error by layer",
            f"{words}; one line a kind of tensor, in graph order from dark to bright. Crosses are wrong; "
            "at the lower edge, nothing differs at all."
            + (f" The line is the limit, {STRUCTURE:g}." if view.measure == "error" else ""),
            (9.5, 4.4),
            partial(_errors, view),
        ),
        Plot(
            f"slope-{view.slug}",
            "Slope by layer",
            "Least squares factor between what came out and what was expected, as its distance from 1. A scale that "
            f"is off stands out from the band (±{_slope_limit(view):g}), however small it is against rounding.",
            (9.5, 4.4),
            partial(_slopes, view),
        ),
    ]
    whole = Plot(
        f"map-{view.slug}",
        "How much of its limit each tensor uses",
        "Layer by tensor: the bluer, the nearer to the limit; red with a cross is over it; hatched, there is none. "
        "For each tensor the measure decides that is nearest to its limit.",
        map_size,
        partial(_map, view),
    )
    return [*lines, whole] if view.kinds else [whole]


def _errors(view: View, figure: Figure, theme: Theme) -> None:
    axes = _layer_axes(view, figure)
    positive = [value for row in view.rows if (value := view.value(row)) and math.isfinite(value)]
    floor = min(positive, default=1.0) / 3
    _lines(view, axes, theme, lambda row: None if (value := view.value(row)) is None else max(value, floor))
    axes.set_yscale("log")
    _plain(axes.yaxis)
    axes.set_ylabel("largest difference" if view.measure == "error" else "spread")
    if view.measure == "error":
        axes.axhline(STRUCTURE, color=theme.wrong, linewidth=1, linestyle="--")
    _legend(axes)


def _slopes(view: View, figure: Figure, theme: Theme) -> None:
    axes, limit = _layer_axes(view, figure), _slope_limit(view)
    _lines(view, axes, theme, lambda row: None if row.slope is None else row.slope - 1)
    axes.axhspan(-limit, limit, color=theme.good, alpha=0.12, linewidth=0)
    axes.set_yscale("symlog", linthresh=limit)
    _plain(axes.yaxis)
    low, high = axes.get_ylim()
    axes.set_ylim(min(low, -2 * limit), max(high, 2 * limit))
    axes.set_ylabel("slope − 1")
    _legend(axes)


def _slope_limit(view: View) -> float:
    return STRUCTURE if view.instrument == "structure" else ROUNDED_ONCE.slope


def _plain(axis: Axis) -> None:
    """Write numbers as they are; raised exponents take ten times as long to draw."""
    axis.set_major_formatter(lambda value, _: f"{value:.0e}" if value else "0")
    axis.set_minor_formatter(lambda value, _: "")


def _layer_axes(view: View, figure: Figure) -> Axes:
    from matplotlib.ticker import MaxNLocator

    axes = figure.subplots()
    margins(figure, 0.75, 2.0, 0.35, 0.5)
    axes.set_title(f"{view.instrument} — {view.subject}", loc="left")
    axes.set_xlabel("layer")
    axes.set_xlim(-0.6, view.layers - 0.4)
    axes.xaxis.set_major_locator(MaxNLocator(integer=True, nbins=20))
    axes.grid(True, axis="y", linewidth=0.6)
    return axes


def _lines(view: View, axes: Axes, theme: Theme, value: Value) -> None:
    """Draw one line for each kind, through the worst tensor of each layer, and a cross over every wrong tensor."""
    for number, (kind, colour) in enumerate(zip(view.kinds, theme.lines(len(view.kinds)), strict=True)):
        rows = [row for row in view.rows if row.kind == kind and row.layer is not None and _drawable(value(row))]
        marker = MARKERS[number % len(MARKERS)]
        axes.plot(*_points(rows, value), color=colour, marker=marker, markersize=3.5, linewidth=1.1, label=kind)
    wrong = [row for row in view.rows if row.problem and row.layer is not None and _drawable(value(row))]
    points: Any = ([row.layer for row in wrong], [value(row) for row in wrong])
    axes.plot(*points, "x", color=theme.wrong, markersize=8, markeredgewidth=1.8, zorder=5)


def _points(rows: Sequence[TensorFinding], value: Value) -> tuple[list[int], list[float]]:
    """Give layers in order, and in each the value farthest from nothing: a kind may have several tensors there."""
    worst: dict[int, float] = {}
    for row in rows:
        layer, found = row.layer or 0, value(row) or 0.0
        if abs(found) >= abs(worst.get(layer, 0.0)):
            worst[layer] = found
    return sorted(worst), [worst[layer] for layer in sorted(worst)]


def _drawable(value: float | None) -> bool:
    return value is not None and math.isfinite(value)


def _legend(axes: Axes) -> None:
    axes.legend(loc="center left", bbox_to_anchor=(1.0, 0.5), fontsize=7.5, frameon=False, handlelength=1.6)


def _map(view: View, figure: Figure, theme: Theme) -> None:
    """Draw rows of kinds, columns of layers; what is outside the layers stands in a column of its own at either end."""
    import numpy as np
    from matplotlib.colors import LinearSegmentedColormap, LogNorm

    begin = min((row.order for row in view.rows if row.layer is not None), default=math.inf)
    before = [row.kind for row in view.rows if row.layer is None and row.order < begin]
    kinds = list(dict.fromkeys([*before, *view.kinds, *(row.kind for row in view.rows)]))
    cells = np.full((len(kinds), view.layers + 2), np.nan)
    wrong = []
    for row in view.rows:
        column = row.layer + 1 if row.layer is not None else 0 if row.order < begin else view.layers + 1
        place = kinds.index(row.kind), column
        cells[place] = np.nanmax([cells[place], min(max(used(row), LEAST_USED), MOST_USED)])
        if row.problem:
            wrong.append(place)
    axes = figure.subplots()
    margins(figure, 0.4 + 0.067 * max(map(len, kinds)), 0.7, 0.35, 0.5)
    axes.set_title(f"{view.instrument} — {view.subject}", loc="left")
    axes.patch.set(hatch="////", edgecolor=theme.grid, linewidth=0)
    colours = LinearSegmentedColormap.from_list("used", _scale(theme))
    mesh = axes.pcolormesh(cells, cmap=colours, norm=LogNorm(LEAST_USED, MOST_USED), rasterized=True)
    _mark(axes, wrong, theme)
    axes.invert_yaxis()
    axes.set_yticks(np.arange(len(kinds)) + 0.5, kinds, fontsize=7.5)
    step = max(1, math.ceil(view.layers / 24))
    shown = list(range(0, view.layers, step))
    axes.set_xticks([0.5, *(layer + 1.5 for layer in shown), view.layers + 1.5], ["in", *map(str, shown), "out"])
    axes.tick_params(length=0, labelsize=7.5)
    axes.set_xlabel("layer")
    room = 0.3 / float(figure.get_size_inches()[0])
    bar = figure.colorbar(mesh, ax=axes, pad=0.015, fraction=room, aspect=30, ticks=[1e-3, 1e-2, 0.1, 1, 10, 100, 1e3])
    _plain(bar.ax.yaxis)
    bar.set_label("part of the limit")


def _scale(theme: Theme) -> list[tuple[float, str]]:
    """Give the colours from the least to the most; they jump in the middle, at the limit."""
    return [(0.0, theme.panel), (0.5, theme.good), (0.5, theme.over), (1.0, theme.wrong)]


def _mark(axes: Axes, wrong: Sequence[tuple[int, int]], theme: Theme) -> None:
    points: Any = ([column + 0.5 for _, column in wrong], [place + 0.5 for place, _ in wrong])
    axes.plot(*points, "x", color=theme.text, markersize=6, markeredgewidth=1.6)
