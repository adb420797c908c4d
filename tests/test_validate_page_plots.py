"""What the pictures are drawn from: several tensors of a kind in one layer, and tensors outside the layers."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from matplotlib.figure import Figure

from tests.layer_findings import RIGHT
from validate.layers.findings import TensorFinding
from validate.page.layer_plots import _map, _points, layer_plots
from validate.page.theme import LIGHT
from validate.page.views import View

ONE = RIGHT.tensors[0]


def view(*rows: tuple[str, int | None, float]) -> View:
    """A view of tensors given by kind, layer and error, in graph order."""
    found = [
        replace(ONE, name=f"t{order}", kind=kind, layer=layer, order=order, error=error, instrument="structure")
        for order, (kind, layer, error) in enumerate(rows)
    ]
    return View("structure", "a subject", tuple(found))


def error(row: TensorFinding) -> float | None:
    return row.error


def test_a_kind_with_several_tensors_in_a_layer_is_one_line_through_the_worst() -> None:
    rows = view(("other", 1, 1e-6), ("other", 0, 1e-7), ("other", 1, 3e-6), ("other", 0, 0.0)).rows
    assert _points(rows, error) == ([0, 1], [1e-7, 3e-6])


def test_a_kind_inside_and_outside_the_layers_has_one_row_of_the_map() -> None:
    figure = Figure()
    rows = (("embed", None, 0.0), ("other", None, 1e-5), ("other", 0, 2e-5), ("norm", 0, 1e-6), ("logits", None, 5e-5))
    _map(view(*rows), figure, LIGHT)
    axes = figure.axes[0]
    assert [label.get_text() for label in axes.get_yticklabels()] == ["embed", "other", "norm", "logits"]
    used: np.ma.MaskedArray[Any, Any] = np.ma.asarray(axes.collections[0].get_array()).reshape(4, 3)
    drawn = (~np.ma.getmaskarray(used)).tolist()
    assert drawn == [[True, False, False], [True, True, False], [False, True, False], [False, False, True]]
    assert used[1, 1] == pytest.approx(2 * used[1, 0])


def test_tensors_outside_the_layers_alone_have_no_lines() -> None:
    assert [plot.name for plot in layer_plots(view(("logits", None, 1e-6)))] == ["map-structure-a-subject"]
    assert len(layer_plots(view(("norm", 0, 1e-6), ("logits", None, 1e-6)))) == 3
