"""A build says beforehand how much host memory and disk it will take, and does not begin where there is less.

Measured with TensorRT-RTX 1.7.1 on SmolLM3-3B (6.17 GB of initializers): at most 12.9 GB of the process's own, and
14.0 GB with what is mapped of the weights' file, of which `give_back` makes less (19.1 GB without it). 0.8 GB and 2.2
times the weights (14.4 GB) leaves it some; the number of compute capabilities does not matter.
"""

from __future__ import annotations

import ctypes
import mmap
import os
import resource
import sys
from collections.abc import Callable, Collection
from dataclasses import dataclass
from pathlib import Path

from artifacts.doctor import disk_available, memory_available
from artifacts.errors import Problem, StageError

GB = 10**9
BASE, PER_WEIGHT = 0.8 * GB, 2.2
TUNABLES = "GLIBC_TUNABLES"
PLAN_EXTRA = 64 * 1024 * 1024
"""Bytes of a plan beside its weights: layers, and kernels where they are compiled beforehand."""


def memory_needed(weights: int) -> int:
    """Bytes of host memory that a build takes at its peak, for so many bytes of weights."""
    return int(BASE + PER_WEIGHT * weights)


def disk_needed(weights: int) -> int:
    """Bytes of disk that a new plan takes, beside the old one until it is whole."""
    return int(1.05 * weights) + PLAN_EXTRA


@dataclass(frozen=True)
class Room:
    """What the machine has; a test puts other numbers here."""

    memory: Callable[[], int] = memory_available
    disk: Callable[[Path], int] = disk_available

    def check(self, weights: int, folder: Path) -> None:
        """Insist that a build fits.

        Raises:
            StageError: there is too little memory or disk, with both numbers.
        """
        problems = []
        needed, here = memory_needed(weights), self.memory()
        if here < needed:
            remedy = "free memory, or build on a larger machine and copy the folder here"
            problems.append(
                Problem("too little host memory for this build", gigabytes(needed), gigabytes(here), remedy)
            )
        needed, here = disk_needed(weights), self.disk(folder)
        if here < needed:
            remedy = "free space or set OUT to a larger disk"
            problems.append(Problem("too little disk for the plan", gigabytes(needed), gigabytes(here), remedy))
        if problems:
            raise StageError(problems)


def ask_for_large_pages() -> None:
    """Begin this process anew with a `malloc` that asks the system for large pages, unless it was told something else.

    glibc takes that from the environment only, before a process begins. A build touches twice its weights in memory
    that is new to the process; in pages of 4 KB that took half of its time (docs/benchmarks.md).
    """
    if TUNABLES not in os.environ:
        os.environ[TUNABLES] = "glibc.malloc.hugetlb=1"
        os.execv(sys.executable, [sys.executable, *sys.orig_argv[1:]])


def give_back(files: Collection[Path]) -> None:
    """Let the system have the pages of files that are mapped here to be read.

    TensorRT maps the weights' file and copies what it reads, but the pages count as this process's until it ends. One
    that is read again comes back by itself, from the system's cache of the file.
    """
    libc, names = ctypes.CDLL(None), {str(path.resolve()) for path in files}
    for line in Path("/proc/self/maps").read_text(encoding="utf-8").splitlines():
        place, rights, _offset, _device, _inode, *name = line.split(maxsplit=5)
        # What may be written could hold changes, which would be lost.
        if name and name[0] in names and "w" not in rights:
            begin, end = (int(address, 16) for address in place.split("-"))
            libc.madvise(ctypes.c_void_p(begin), ctypes.c_size_t(end - begin), mmap.MADV_DONTNEED)


def gigabytes(size: int) -> str:
    """Write a size in GB (10^9 bytes), or MB below one."""
    return f"{size / GB:.2f} GB" if size >= GB else f"{size / 10**6:.1f} MB"


def peak_memory() -> int:
    """Bytes of host memory that this process has held at most."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
