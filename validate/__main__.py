"""Compare every way to run a model with PyTorch: `python -m validate OUT/<model>`.

Exit code 0: the verdict is yes. 1: it is no. 2: it could not be found out.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from artifacts.command import DONE, VERDICT_NO, Parser, run, stdout
from validate.runners import LARGE
from validate.validation import Options, validate


def main(arguments: Sequence[str]) -> int:
    """Parse the command line and validate."""
    parser = Parser(prog="python -m validate", description=__doc__)
    parser.add_argument("model", type=Path, help="the model's folder, OUT/<model>")
    parser.add_argument("--prompt", default=Options.prompt, help="text to continue greedily (default: %(default)r)")
    parser.add_argument("--tokens", type=int, default=Options.tokens, help="tokens to choose (default: %(default)s)")
    parser.add_argument(
        "--layers",
        default=Options.layers,
        help="compared layer by layer: named tensors of every layer, all (every tensor), layers such as 3,7, or "
        "tensors by name (default: %(default)s)",
    )
    parser.add_argument(
        "--thorough",
        action="store_true",
        help=f"evaluate TensorRT's networks through every scenario at any size, not only below {LARGE:,} parameters",
    )
    parser.add_argument("--text", type=Path, help="measure the perplexity of this file, for any model with a tokenizer")
    given = parser.parse_args(arguments)
    options = Options(given.prompt, given.tokens, given.layers, given.thorough, given.text)
    report = validate(given.model, options)

    from validate.table import show

    show(report, stdout())
    return DONE if report.verdict else VERDICT_NO


if __name__ == "__main__":
    run(main)
