"""The comparison layer by layer on a terminal: worst of each kind, the first wrong tensor, the last word."""

from __future__ import annotations

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from validate.layers.findings import LayerFindings, TensorFinding


def show_layers(found: LayerFindings | None, console: Console) -> None:
    """Print what was found."""
    if found is None:
        return
    console.print(_kinds(found))
    for word in found.last_word:
        console.print(
            f"nothing marked, {word.subject}: logits off by {word.error:.1e}, {word.same} of {word.tokens} next tokens "
            f"the same" + (f", {word.ties} more are ties" if word.ties else ""),
            markup=False,
        )
    tensors, elements = found.compared
    console.print(f"layer by layer ({found.asked}): {tensors:,} tensors, {elements:,} elements; {found.backend}")
    if found.first is not None:
        fed = ", ".join(f"{name} ({'right' if right else 'WRONG'})" for name, right in found.first.feeds)
        console.print(f"[bold red]first wrong tensor[/]: {escape(found.first.name)}, {escape(found.first.subject)}")
        console.print(f"  {found.first.words}", markup=False)
        console.print(f"  fed by {fed or 'nothing that was compared'}; {found.first.where}", markup=False)


def _kinds(found: LayerFindings) -> Table:
    """A row for each kind of tensor, a column for each subject and instrument: the worst layer."""
    columns = list(dict.fromkeys((row.instrument, row.subject) for row in found.tensors))
    title = "Layer by layer: largest error (structure), largest distance of the slope from 1 (precision); worst layer"
    table = Table("kind", *(f"{subject}, {instrument}" for instrument, subject in columns), title=title)
    for kind in dict.fromkeys(row.kind for row in found.tensors):
        table.add_row(
            kind,
            *(
                _cell([row for row in found.tensors if (row.kind, row.instrument, row.subject) == (kind, *column)])
                for column in columns
            ),
        )
    table.caption = f"reference: {found.reference}"
    return table


def _cell(rows: list[TensorFinding]) -> str:
    if not rows:
        return ""
    worst = max(rows, key=lambda row: (bool(row.problem), _size(row)))
    where = "" if worst.layer is None else f" in {worst.layer}"
    return f"[bold red]NO{where}[/]" if worst.problem else f"{_size(worst):.1e}{where}"


def _size(row: TensorFinding) -> float:
    return row.error if row.instrument == "structure" or row.slope is None else abs(row.slope - 1)
