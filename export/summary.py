"""What an export made, as one table on stdout."""

from __future__ import annotations

from rich.console import Console
from rich.table import Table

from export.pipeline import OnnxModel


def print_summary(made: OnnxModel, console: Console) -> None:
    """Print the files with their sizes and digests, and what is to know of them."""
    if made.was_current:
        console.print(f"up to date: {made.folder.onnx}", soft_wrap=True)
        return
    table = Table("file", "bytes", "sha256", title=f"{made.folder.onnx}", title_justify="left", box=None)
    table.columns[1].justify = "right"
    for name, record in made.manifest.outputs.items():
        table.add_row(name, f"{record.size:,}", record.sha256[:16])
    console.print(table)
    facts = made.manifest.facts
    rounding = facts["rounding"]
    console.print(
        f"{facts['parameters']:,} parameters, {facts['nodes']:,} nodes, "
        f"NoPE layers {', '.join(map(str, facts['nope_layers'])) or 'none'} "
        f"({facts['nope_source']}), {facts['max_positions']:,} positions",
        soft_wrap=True,
    )
    if rounding["tensors"]:
        console.print(
            f"{rounding['tensors']} tensors were rounded to BF16: {rounding['elements']:,} elements changed, "
            f"by at most {rounding['max_abs']:.2e} ({rounding['max_relative']:.2%})"
        )
