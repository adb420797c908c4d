"""Look at the plans that were built: are they whole, and were they built from the graphs that are validated here?

A plan is not opened here, let alone run. An old plan beside new graphs is a "no": who takes both takes a
graph that was validated and an engine that was not made from it.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from artifacts.digest import Digests
from artifacts.errors import StageError
from artifacts.layout import ModelFolder
from artifacts.manifest import FileRecord, Manifest


@dataclass(frozen=True)
class PlanState:
    """One folder in `build/`.

    Attributes:
        problems: why it is not the plan of these graphs; empty if it is.
    """

    target: str
    problems: tuple[str, ...]


def look(folder: ModelFolder, digests: Digests) -> tuple[PlanState, ...]:
    """Look at every plan of a model."""
    places = sorted(path for path in (folder.root / "build").glob("*") if path.is_dir())
    return tuple(
        PlanState(place.name, _problems(folder, place, digests)) for place in places if not place.name.startswith(".")
    )


def _problems(folder: ModelFolder, place: Path, digests: Digests) -> tuple[str, ...]:
    command = folder.command("build")
    try:
        manifest = Manifest.read(place / "manifest.json", made_by=command)
        manifest.check_outputs(folder.root, digests, made_by=command)
    except StageError as error:
        return tuple(str(problem) for problem in error.problems)
    stale = []
    for name, record in manifest.inputs.items():
        path = folder.root / name
        if not path.is_file() or FileRecord.of(path, digests) != record:
            stale.append(f"{place.name} was built from another {name}; build it again: {command}")
    if not manifest.inputs:
        stale.append(f"{place.name} does not say what it was built from; build it again: {command}")
    return tuple(stale)
