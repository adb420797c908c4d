"""What a plan can be asked for, checked where it is made; flags that trtexec has are spelled as trtexec spells them."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from artifacts.contract import Form
from artifacts.errors import Problem, StageError, refuse
from build.profiles import DECODE_NEW
from build.shapes import GivenShapes

DEFAULT_CONTEXT = 4096
DEFAULT_CHUNK = 512
GRAPHS = (Form.MODEL.value, Form.MODEL_LINEAR.value)
VERBOSITIES = ("layer_names_only", "detailed", "none")
HARDWARE_LEVELS = ("none", "ampere+", "sameComputeCapability")
POOLS = ("workspace", "tacticSharedMem")
OPTIMIZATION_LEVELS = range(6)
LARGEST_POOL = (1 << 63) - 1
HELP = "python -m build --help"


@dataclass(frozen=True)
class BuildOptions:
    """Options of one plan.

    Attributes:
        backend: `auto`, `tensorrt` or `tensorrt-rtx`.
        graph: `model` or `model_linear`.
        max_batch_size: most sequences at once.
        max_context: tokens that past and new may have together; 4096, or what the model or the cache can hold.
        prefill_chunk: most new tokens of one prefill step; 512, or the context if that is less.
        compute_capabilities: GPUs to build for, such as `8.9`; none means the backend's own default.
        shapes: the user's own shapes, by profile.
        memory_pools: limits in bytes by trtexec's name of the pool.
        builder_optimization_level: 0 to 5, or TensorRT's default.
        timing_cache_file: read before and written after the build, by TensorRT proper.
        profiling_verbosity: how much of the layers the engine can tell.
        verbose: print TensorRT's log; changes nothing in the plan.
    """

    backend: str = "auto"
    graph: str = Form.MODEL.value
    max_batch_size: int = 1
    max_context: int | None = None
    prefill_chunk: int | None = None
    compute_capabilities: tuple[str, ...] = ()
    shapes: Mapping[int, GivenShapes] = field(default_factory=dict)
    memory_pools: Mapping[str, int] = field(default_factory=dict)
    builder_optimization_level: int | None = None
    timing_cache_file: Path | None = None
    profiling_verbosity: str = "detailed"
    version_compatible: bool = False
    hardware_compatibility_level: str = "none"
    strip_weights: bool = False
    refit: bool = False
    verbose: bool = False

    def __post_init__(self) -> None:
        problems = list(self._judge())
        if problems:
            raise StageError(problems)

    @property
    def form(self) -> Form:
        """The graph that the plan is made of."""
        return Form(self.graph)

    def _judge(self) -> Iterator[Problem]:
        yield from self._judge_graph()
        least = {"--max-batch-size": (self.max_batch_size, 1), "--max-context": (self.max_context, DECODE_NEW)}
        least["--prefill-chunk"] = (self.prefill_chunk, DECODE_NEW)
        for flag, (value, bound) in least.items():
            if value is not None and value < bound:
                yield Problem(f"{flag} is too small", f"at least {bound}", str(value), f"{flag} {bound} or more")
        choices = {
            "--profilingVerbosity": (self.profiling_verbosity, VERBOSITIES),
            "--hardwareCompatibilityLevel": (self.hardware_compatibility_level, HARDWARE_LEVELS),
        }
        for flag, (choice, known) in choices.items():
            if choice not in known:
                yield Problem(f"{flag} is unknown", " | ".join(known), choice, HELP)
        level = self.builder_optimization_level
        if level is not None and level not in OPTIMIZATION_LEVELS:
            yield Problem("--builderOptimizationLevel is unknown", "0 to 5", str(level), HELP)
        yield from self._judge_pools()
        cache = self.timing_cache_file
        if cache is not None:
            place = cache if cache.exists() else cache.absolute().parent
            found = "a folder" if cache.is_dir() else f"no folder {place}" if not place.exists() else f"{place}, closed"
            if cache.is_dir() or not os.access(place, os.W_OK):
                yield Problem("--timingCacheFile cannot be written", "a file in a folder that is there", found, HELP)

    def _judge_pools(self) -> Iterator[Problem]:
        for pool, size in self.memory_pools.items():
            if pool not in POOLS:
                reason = "; DLA pools belong to Jetson's accelerators" if pool.startswith("dla") else ""
                yield Problem(f"--memPoolSize: no pool {pool}", f"{' or '.join(POOLS)}{reason}", pool, HELP)
            elif not 0 < size <= LARGEST_POOL:
                expected = f"1 to {LARGEST_POOL} bytes"
                yield Problem(f"--memPoolSize: {pool} is no size", expected, f"{size} bytes", "leave it out")

    def _judge_graph(self) -> Iterator[Problem]:
        if self.graph in GRAPHS:
            return
        expected, remedy = " or ".join(GRAPHS), "give --graph one of these; the plan computes in BF16"
        if self.graph.endswith("_fp32"):
            expected += ": TensorRT has no fused kernel for attention in FP32, so an FP32 twin is not built"
        yield Problem("--graph cannot be built", expected, self.graph, remedy)


def parse_pools(text: str) -> dict[str, int]:
    """Read `--memPoolSize` as trtexec does: `workspace:4096` is MiB, suffixes B, K, M and G are powers of 1024.

    >>> parse_pools("workspace:0.5G,tacticSharedMem:48K")
    {'workspace': 536870912, 'tacticSharedMem': 49152}

    Raises:
        StageError: a part that cannot be read.
    """
    pools = {}
    for part in text.split(","):
        match = re.fullmatch(r"\s*(\w+):(\d{1,20}(?:\.\d{1,20})?)([BKMG]?)\s*", part)
        if match is None:
            raise refuse(
                "--memPoolSize cannot be read",
                expected="pool:size, such as workspace:4096 (MiB) or workspace:4G",
                found=repr(part),
                remedy=HELP,
            )
        pools[match[1]] = int(float(match[2]) * 1024 ** "BKMG".index(match[3] or "M"))
    return pools
