"""Which of trtexec's flags work, do nothing or are refused, with each TensorRT; docs/build.md shows this table.

What is said of TensorRT-RTX was tried with 1.7.1 without a GPU, and tests try it again. TensorRT proper builds on a
GPU only, so of its flags nothing was tried: they go to it as they are.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum

from artifacts.backend import Backend
from artifacts.errors import Problem, StageError
from build.options import BuildOptions
from build.target import Target


class Standing(Enum):
    """What becomes of a flag."""

    WORKS = "works"
    NOTHING = "does nothing"
    REFUSED = "refused"
    REFUSED_WITHOUT_GPU = "refused without a GPU"
    UNTRIED = "passed on; not tried here (needs TensorRT proper)"


@dataclass(frozen=True)
class Flag:
    """One flag.

    Attributes:
        spelling: as trtexec spells it.
        rtx: what becomes of it with TensorRT-RTX.
        reason: why, as it was seen.
        tensorrt: what becomes of it with TensorRT proper.
    """

    spelling: str
    rtx: Standing
    reason: str
    tensorrt: Standing = Standing.UNTRIED


SHAPES = "--minShapes --optShapes --maxShapes --profile"
REFIT, STRIP = "--refit", "--stripWeights"
VERSION, HARDWARE = "--versionCompatible", "--hardwareCompatibilityLevel"
_REFIT_FAILS = "the builder calls the CUDA driver (graph_jit.cpp: CHECK(status == CUDA_SUCCESS) failed)"

FLAGS = (
    Flag(SHAPES, Standing.WORKS, "the profiles are the ones given, which network.json and the manifest show"),
    Flag(
        "--memPoolSize",
        Standing.WORKS,
        "workspace: a limit below what attention needs fails (no tactics within workspace limit); tacticSharedMem too",
    ),
    Flag("--builderOptimizationLevel", Standing.NOTHING, "0 and 5 give plans of the same size; the GPU's JIT decides"),
    Flag(
        "--timingCacheFile", Standing.NOTHING, "nothing is timed while building; the file is neither read nor written"
    ),
    Flag("--profilingVerbosity", Standing.NOTHING, "none and detailed give plans of the same size"),
    Flag(VERSION, Standing.REFUSED, "it needs libnvinfer_lean, which TensorRT-RTX does not have"),
    Flag(
        HARDWARE, Standing.REFUSED, "TensorRT-RTX ignores it with a warning; --compute-capability says what it is for"
    ),
    Flag(STRIP, Standing.REFUSED_WITHOUT_GPU, _REFIT_FAILS),
    Flag(REFIT, Standing.REFUSED_WITHOUT_GPU, _REFIT_FAILS),
    Flag("--verbose", Standing.WORKS, "TensorRT's log goes to stderr as well as to build.log", Standing.WORKS),
)


def check_flags(options: BuildOptions, target: Target) -> None:
    """Refuse what this TensorRT cannot do, by name and with the reason.

    Raises:
        StageError: every flag that is refused.
    """
    problems = list(_refusals(options, target))
    if problems:
        raise StageError(problems)


def _refusals(options: BuildOptions, target: Target) -> Iterator[Problem]:
    if target.backend is not Backend.RTX:
        return
    used = {
        VERSION: options.version_compatible,
        HARDWARE: options.hardware_compatibility_level != "none",
        STRIP: options.strip_weights,
        REFIT: options.refit,
    }
    for flag in FLAGS:
        refused = flag.rtx is Standing.REFUSED or (flag.rtx is Standing.REFUSED_WITHOUT_GPU and not target.current)
        if refused and used.get(flag.spelling):
            where = " without a GPU" if flag.rtx is Standing.REFUSED_WITHOUT_GPU else ""
            yield Problem(
                f"{flag.spelling} does not work with TensorRT-RTX{where}",
                found=flag.reason,
                remedy="leave it out, or build with --backend tensorrt on a machine with a GPU",
            )


def markdown() -> str:
    """Write the table as docs/build.md has it."""
    rows = [
        f"| `{flag.spelling.replace(' ', '` `')}` | {flag.rtx.value}: {flag.reason} | {flag.tensorrt.value} |"
        for flag in FLAGS
    ]
    return "\n".join(["| flag | TensorRT-RTX 1.7.1 | TensorRT 11.4 |", "|---|---|---|", *rows])
