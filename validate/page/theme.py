"""Two looks of one plot, for light and for dark, and the files that they become.

The SVG and the PNG of a plot come from the same drawing; an SVG has no date in it, so equal findings give equal files.
"""

from __future__ import annotations

import base64
import io
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from matplotlib.figure import Figure

DPI = 144


@dataclass(frozen=True)
class Theme:
    """Colours.

    Attributes:
        span: the part of the colour map for lines that stands out from the background.
        good, other, over, wrong: what is right, right in another way, a little too far off, wrong.
    """

    name: str
    background: str
    panel: str
    text: str
    grid: str
    span: tuple[float, float]
    good: str
    other: str
    over: str
    wrong: str

    def lines(self, count: int) -> list[Any]:
        """Give colours for lines in their order."""
        import numpy as np
        from matplotlib import colormaps

        return list(colormaps["viridis"](np.linspace(*self.span, max(count, 2))))[:count]


LIGHT = Theme(
    "light", "#ffffff", "#f3f6f9", "#1d2329", "#d5dae0", (0.0, 0.88), "#3a6ea5", "#b8891a", "#f0a9a2", "#b3261e"
)
DARK = Theme(
    "dark", "#14181d", "#1b2027", "#dde3ea", "#39424d", (0.25, 1.0), "#5f96cf", "#d9b94a", "#7a2f2a", "#ff6b5e"
)

Draw = Callable[["Figure", Theme], None]
"""Draws into an empty figure."""


@dataclass(frozen=True)
class Plot:
    """One picture.

    Attributes:
        name: its file's name without `.png`.
        title: what it shows.
        caption: how to read it.
        size: width and height in inches.
    """

    name: str
    title: str
    caption: str
    size: tuple[float, float]
    draw: Draw

    def png(self) -> bytes:
        """Give it as a PNG file on white."""
        return self._render(LIGHT, "png")

    def svg(self, theme: Theme) -> str:
        """Give it as a data URI."""
        return "data:image/svg+xml;base64," + base64.b64encode(self._render(theme, "svg")).decode("ascii")

    def _render(self, theme: Theme, kind: str) -> bytes:
        import matplotlib
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure

        with matplotlib.rc_context(_settings(theme)):
            figure = Figure(figsize=self.size)
            FigureCanvasAgg(figure)
            self.draw(figure, theme)
            written = io.BytesIO()
            metadata = {"Date": None} if kind == "svg" else {"Software": None}
            figure.savefig(written, format=kind, dpi=DPI, metadata=metadata)
        return written.getvalue()


def margins(figure: Figure, left: float, right: float, top: float, bottom: float, between: float = 0.0) -> None:
    """Leave room around and between the axes of a figure, in inches; measuring every text takes most of a second."""
    width, height = figure.get_size_inches()
    figure.subplots_adjust(left / width, bottom / height, 1 - right / width, 1 - top / height, wspace=between)


def _settings(theme: Theme) -> Any:
    """Give matplotlib's settings for a theme, by its names for them."""
    text = ("text.color", "axes.labelcolor", "axes.titlecolor", "xtick.color", "ytick.color")
    ground = ("figure.facecolor", "axes.facecolor", "legend.facecolor")
    return {
        **dict.fromkeys(text, theme.text),
        **dict.fromkeys(ground, theme.background),
        "axes.edgecolor": theme.grid,
        "grid.color": theme.grid,
        "legend.edgecolor": theme.grid,
        "axes.spines.top": False,
        "axes.spines.right": False,
        "axes.axisbelow": True,
        "font.size": 9.0,
        "axes.titlesize": 10.0,
        "svg.hashsalt": "smollm3",
        "svg.fonttype": "none",
    }
