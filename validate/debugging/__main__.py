"""Make a folder for a Polygraphy session: `python -m validate.debugging OUT/<model> [--layer 7 | --tensor NAME]`.

Without --layer and --tensor it is made for the first wrong tensor of the last report. The folder's README.md has the
commands to go on with.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from artifacts.command import DONE, Parser, run, stderr, stdout
from artifacts.contract import Form
from validate.debugging.request import FORMS, Request


def main(arguments: Sequence[str]) -> int:
    """Parse the command line and make the folder."""
    parser = Parser(prog="python -m validate.debugging", description=__doc__)
    parser.add_argument("model", type=Path, metavar="OUT/<model>", help="the model's folder")
    what = parser.add_mutually_exclusive_group()
    what.add_argument("--layer", type=_layer, metavar="N", help="a whole decoder layer, counted from 0")
    what.add_argument("--tensor", help="the step that makes a tensor, such as model.layers.7.self_attn.attention")
    forms = [form.value for form in FORMS]
    parser.add_argument("--graph", choices=forms, help=f"the graph to cut (default: {Form.MODEL.value})")
    parser.add_argument("--call", help="the call of the comparison whose values are taken (default: the usual one)")
    given = parser.parse_args(arguments)
    asked = given.layer is not None or given.tensor is not None
    if not asked and (given.graph or given.call):
        parser.error("--graph and --call go with --layer or --tensor; the report names its own")
    request = None
    if asked:
        request = Request(given.layer, given.tensor, Form(given.graph or Form.MODEL.value), given.call)
    with stderr().status("cutting, running the reference, evaluating TensorRT's network"):
        from validate.debugging.folder import debug

        piece = debug(given.model, request)
    _show(piece)
    return DONE


def _layer(text: str) -> int:
    if not (text.isascii() and text.isdecimal()):
        raise argparse.ArgumentTypeError(f"expected one layer, such as 7, found {text!r}; each has its own folder")
    return int(text)


def _show(piece: object) -> None:
    from rich.markup import escape
    from rich.table import Table

    from validate.debugging.comparison import conclusion
    from validate.debugging.folder import Piece

    assert isinstance(piece, Piece)
    table = Table("side", "output", "largest difference", "slope", "", title=f"{piece.cut.title}: {piece.call.name}")
    for reading in piece.readings:
        verdict = reading.verdict.replace("WRONG", "[bold red]WRONG[/]")
        found = escape(reading.problem) or f"{reading.error:.2e}"
        table.add_row(reading.side, reading.output, found, f"{reading.slope:.6f}", verdict)
    console = stdout()
    console.print(table)
    console.print(conclusion(piece.readings, piece.unlike), markup=False)
    if piece.cut.left_out:
        missing = ", ".join(piece.cut.left_out)
        console.print(
            f"left out, because the BF16 graph and its FP32 twin do not both make it: {missing}", markup=False
        )
    console.print(f"go on in {piece.folder} (README.md)", markup=False, soft_wrap=True)


if __name__ == "__main__":
    run(main, sys.argv[1:])
