"""The worst tensors as a table, each with the command that makes a Polygraphy session of it."""

from __future__ import annotations

import shlex
from dataclasses import dataclass
from pathlib import Path

from validate.layers.findings import LayerFindings, TensorFinding
from validate.layers.limits import spelled
from validate.page.views import distance, used

SHOWN = 16


@dataclass(frozen=True)
class Worst:
    """One row of the table, ready to be shown."""

    name: str
    subject: str
    measure: str
    distance: str
    limit: str
    used: str
    scenario: str
    wrong: bool
    command: str


def worst(findings: LayerFindings, model: Path) -> tuple[Worst, ...]:
    """Give the tensors that use most of their limits; the wrong ones stand first, in graph order.

    Args:
        findings: what was found.
        model: the model's folder, for the commands.
    """
    wrong = sorted((row for row in findings.tensors if row.problem), key=lambda row: row.order)
    right = sorted((row for row in findings.tensors if not row.problem), key=used, reverse=True)
    return tuple(_row(row, model) for row in (*wrong, *right)[:SHOWN])


def _row(row: TensorFinding, model: Path) -> Worst:
    return Worst(
        row.name,
        row.subject,
        row.measure,
        f"{distance(row):.2e}",
        spelled(row.limit),
        f"{100 * used(row):.0f} %",
        row.scenario,
        bool(row.problem),
        command(row, model),
    )


def command(row: TensorFinding, model: Path) -> str:
    """Give the command that cuts this tensor out of its graph, with the values of the call in which it was worst.

    One that could be compared in no call, because it is missing, cannot be cut out: then it is its layer.
    """
    graph = row.subject.rpartition(": ")[2].removesuffix("_fp32")
    missing = not row.scenario and row.layer is not None
    what = ["--layer", str(row.layer)] if missing else ["--tensor", row.name]
    words = ["python", "-m", "validate.debugging", str(model), *what, "--graph", graph]
    return shlex.join([*words, *(["--call", row.scenario] if row.scenario else [])])
