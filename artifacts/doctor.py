"""What this machine has, and what that allows: one table, before anybody waits for a stage that cannot end well."""

from __future__ import annotations

import os
import platform
import shutil
import subprocess
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import psutil
from rich.table import Table

from artifacts.versions import versions

GIB = 1 << 30

FULL_SIZE_NEEDS = {"export": 2, "build": 14, "validate": 15}
"""GiB of host memory that a stage wants free for SmolLM3-3B: as docs/benchmarks.md has it, and some to spare."""
FULL_SIZE_DISK = 16
"""GiB on disk for SmolLM3-3B: weights 6.2, plan 6.2, results of the comparison."""


@dataclass(frozen=True)
class Finding:
    """One row: what was looked for, what is there, and what that allows."""

    subject: str
    found: str
    allows: str


def has_bf16(capability: str) -> bool:
    """Whether TensorRT has kernels for attention in BF16 for a compute capability: from Ampere on.

    For Turing it says "cannot compile for sm75, because the model contains HW-specific datatypes: b16".
    """
    return float(capability) >= 8.0


@dataclass(frozen=True)
class Gpu:
    """One NVIDIA GPU as its driver reports it."""

    name: str
    driver: str
    memory: str
    compute_capability: str

    @property
    def has_bf16(self) -> bool:
        """Whether TensorRT has kernels for attention in BF16 for it."""
        return has_bf16(self.compute_capability)


def memory_limit() -> int:
    """Bytes of memory that this process may use: the machine's, or the control group's if that is less."""
    limits = [psutil.virtual_memory().total]
    for path in ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes"):
        try:
            limits.append(int(Path(path).read_text()))
        except (OSError, ValueError):
            continue
    return min(limits)


def memory_available() -> int:
    """Bytes of memory that may be taken: what is free, or the control group's limit if that is less."""
    return min(memory_limit(), psutil.virtual_memory().available)


def disk_available(folder: Path) -> int:
    """Bytes that are free where a folder is or will be."""
    place = next(parent for parent in (folder.resolve(), *folder.resolve().parents) if parent.exists())
    return shutil.disk_usage(place).free


def ask_driver(command: Sequence[str]) -> str:
    """Run `nvidia-smi` and give what it prints; nothing if there is no driver."""
    try:
        return subprocess.run(command, capture_output=True, text=True, timeout=20, check=True).stdout
    except (OSError, subprocess.SubprocessError):
        return ""


def find_gpus(ask: Callable[[Sequence[str]], str] = ask_driver) -> list[Gpu]:
    """List the NVIDIA GPUs that the driver knows."""
    fields = "name,driver_version,memory.total,compute_cap"
    lines = ask(("nvidia-smi", f"--query-gpu={fields}", "--format=csv,noheader")).splitlines()
    return [Gpu(*parts) for line in lines if len(parts := [part.strip() for part in line.split(",")]) == 4]


def examine(out: Path, gpus: Sequence[Gpu] | None = None) -> list[Finding]:
    """Look at this machine.

    Args:
        out: the folder that models go to; its disk is the one that counts.
        gpus: what to take for the GPUs of this machine; looked up if not given.
    """
    gpus = find_gpus() if gpus is None else gpus
    return [_python(), _memory(), _disk(out), _gpu(gpus), *_tensorrt(bool(gpus)), _onnxruntime(bool(gpus))]


def table(findings: Sequence[Finding]) -> Table:
    """Lay the findings out for a terminal."""
    result = Table("what", "found", "allows", title="This machine")
    for finding in findings:
        result.add_row(finding.subject, finding.found, finding.allows)
    return result


def _python() -> Finding:
    torch = versions("torch")["torch"]
    allows = "surgery and build; make setup installs the rest" if torch == "absent" else "export, surgery, validate"
    return Finding("Python", f"{platform.python_version()}, torch {torch}, {os.cpu_count()} cores", allows)


def _memory() -> Finding:
    total, free = memory_limit(), memory_available()
    fits = [stage for stage, need in FULL_SIZE_NEEDS.items() if free >= need * GIB]
    lacks = [f"{stage} ({need} GiB)" for stage, need in FULL_SIZE_NEEDS.items() if stage not in fits]
    allows = f"SmolLM3-3B: {', '.join(fits) or 'no stage'}" + (f"; not {', '.join(lacks)}" if lacks else "")
    return Finding("memory", f"{total / GIB:.1f} GiB, {free / GIB:.1f} free", allows)


def _disk(out: Path) -> Finding:
    free = disk_available(out) / GIB
    enough = "room for" if free >= FULL_SIZE_DISK else "no room for"
    return Finding("disk", f"{free:.1f} GiB free at {out}", f"{enough} SmolLM3-3B ({FULL_SIZE_DISK} GiB)")


def _gpu(gpus: Sequence[Gpu]) -> Finding:
    if not gpus:
        return Finding("NVIDIA GPU", "none", "plans are built ahead of time, not run; results come from the CPU")
    names = "; ".join(f"{g.name}, sm{g.compute_capability.replace('.', '')}, {g.memory}" for g in gpus)
    return Finding("NVIDIA GPU", f"{names}; driver {gpus[0].driver}", _can_run(gpus[0]))


def _can_run(gpu: Gpu) -> str:
    if gpu.has_bf16:
        return "engines can be run"
    return "too old for attention in BF16: plans are built for others (--compute-capability); results come from the CPU"


def _tensorrt(gpu: bool) -> list[Finding]:
    found = versions("tensorrt", "tensorrt-rtx")
    full = "builds and runs plans for this GPU" if gpu else "needs a GPU to build"
    if found["tensorrt"] == "absent":
        full = "make setup installs it" if gpu else "not needed without a GPU"
    rtx = (
        "absent: run make setup"
        if found["tensorrt-rtx"] == "absent"
        else "builds plans for named GPUs, with or without one"
    )
    return [Finding("TensorRT", found["tensorrt"], full), Finding("TensorRT-RTX", found["tensorrt-rtx"], rtx)]


def _onnxruntime(gpu: bool) -> Finding:
    import onnxruntime

    providers = [name.removesuffix("ExecutionProvider") for name in onnxruntime.get_available_providers()]
    usable = "CUDA and CPU" if gpu and "CUDA" in providers else "CPU, with the FP32 twins"
    found = ", ".join(providers)
    if not gpu:
        idle = [name for name in providers if name in ("Tensorrt", "CUDA")]
        found = ", ".join(name for name in providers if name not in idle)
        found += f" ({', '.join(idle)} built in, without a GPU of no use)" if idle else ""
    return Finding("ONNX Runtime", f"{onnxruntime.__version__}: {found}", usable)
