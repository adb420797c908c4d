"""From a graph to an engine's bytes: one path for both TensorRTs, through Polygraphy's loaders."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from artifacts.backend import Backend, logger
from artifacts.errors import Problem, StageError
from build.options import BuildOptions
from build.target import Target

Parsed = tuple[Any, Any, Any]
"""Polygraphy's builder, network and parser, which live and die together."""

_SILENT = 60
"""Above Polygraphy's highest level: what it would print on stdout is in build.log already."""

_HINTS = (
    ("within workspace limit", "give --memPoolSize more workspace, or leave it out"),
    ("smem_limit", "give --memPoolSize more tacticSharedMem, or leave it out"),
    ("HW-specific datatypes", "leave out the compute capabilities that cannot compute in BF16"),
    ("Graph contains more than one op named", "a fault of TensorRT-RTX's compiler; --max-batch-size 2 avoids it"),
    ("not supported by a dedicated kernel", "build the BF16 graph: attention in FP32 has no kernel"),
)


def parse_network(trt: Any, path: Path) -> Parsed:
    """Let TensorRT parse a graph.

    Raises:
        StageError: it does not take it; every node that it names, with operator and reason.
    """
    from polygraphy.backend.trt import NetworkFromOnnxPath
    from polygraphy.exception import PolygraphyException
    from polygraphy.logger import G_LOGGER

    logger(trt)
    try:
        with G_LOGGER.verbosity(_SILENT):
            parsed: Parsed = NetworkFromOnnxPath(str(path), strongly_typed=True)()
    except PolygraphyException:
        raise StageError(_parse_errors(trt, path)) from None
    return parsed


def _parse_errors(trt: Any, path: Path) -> list[Problem]:
    """Parse once more for the parser's own account, which Polygraphy's exception does not carry."""
    from polygraphy.backend.trt import CreateNetwork

    _builder, network = CreateNetwork(strongly_typed=True)()
    parser = trt.OnnxParser(network, logger(trt))
    parser.parse_from_file(str(path))
    problems = []
    for index in range(parser.num_errors):
        error = parser.get_error(index)
        where = f"{error.node_operator()} node {error.node_name()}" if error.node() >= 0 else path.name
        expected = f"an operator and attributes that {trt.__name__} {trt.__version__} takes"
        remedy = "the graph must come from surgery: run it again, or report this node"
        problems.append(Problem(f"TensorRT cannot parse {where}", expected, error.desc(), remedy))
    return problems or [
        Problem(f"TensorRT cannot parse {path.name}", "a graph that it takes", "no reason given", "run surgery again")
    ]


def build_engine(
    trt: Any,
    parsed: Parsed,
    target: Target,
    options: BuildOptions,
    shapes: Sequence[Mapping[str, Sequence[Sequence[int]]]],
    monitor: Any,
) -> Any:
    """Build and serialize the engine.

    Args:
        trt: the TensorRT in use.
        parsed: what `parse_network` gave.
        target: what to build for.
        options: how.
        shapes: for each profile, each input's shapes at min, opt and max.
        monitor: an `IProgressMonitor`.

    Returns:
        TensorRT's `IHostMemory`, a buffer; None if it could not or was stopped, which its log tells.
    """
    from polygraphy.backend.trt import EngineBytesFromNetwork
    from polygraphy.exception import PolygraphyException
    from polygraphy.logger import G_LOGGER

    cache = timing_cache(target, options)
    known = {"load_timing_cache": str(cache)} if cache is not None and cache.exists() else {}
    settings = {"profiles": _profiles(shapes), "progress_monitor": monitor, **_settings(trt, options), **known}
    with G_LOGGER.verbosity(_SILENT):
        config = _create_config(target, settings)
        try:
            return EngineBytesFromNetwork(parsed, config=config, save_timing_cache=cache and str(cache))()
        except PolygraphyException:
            return None


def timing_cache(target: Target, options: BuildOptions) -> Path | None:
    """Give the file of timings; TensorRT-RTX times nothing while it builds, so it gets none to write over."""
    return None if target.backend is Backend.RTX else options.timing_cache_file


def _create_config(target: Target, settings: Mapping[str, Any]) -> Any:
    """Choose Polygraphy's loader: the two differ in how they say which GPU the engine is for."""
    if target.backend is Backend.RTX:
        from polygraphy.backend.tensorrt_rtx import CreateConfigRTX

        chips = [tuple(map(int, capability.split("."))) for capability in target.capabilities]
        return CreateConfigRTX(
            use_gpu=target.current, compute_capabilities=None if target.current else chips, **settings
        )
    from polygraphy.backend.trt import CreateConfig

    # TF32 as trtexec has it; no product in the graph is in FP32, so it changes nothing.
    return CreateConfig(tf32=True, **settings)


def _profiles(shapes: Sequence[Mapping[str, Sequence[Sequence[int]]]]) -> list[Any]:
    from polygraphy.backend.trt import Profile

    profiles = []
    for inputs in shapes:
        profile = Profile()
        for name, (least, best, most) in inputs.items():
            profile.add(name, least, best, most)
        profiles.append(profile)
    return profiles


def _settings(trt: Any, options: BuildOptions) -> dict[str, Any]:
    """Translate options to the keywords of Polygraphy's `CreateConfig`."""
    verbosities = {
        "none": trt.ProfilingVerbosity.NONE,
        "layer_names_only": trt.ProfilingVerbosity.LAYER_NAMES_ONLY,
        "detailed": trt.ProfilingVerbosity.DETAILED,
    }
    levels = {
        "ampere+": trt.HardwareCompatibilityLevel.AMPERE_PLUS,
        "sameComputeCapability": trt.HardwareCompatibilityLevel.SAME_COMPUTE_CAPABILITY,
    }
    pools = {
        "workspace": trt.MemoryPoolType.WORKSPACE,
        "tacticSharedMem": trt.MemoryPoolType.TACTIC_SHARED_MEMORY,
    }
    return {
        "profiling_verbosity": verbosities[options.profiling_verbosity],
        "hardware_compatibility_level": levels.get(options.hardware_compatibility_level),
        "memory_pool_limits": {pools[pool]: size for pool, size in options.memory_pools.items()},
        "builder_optimization_level": options.builder_optimization_level,
        "version_compatible": options.version_compatible,
        "strip_plan": options.strip_weights,
        "refittable": options.refit,
    }


def failure(errors: Sequence[str]) -> StageError:
    """Say why TensorRT built nothing, from the errors that it logged, with what is known to help."""
    text = "\n".join(errors) or "it gave no reason"
    remedy = next((hint for sign, hint in _HINTS if sign in text), "run with --verbose for TensorRT's whole log")
    return StageError(Problem("TensorRT could not build the engine", found=text, remedy=remedy))
