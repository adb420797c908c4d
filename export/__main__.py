"""Export a SmolLM3 checkpoint to ONNX.

MODEL is a checkpoint of this repository (smollm3-tiny), a repository of the hub (HuggingFaceTB/SmolLM3-3B), a folder in
the layout of save_pretrained, or a seeded random model (random:tiny, random:smollm3-3b). Writes OUT/<model>/onnx/.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from artifacts import command
from artifacts.layout import DEFAULT_OUT
from export.options import ExportOptions
from export.pipeline import export_onnx
from export.progress import Progress
from export.summary import print_summary


def main(arguments: Sequence[str]) -> int:
    """Parse the command line, export, and print what was made."""
    parser = command.Parser(prog="python -m export", description=__doc__)
    parser.add_argument("--model", required=True, help="smollm3-tiny, a hub id, a folder, or random:<preset>")
    parser.add_argument(
        "--out", type=Path, default=DEFAULT_OUT, help="folder that holds the models' folders (default: %(default)s)"
    )
    parser.add_argument("--name", help="the model's short name (default: derived from MODEL)")
    parser.add_argument("--revision", help="revision of a hub repository (default: the pinned one, else main)")
    given = parser.parse_args(arguments)
    options = ExportOptions(given.model, given.out, given.name, given.revision)
    with Progress(command.stderr()) as progress:
        made = export_onnx(options, progress)
    print_summary(made, command.stdout())
    return command.DONE


if __name__ == "__main__":
    command.run(main)
