"""Look at what lies around the stages: this machine, and what the stages cost on it."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from artifacts.command import DONE, Parser, run, stdout
from artifacts.layout import DEFAULT_OUT, ModelFolder, short_name


def main(arguments: Sequence[str]) -> int:
    """Parse the command line and run one command."""
    parser = Parser(prog="python -m artifacts", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    doctor = commands.add_parser("doctor", help="what this machine has and what that allows")
    doctor.add_argument("--out", type=Path, default=DEFAULT_OUT, help="folder that models go to (default: %(default)s)")
    bench = commands.add_parser("bench", help="seconds and memory of every stage -> docs/benchmarks.md")
    bench.add_argument("--model", default="random:smollm3-3b", help="what to export (default: %(default)s)")
    bench.add_argument("--out", type=Path, default=DEFAULT_OUT, help="folder that models go to (default: %(default)s)")
    options = parser.parse_args(arguments)
    return _doctor(options.out) if options.command == "doctor" else _bench(options.model, options.out)


def _doctor(out: Path) -> int:
    from artifacts.doctor import examine, table

    stdout().print(table(examine(out)))
    return DONE


def _bench(model: str, out: Path) -> int:
    from artifacts.benchmark import benchmark, table, write_into

    measured = benchmark(model, ModelFolder(out / f"bench-{short_name(model)}"))
    stdout().print(table(measured))
    write_into(Path("docs/benchmarks.md"), measured, model)
    return DONE


if __name__ == "__main__":
    run(main)
