"""trtexec.txt: the command line with which the stock tool makes the same engine from the same graph.

`trtexec` comes with TensorRT, `tensorrt_rtx` with TensorRT-RTX; neither is in the Python packages. Run it in the
folder where trtexec.txt lies. Two builds of one graph differ in their bytes, so compare what they compute.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping, Sequence

from artifacts.backend import Backend
from build.options import BuildOptions
from build.profiles import POINTS
from build.target import Target

ENGINE = "trtexec.plan"
"""What the stock tool writes; not model.plan, whose digest the manifest holds."""


def command_line(
    graph: str, target: Target, options: BuildOptions, shapes: Sequence[Mapping[str, Sequence[Sequence[int]]]]
) -> list[str]:
    """Give the command's words.

    Args:
        graph: path of the .onnx from the plan's folder.
        target: what the plan is for.
        options: what it was asked for.
        shapes: for each profile, each input's shapes at min, opt and max.
    """
    words = [target.backend.tool, f"--onnx={graph}", f"--saveEngine={ENGINE}", "--skipInference"]
    words += _compute_capabilities(target)
    for index, inputs in enumerate(shapes):
        words.append(f"--profile={index}")
        for number, point in enumerate(POINTS):
            spec = ",".join(f"{name}:{'x'.join(map(str, points[number]))}" for name, points in inputs.items())
            words.append(f"--{point}Shapes={spec}")
    return [*words, *_settings(options, target.backend)]


def _compute_capabilities(target: Target) -> list[str]:
    if target.backend is not Backend.RTX:
        return []
    if target.current:
        return ["--useGpu"]
    return ["--computeCapabilities=" + ",".join(capability.replace(".", "") for capability in target.capabilities)]


def _settings(options: BuildOptions, backend: Backend) -> Iterator[str]:
    yield f"--profilingVerbosity={options.profiling_verbosity}"
    if options.memory_pools:
        yield f"--memPoolSize={','.join(f'{pool}:{size}B' for pool, size in options.memory_pools.items())}"
    if options.strip_weights:
        yield "--stripWeights"
    if options.refit:
        yield "--refit"
    if options.verbose:
        yield "--verbose"
    if backend is Backend.TENSORRT:
        # With TensorRT-RTX these do nothing or were refused.
        yield from _settings_of_tensorrt(options)


def _settings_of_tensorrt(options: BuildOptions) -> Iterator[str]:
    if options.builder_optimization_level is not None:
        yield f"--builderOptimizationLevel={options.builder_optimization_level}"
    if options.timing_cache_file is not None:
        yield f"--timingCacheFile={options.timing_cache_file.resolve()}"
    if options.hardware_compatibility_level != "none":
        yield f"--hardwareCompatibilityLevel={options.hardware_compatibility_level}"
    if options.version_compatible:
        yield "--versionCompatible"


def script(words: Sequence[str]) -> str:
    """Write the command so that a shell can read it, a word a line."""
    return " \\\n  ".join(shlex.quote(word) for word in words) + "\n"
