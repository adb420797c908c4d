"""A build says beforehand how much host memory and disk it will take, and does not begin where there is less.

Measured with TensorRT-RTX 1.7.1 on SmolLM3-3B (6.17 GB of initializers): 12.9 GB of the process's own, and up to 6.1 GB
of the weights' file mapped beside it, which the system takes back when it needs to. 0.8 GB and 2.2 times the weights
(14.4 GB) leaves it some; the number of compute capabilities does not matter.
"""

from __future__ import annotations

import resource
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from artifacts.doctor import disk_available, memory_available
from artifacts.errors import Problem, StageError

GB = 10**9
BASE, PER_WEIGHT = 0.8 * GB, 2.2
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


def gigabytes(size: int) -> str:
    """Write a size in GB (10^9 bytes), or MB below one."""
    return f"{size / GB:.2f} GB" if size >= GB else f"{size / 10**6:.1f} MB"


def peak_memory() -> int:
    """Bytes of host memory that this process has held at most."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
