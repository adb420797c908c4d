"""Writes the page and the plots; nothing in the page is fetched from anywhere."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from artifacts.versions import versions
from artifacts.writing import Writing
from validate.comparison import TOLERANCE
from validate.findings import Check
from validate.page.certificate_plot import certificate_plot
from validate.page.continuation import written
from validate.page.layer_plots import layer_plots
from validate.page.logits_plot import logits_plot
from validate.page.theme import DARK, LIGHT, Plot
from validate.page.views import View, views
from validate.page.worst import worst
from validate.report import PAGE, Report, subjects
from validate.runners import Role

PLOTS = "plots"
TEMPLATE = Path(__file__).with_name("page.html.jinja")


@dataclass(frozen=True)
class Picture:
    """One plot as the page shows it."""

    title: str
    caption: str
    light: str
    dark: str
    width: int


@dataclass(frozen=True)
class Section:
    """The pictures of one view."""

    view: View
    pictures: tuple[Picture, ...]

    @property
    def wrong(self) -> int:
        """Tensors that are wrong in it."""
        return sum(not row.verdict for row in self.view.rows)


def write_page(report: Report, tools: Mapping[str, str]) -> tuple[Path, ...]:
    """Write report.html and plots/*.png into the report's folder; plots of an earlier report go.

    Args:
        report: the report.
        tools: versions that it rests on.

    Returns:
        The files, the page first.
    """
    place, layers = report.folder, report.layers
    by_view = [(view, layer_plots(view)) for view in (views(layers) if layers else ())]
    single = {
        "certificate": certificate_plot(report.uses_rope, report.findings),
        "logits": logits_plot(layers.last_word) if layers is not None else None,
    }
    plots = [plot for _, several in by_view for plot in several] + [plot for plot in single.values() if plot]
    with Writing(place / PLOTS) as writing:
        for plot in plots:
            writing.path(f"{plot.name}.png").write_bytes(plot.png())
    for path in set((place / PLOTS).glob("*.png")) - {place / PLOTS / f"{plot.name}.png" for plot in plots}:
        path.unlink()
    sections = [Section(view, tuple(picture(plot) for plot in several)) for view, several in by_view]
    pictures = {name: picture(plot) if plot else None for name, plot in single.items()}
    text = render(report, {**tools, **versions("matplotlib")}, sections, pictures)
    with Writing(place) as writing:
        writing.path(PAGE).write_text(text, encoding="utf-8")
    return (place / PAGE, *(place / PLOTS / f"{plot.name}.png" for plot in plots))


def picture(plot: Plot) -> Picture:
    """Draw a plot for both looks."""
    return Picture(plot.title, plot.caption, plot.svg(LIGHT), plot.svg(DARK), round(96 * plot.size[0]))


def render(
    report: Report,
    tools: Mapping[str, str],
    sections: Sequence[Section],
    pictures: Mapping[str, Picture | None],
) -> str:
    """Fill the template."""
    import jinja2

    environment = jinja2.Environment(
        undefined=jinja2.StrictUndefined, autoescape=True, trim_blocks=True, lstrip_blocks=True
    )
    layers = report.layers
    return environment.from_string(TEMPLATE.read_text(encoding="utf-8")).render(
        report=report,
        layers=layers,
        problems=report.problems,
        verdict=report.verdict,
        tools={**({"parser": layers.backend} if layers else {}), **tools},
        sections=sections,
        pictures=pictures,
        worst=worst(layers, report.folder.parent.parent) if layers else (),
        written=written(report),
        compared=[found for found in report.findings if found.role != Role.REFERENCE.value],
        checks=list(checks(report)),
        counted=_counted(report),
        tolerance=TOLERANCE,
    )


def checks(report: Report) -> Iterator[tuple[str, list[Check | None]]]:
    """Give every subject with each runner's check of it."""
    compared = [found for found in report.findings if found.role != Role.REFERENCE.value]
    for subject in subjects(compared):
        yield subject, [next((c for c in found.checks if c.subject == subject), None) for found in compared]


def _counted(report: Report) -> str:
    """Say what was compared, with the numbers that the terminal shows."""
    tensors, elements = report.compared
    said = f"{tensors:,} tensors, {elements:,} elements with PyTorch"
    if report.layers is None:
        return said
    tensors, elements = report.layers.compared
    return f"{said}; {tensors:,} tensors, {elements:,} elements layer by layer"
