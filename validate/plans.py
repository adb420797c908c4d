"""Look at the plans that were built: are they whole, and were they built from the graphs that are validated here?

A plan is not opened here, let alone run. An old plan beside new graphs is a "no": who takes both takes a
graph that was validated and an engine that was not made from it.
"""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from artifacts.contract import Form
from artifacts.digest import Digests
from artifacts.errors import StageError
from artifacts.layout import ModelFolder
from artifacts.manifest import Manifest


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
    remedy = f"{folder.command('build')}, or remove {place}"
    try:
        manifest = Manifest.read(place / "manifest.json", made_by=remedy)
        remedy = _remedy(folder, place, manifest)
        manifest.check_outputs(folder.root, digests, made_by=remedy)
    except StageError as error:
        return tuple(str(problem) for problem in error.problems)
    stale = [
        f"{place.name} was built from another {name}; build it again: {remedy}"
        for name in manifest.changed_inputs(folder.root, digests)
    ]
    if not manifest.inputs:
        stale.append(f"{place.name} does not say what it was built from; build it again: {remedy}")
    return tuple(stale)


def _remedy(folder: ModelFolder, place: Path, manifest: Manifest) -> str:
    """Spell the command that builds this very plan again; shapes and a timing cache of its own are not in it."""
    arguments = shlex.join(_arguments(manifest.options))
    command = folder.command("build") + (f" BUILD_ARGS={shlex.quote(arguments)}" if arguments else "")
    return f"{command}, or remove {place}"


def _arguments(options: Mapping[str, Any]) -> list[str]:
    """Give the flags of `python -m build` for what a plan's manifest says that it was asked for.

    A linear cache has its context in the graph, and a plan for the GPU of the machine is one that named none.
    """
    linear = Form.MODEL_LINEAR.value
    values = {
        "--backend": options.get("backend"),
        "--graph": options.get("graph"),
        "--max-batch-size": options.get("max_batch_size"),
        "--max-context": None if options.get("graph") == linear else options.get("max_context"),
        "--prefill-chunk": options.get("prefill_chunk"),
        "--memPoolSize": ",".join(f"{pool}:{size}B" for pool, size in options.get("memory_pools", {}).items()) or None,
        "--builderOptimizationLevel": options.get("builder_optimization_level"),
        "--profilingVerbosity": options.get("profiling_verbosity"),
        "--hardwareCompatibilityLevel": options.get("hardware_compatibility_level"),
    }
    flags = {"--versionCompatible": "version_compatible", "--stripWeights": "strip_weights", "--refit": "refit"}
    chips = [] if options.get("current_gpu") else options.get("compute_capabilities", [])
    return [
        *(word for flag, value in values.items() if value is not None for word in (flag, str(value))),
        *(flag for flag, name in flags.items() if options.get(name)),
        *(["--compute-capability", *map(str, chips)] if chips else []),
    ]
