"""Look at what lies around the stages: `python -m artifacts doctor`."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from artifacts.command import DONE, Parser, run, stdout
from artifacts.layout import DEFAULT_OUT


def main(arguments: Sequence[str]) -> int:
    """Parse the command line and run one command."""
    parser = Parser(prog="python -m artifacts", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    doctor = commands.add_parser("doctor", help="what this machine has and what that allows")
    doctor.add_argument("--out", type=Path, default=DEFAULT_OUT, help="folder that models go to (default: %(default)s)")
    options = parser.parse_args(arguments)
    return _doctor(options.out)


def _doctor(out: Path) -> int:
    from artifacts.doctor import examine, table

    stdout().print(table(examine(out)))
    return DONE


if __name__ == "__main__":
    run(main)
