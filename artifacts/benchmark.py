"""Time and memory of every stage at full size, each in a fresh process, written into docs/benchmarks.md.

    make bench                      random:smollm3-3b, the full size, in a folder of its own
    python -m artifacts bench --model random:tiny --out /some/folder

A stage is measured from outside, as the operating system accounts for it: wall-clock seconds, processor seconds, and
the peak resident memory of its largest process.
"""

from __future__ import annotations

import os
import platform
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.table import Table

from artifacts.command import stderr
from artifacts.doctor import find_gpus, memory_limit
from artifacts.errors import refuse
from artifacts.layout import ModelFolder
from artifacts.manifest import Manifest

BEGIN, END = "<!-- stages: written by make bench -->", "<!-- stages: end -->"
HEADER = ("stage", "seconds", "processor seconds", "peak memory, GB", "written, GB", "what it made")


@dataclass(frozen=True)
class Measured:
    """One stage's run: seconds of wall clock and of processor, peak resident bytes of its largest process."""

    stage: str
    seconds: float
    processor_seconds: float
    peak_bytes: int
    written_bytes: int
    made: str

    def cells(self) -> tuple[str, ...]:
        """The row of the table."""
        return (
            self.stage,
            f"{self.seconds:.1f}",
            f"{self.processor_seconds:.1f}",
            f"{self.peak_bytes / 1e9:.2f}",
            f"{self.written_bytes / 1e9:.2f}",
            self.made,
        )


def benchmark(model: str, folder: ModelFolder) -> list[Measured]:
    """Run every stage on a model that has not been made yet, and measure each.

    Raises:
        StageError: the folder is there already (a stage that is up to date measures nothing), or a stage fails.
    """
    if folder.root.exists():
        raise refuse(
            f"{folder.root} is there already",
            expected="an empty place, so that every stage does its work",
            found=f"{len(list(folder.root.iterdir()))} entries",
            remedy=f"rm -r {folder.root}",
        )
    export = ("--model", model, "--out", str(folder.root.parent), "--name", folder.name)
    return [
        measure("export", export, folder),
        *(measure(stage, (str(folder.root),), folder) for stage in ("surgery", "build", "validate")),
    ]


def measure(stage: str, arguments: Sequence[str], folder: ModelFolder) -> Measured:
    """Run one stage in a fresh process and measure it.

    Raises:
        StageError: the stage ended with another exit code than 0.
    """
    stderr().print(f"[bold]{stage}[/bold] …")
    start = time.monotonic()
    process = subprocess.Popen([sys.executable, "-m", stage, *arguments], stdout=subprocess.DEVNULL)
    _, status, usage = os.wait4(process.pid, 0)
    seconds = time.monotonic() - start
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise refuse(f"{stage} failed", expected="exit code 0", found=str(process.returncode), remedy="run it alone")
    manifest = read_manifest(stage, folder)
    return Measured(
        stage,
        seconds,
        usage.ru_utime + usage.ru_stime,
        usage.ru_maxrss * 1024,
        sum(record.size for record in manifest.outputs.values()),
        summary(stage, manifest.facts),
    )


def read_manifest(stage: str, folder: ModelFolder) -> Manifest:
    """Give the manifest that a stage has just written."""
    if stage == "export":
        return folder.export_manifest()
    if stage == "surgery":
        return folder.surgery_manifest()
    newest = max((folder.root / stage).glob("*/manifest.json"), key=lambda path: path.stat().st_mtime)
    return Manifest.read(newest, made_by=f"make {stage}")


def summary(stage: str, facts: Mapping[str, Any]) -> str:
    """Give the numbers of a manifest's facts that a reader of a benchmark looks for."""
    if stage == "export":
        return f"{facts['parameters']:,} parameters, {facts['nodes']:,} nodes"
    if stage == "surgery":
        return ", ".join(f"{name}: {graph['nodes']:,} nodes" for name, graph in facts["graphs"].items())
    if stage == "build":
        profiles = zip(facts["profiles"], facts["activation_memory"], strict=True)
        activations = ", ".join(f"{profile['name']} {size / 1e6:.1f} MB" for profile, size in profiles)
        weights = f"weights {facts['weights_memory'] / 1e9:.2f} GB for {facts['initializers'] / 1e9:.2f} GB"
        return f"{facts['layer_count']:,} TensorRT layers, {weights}, activations: {activations}"
    return f"verdict {facts['verdict']}: {facts['tensors']:,} tensors, {facts['elements']:,} elements"


def machine() -> str:
    """Say what was measured on, without naming anybody's machine."""
    cpu = next(
        (line.partition(":")[2].strip() for line in _lines("/proc/cpuinfo") if line.startswith("model name")),
        platform.machine(),
    )
    gpus = ", ".join(gpu.name for gpu in find_gpus()) or "no GPU"
    return f"{cpu}, {os.cpu_count()} cores, {memory_limit() / 2**30:.0f} GiB, {gpus}"


def write_into(document: Path, measured: Sequence[Measured], model: str) -> None:
    """Replace what the last run wrote of the stages in a document."""
    lines = markdown(HEADER, [row.cells() for row in measured])
    replace_between(document, BEGIN, END, f"{heading(model)}\n\n{lines}")


def heading(model: str) -> str:
    """Say what was measured, when, and on what."""
    return f"`{model}`, {time.strftime('%Y-%m-%d', time.gmtime())}, on {machine()}:"


def markdown(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Lay rows of text out as a table of Markdown."""
    return "\n".join(f"| {' | '.join(cells)} |" for cells in (header, ["---"] * len(header), *rows))


def replace_between(document: Path, begin: str, end: str, body: str) -> None:
    """Replace what stands between two markers of a document; the markers stay."""
    before, _, rest = document.read_text(encoding="utf-8").partition(begin)
    document.write_text(f"{before}{begin}\n{body}\n{end}{rest.partition(end)[2]}", encoding="utf-8")


def table(measured: Sequence[Measured]) -> Table:
    """Lay the measurements out for a terminal."""
    result = Table(*HEADER, title="Stages")
    for row in measured:
        result.add_row(*row.cells())
    return result


def _lines(path: str) -> list[str]:
    try:
        return Path(path).read_text(encoding="utf-8").splitlines()
    except OSError:
        return []
