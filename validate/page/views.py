"""The layer-by-layer findings as pictures need them: one view for every instrument and subject."""

from __future__ import annotations

import re
from dataclasses import dataclass

from validate.layers.findings import Instrument, LayerFindings, TensorFinding

RIGHT = {"error": 0.0, "slope": 1.0, "bias": 0.0, "spread": 0.0, "rows": 0.0}
"""What each measure is where nothing differs."""


@dataclass(frozen=True)
class View:
    """All rows of one subject under one instrument, in graph order."""

    instrument: Instrument
    subject: str
    rows: tuple[TensorFinding, ...]

    @property
    def slug(self) -> str:
        """A name for files."""
        return re.sub(r"[^a-z0-9]+", "-", f"{self.instrument} {self.subject}".lower()).strip("-")

    @property
    def kinds(self) -> tuple[str, ...]:
        """Kinds of tensors inside the layers, in graph order."""
        return tuple(dict.fromkeys(row.kind for row in self.rows if row.layer is not None))

    @property
    def layers(self) -> int:
        """Layers, the highest number plus one."""
        return max((row.layer for row in self.rows if row.layer is not None), default=-1) + 1

    @property
    def measure(self) -> str:
        """What is drawn as error: the largest difference between FP32 graphs, the spread where BF16 rounds."""
        return "error" if self.instrument == "structure" else "spread"

    def value(self, row: TensorFinding) -> float | None:
        """Give a row's error as this view draws it."""
        return row.error if self.measure == "error" else row.spread


def views(findings: LayerFindings) -> tuple[View, ...]:
    """Give every view, those with something wrong in them first, else in the order in which they were made."""
    keys = dict.fromkeys((row.instrument, row.subject) for row in findings.tensors)
    found = [View(*key, tuple(row for row in findings.tensors if (row.instrument, row.subject) == key)) for key in keys]
    return tuple(sorted(found, key=lambda view: all(row.verdict for row in view.rows)))


def distance(row: TensorFinding) -> float:
    """Give how far the measure that decided is from what is right; infinite where nothing could be measured."""
    measured = getattr(row, row.measure, None)
    if not row.elements or measured is None:
        return float("inf") if row.problem else 0.0
    return abs(float(measured) - RIGHT[row.measure])


def used(row: TensorFinding) -> float:
    """Give how much of its limit a tensor uses: 1 is at the limit; above 1, or infinite, is wrong."""
    found = distance(row)
    if row.limit:
        return found / row.limit
    return float("inf") if found else 0.0
