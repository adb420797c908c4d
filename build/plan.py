"""Builds one plan: options and sources are judged first, then TensorRT works, then everything appears at once."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console

from artifacts.command import stderr
from artifacts.doctor import Gpu, find_gpus
from artifacts.layout import ModelFolder
from artifacts.manifest import Manifest
from build.flags import check_flags
from build.memory import Room
from build.options import BuildOptions
from build.planning import Planning
from build.sources import read_sources
from build.target import choose_target
from build.work import PLAN, Work


@dataclass(frozen=True)
class Plan:
    """A plan in its folder, with the manifest that tells what it is.

    Attributes:
        folder: the model's folder.
        target: name of the plan's folder below `build/`.
        manifest: what made it, from what.
        fresh: whether this call built it; False if it was up to date.
    """

    folder: ModelFolder
    target: str
    manifest: Manifest
    fresh: bool = False

    @property
    def directory(self) -> Path:
        """The plan's folder."""
        return self.folder.target("build", self.target)

    @property
    def path(self) -> Path:
        """The engine's file."""
        return self.directory / PLAN


def build_plan(
    folder: ModelFolder | Path,
    options: BuildOptions | None = None,
    *,
    room: Room | None = None,
    gpus: Sequence[Gpu] | None = None,
    console: Console | None = None,
) -> Plan:
    """Build a TensorRT engine of a model's fused graph, or find it up to date.

    Args:
        folder: the model's folder, `OUT/<model>/`, with what surgery made.
        options: what to build.
        room: what memory and disk there is; this machine's if not given.
        gpus: the GPUs of this machine; looked up if not given.
        console: where progress goes; stderr if not given.

    Raises:
        StageError: an input is missing, stale or another one, an option cannot be done, the machine is too small,
            TensorRT does not take the graph, or the plan holds its weights twice. Nothing is written then.
    """
    folder = folder if isinstance(folder, ModelFolder) else ModelFolder(folder)
    options = options or BuildOptions()
    found = find_gpus() if gpus is None else gpus
    target = choose_target(options.backend, options.compute_capabilities, options.form, found)
    check_flags(options, target)
    sources = read_sources(folder, options.form)
    planning = Planning(options, sources.config, sources.graph)
    work = Work(sources, options, target, planning, console or stderr())
    known = work.known()
    if known is not None:
        return Plan(folder, target.name, known)
    (room or Room()).check(sources.graph.weights, work.directory)
    return Plan(folder, target.name, work.build(), fresh=True)
