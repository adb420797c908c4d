"""Checks TensorRT's network of a graph, evaluated on the CPU, for `polygraphy debug reduce`.

::

    python -m validate.debugging.check GRAPH --load-inputs every_input.json --load-outputs every_output.json

It stands where `polygraphy run GRAPH --trt ...` stands on a machine with a GPU. Outputs are matched by name, and an
output that the file does not hold is an error, not a pass. Exit code 0: right. 1: wrong. 2: it could not be found out.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from artifacts.backend import Backend, load
from artifacts.command import DONE, VERDICT_NO, Parser, run
from artifacts.errors import refuse
from runtime.session import Array
from validate.layers.measures import measure


def main(arguments: Sequence[str]) -> int:
    """Parse the command line, evaluate, compare."""
    parser = Parser(prog="python -m validate.debugging.check", description=__doc__)
    parser.add_argument("graph", type=Path, help="an ONNX file")
    parser.add_argument("--load-inputs", type=Path, required=True, help="feeds by name, more than it needs or not")
    parser.add_argument("--load-outputs", type=Path, required=True, help="what is right, by name")
    parser.add_argument(
        "--tolerance",
        type=float,
        default=1e-4,
        help="limit of the largest difference as a part of the largest magnitude (default: %(default)g)",
    )
    parser.add_argument(
        "--slope", type=float, help="limit of the slope's distance from 1 (default: the same as --tolerance)"
    )
    given = parser.parse_args(arguments)
    load(Backend.preferred())
    from validate.debugging.readings import network_outputs

    expected = read_outputs(given.load_outputs)
    found = network_outputs(given.graph, read_feeds(given.load_inputs))
    wrong = compare(found, expected, given.tolerance, given.tolerance if given.slope is None else given.slope)
    return VERDICT_NO if wrong else DONE


def compare(found: Mapping[str, Array], expected: Mapping[str, Array], tolerance: float, slope: float) -> list[str]:
    """Print a line for each output and give the names of those that are wrong.

    Raises:
        StageError: an output that nothing is known of, or no output at all.
    """
    unknown = [name for name in found if name not in expected]
    if unknown or not found:
        raise refuse(
            f"nothing is known of {', '.join(unknown)}" if unknown else "the graph has no outputs",
            expected=f"{len(expected)} tensors by name",
            remedy="reduce from twin.onnx or bf16.onnx, whose tensors the file was made for",
        )
    wrong = []
    for name, actual in found.items():
        measured = measure(actual, expected[name])
        off = abs(measured.slope - 1)
        bad = bool(measured.problem) or measured.widest > tolerance or off > slope
        wrong += [name] * bad
        what = measured.problem or f"largest difference {measured.widest:.2e}, slope {measured.slope:.6f}"
        print(f"{'WRONG' if bad else 'right'}  {name}: {what}")
    return wrong


def read_feeds(path: Path) -> dict[str, Array]:
    """Read feeds of one call."""
    from polygraphy.json import load_json

    return dict(load_json(str(path))[0])


def read_outputs(path: Path) -> dict[str, Array]:
    """Read outputs of one call; the first runner's, if there are several."""
    from polygraphy.json import load_json

    return dict(next(iter(load_json(str(path))))[1][0])


if __name__ == "__main__":
    run(main, sys.argv[1:])
