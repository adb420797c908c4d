"""One build, from inputs that were found good to a folder that appears whole."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, BinaryIO

from rich.console import Console

from artifacts.backend import load, logger
from artifacts.digest import HashingFile
from artifacts.errors import StageError
from artifacts.manifest import FileRecord, Manifest
from artifacts.versions import own_version, versions
from artifacts.writing import Writing
from build.engine import Parsed, build_engine, failure, parse_network
from build.layers import count_kinds, read_interface, read_layers, write_network
from build.log import BuildLog
from build.memory import disk_needed, gigabytes, give_back, memory_needed, peak_memory
from build.options import BuildOptions
from build.planning import Planning
from build.progress import Interruption, PhaseBars, monitor
from build.record import facts, options_record
from build.sources import Sources
from build.target import Target
from build.trtexec import command_line, script
from build.weights import check_stored_once

PLAN, NETWORK, LOG, TRTEXEC, MANIFEST = "model.plan", "network.json", "build.log", "trtexec.txt", "manifest.json"
_BLOCK = 1 << 24
Made = tuple[FileRecord, dict[str, Any]]


@dataclass(frozen=True)
class Work:
    """What one build needs to know."""

    sources: Sources
    options: BuildOptions
    target: Target
    planning: Planning
    console: Console

    @property
    def directory(self) -> Path:
        """The plan's folder."""
        return self.sources.folder.target("build", self.target.name)

    @property
    def identity(self) -> dict[str, Any]:
        """What decides whether a plan is up to date, by the names that a manifest has for it."""
        return {
            "options": options_record(self.options, self.target, self.planning),
            "checkpoint": self.sources.checkpoint,
            "inputs": self.sources.files,
            "tools": {**own_version("build"), **versions(self.target.backend.value, "polygraphy")},
        }

    def known(self) -> Manifest | None:
        """Give the manifest of the plan that lies there, if building it again would give the same."""
        try:
            manifest = Manifest.read(self.directory / MANIFEST, made_by=self.sources.folder.command("build"))
        except (StageError, OSError):
            # None, or one that cannot be read: either way the plan is built again.
            return None
        root, digests = self.sources.folder.root, self.sources.digests
        return manifest if manifest.is_current(root, digests, **self.identity) else None

    def build(self) -> Manifest:
        """Build, and let the plan's folder appear."""
        self._announce()
        with Writing(self.directory) as writing:
            manifest = self._write(writing)
        for name, record in manifest.outputs.items():
            self.sources.digests.remember(self.sources.folder.root / name, record.sha256)
        return manifest

    def _announce(self) -> None:
        weights = self.sources.graph.weights
        needs = f"about {gigabytes(memory_needed(weights))} of host memory, {gigabytes(disk_needed(weights))} of disk"
        self.console.print(
            f"building {self.target.name} from {self.sources.graph.path.name}: takes {needs}", soft_wrap=True
        )
        if self.planning.hole is not None:
            self.console.print(f"caution: with these shapes no profile takes {self.planning.hole}", soft_wrap=True)

    def _write(self, writing: Writing) -> Manifest:
        begun = time.monotonic()
        with writing.path(LOG).open("w", encoding="utf-8") as file:
            log = BuildLog(file, self._echo if self.options.verbose else None)
            plan, made = self._listen(log, lambda interruption: self._make(writing, log, interruption))
        made |= facts(self.target, self.planning, self.sources.graph, log.figures)
        made |= {"seconds": round(time.monotonic() - begun, 3), "peak_host_memory": peak_memory()}
        writing.path(TRTEXEC).write_text(script(self._command()), encoding="utf-8")
        records = {PLAN: plan} | {name: FileRecord.written(writing.path(name)) for name in (NETWORK, LOG, TRTEXEC)}
        outputs = {self.sources.folder.relative(self.directory / name): record for name, record in records.items()}
        manifest = Manifest("build", outputs=outputs, facts=made, **self.identity)
        manifest.write(writing.path(MANIFEST))
        return manifest

    def _echo(self, line: str) -> None:
        self.console.out(line, highlight=False)

    def _listen(self, log: BuildLog, make: Callable[[Interruption], Made]) -> Made:
        """Do TensorRT's part of the work with its log and Ctrl-C attended to."""
        interruption = Interruption()
        with interruption.caught():
            speaker = logger(load(self.target.backend))
            speaker.listener = log.hear
            try:
                made = make(interruption)
            finally:
                speaker.listener = None
        if log.failure is not None:
            raise log.failure
        return made

    def _make(self, writing: Writing, log: BuildLog, interruption: Interruption) -> Made:
        """Parse, build, and write network and plan; give the plan's record and what TensorRT made of the graph."""
        trt = load(self.target.backend)
        interruption.check()
        parsed = parse_network(trt, self.sources.graph.path)
        interface, layers = read_interface(parsed[1]), read_layers(parsed[1])
        write_network(writing.path(NETWORK), interface, layers)
        interruption.check()
        engine = self._engine(trt, parsed, interruption)
        interruption.check()
        if engine is None:
            raise failure(log.errors)
        if not self.options.strip_weights:
            check_stored_once(log.figures.weights, len(memoryview(engine)), self.sources.graph)
        with writing.path(PLAN).open("wb") as file:
            plan = copy_engine(engine, file)
        return plan, {"tensors": interface, "layers": count_kinds(layers), "layer_count": len(layers)}

    def _engine(self, trt: Any, parsed: Parsed, interruption: Interruption) -> Any:
        bars = PhaseBars(self.console)
        with bars.progress:
            data = [self.sources.folder.onnx / name for name in self.sources.graph.data_files]
            watch = monitor(trt, bars, interruption, partial(give_back, data))
            return build_engine(trt, parsed, self.target, self.options, self._shapes(), watch)

    def _shapes(self) -> list[Mapping[str, Sequence[Sequence[int]]]]:
        return [profile.shapes(self.planning.inputs) for profile in self.planning.profiles]

    def _command(self) -> list[str]:
        graph = f"../../{self.sources.folder.relative(self.sources.graph.path)}"
        return command_line(graph, self.target, self.options, self._shapes())


def copy_engine(engine: Any, file: BinaryIO) -> FileRecord:
    """Write an engine's buffer to a file without a second copy in memory; give its size and digest."""
    hashing, view = HashingFile(file), memoryview(engine)
    for begin in range(0, len(view), _BLOCK):
        hashing.write(view[begin : begin + _BLOCK])
    return FileRecord(len(view), hashing.hexdigest())
