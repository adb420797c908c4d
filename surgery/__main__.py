"""Fuse a raw export: `python -m surgery OUT/<model> [--capacity 4096]`.

Reads OUT/<model>/onnx/export.onnx and writes model.onnx (the fused graph, logits of the last position),
model_linear.onnx (a cache of fixed capacity, written in place), model_all.onnx (logits of every position) and the FP32
twin of each, beside the same data file. Says "up to date" where nothing would change.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from artifacts.command import DONE, Parser, run, stderr, stdout
from surgery.operation import FusedModel, fuse
from surgery.options import DEFAULT_CAPACITY

COLUMNS = ("Attention", "RMSNormalization", "RotaryEmbedding", "Concat", "TensorScatter")


def main(arguments: Sequence[str]) -> int:
    """Parse the command line, fuse, and print what was made."""
    parser = Parser(prog="python -m surgery", description=__doc__)
    parser.add_argument("model", type=Path, metavar="OUT/<model>", help="the model's folder, as export made it")
    parser.add_argument(
        "--capacity",
        type=int,
        metavar="SLOTS",
        help="slots of the linear cache (default: as the graphs there have it, "
        f"else {DEFAULT_CAPACITY}, or all positions of a model with fewer)",
    )
    options = parser.parse_args(arguments)
    with stderr().status("reading") as status:
        made = fuse(options.model, options.capacity, tell=status.update)
    show(made)
    return DONE


def show(made: FusedModel) -> None:
    """Print a table of the graphs, their counts and sizes."""
    from rich.table import Table

    facts = made.manifest.facts
    title = f"{made.folder.name}: {'up to date' if made.up_to_date else 'fused'}"
    table = Table(title=title, title_justify="left", caption_justify="left", caption=_caption(facts["stripped"]))
    table.add_column("graph")
    for column in ("nodes", *COLUMNS, "bytes"):
        table.add_column(column, justify="right")
    for name, graph in facts["graphs"].items():
        counts = [str(graph["operators"].get(column, 0)) for column in COLUMNS]
        table.add_row(name, str(graph["nodes"]), *counts, f"{made.manifest.outputs[f'onnx/{name}'].size:,}")
    stdout().print(table)


def _caption(stripped: list[str]) -> str:
    return (
        f"taken out of NoPE layers: {'; '.join(stripped)}" if stripped else "no NoPE layer had a rotation to take out"
    )


if __name__ == "__main__":
    run(main)
