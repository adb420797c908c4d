"""Train the tiny model and write its checkpoint: `python -m artifacts.checkpoints`.

A training that was stopped goes on where its state was kept last. Nothing is fetched: all data comes from the seed.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from artifacts.command import DONE, Parser, run, stderr

PLACE = Path(__file__).parent / "smollm3-tiny"


def main(arguments: Sequence[str]) -> int:
    """Parse the command line and train."""
    parser = Parser(prog="python -m artifacts.checkpoints", description=__doc__)
    parser.add_argument("--place", type=Path, default=PLACE, help="the checkpoint's folder (default: where it lies)")
    parser.add_argument(
        "--work", type=Path, default=Path("artifacts/out/.training"), help="keeps the state (default: %(default)s)"
    )
    parser.add_argument("--seed", type=int, default=1, help="everything follows from it (default: %(default)s)")
    parser.add_argument("--steps", type=int, help="fewer are quicker, and learn less")
    given = parser.parse_args(arguments)
    if (given.seed, given.steps) != (1, None) and given.place.resolve() == PLACE.resolve():
        parser.error("another --seed or --steps makes another model, which needs a --place of its own")

    from artifacts.checkpoints.making import make
    from artifacts.checkpoints.progress import Progress
    from artifacts.checkpoints.training import Recipe

    recipe = Recipe(given.seed) if given.steps is None else Recipe(given.seed, given.steps)
    make(given.place, given.work, recipe, Progress(stderr()))
    print(given.place)
    return DONE


if __name__ == "__main__":
    run(main)
