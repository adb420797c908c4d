"""What a plan's manifest holds: the options that decide it, and the facts that later stages and people ask for."""

from __future__ import annotations

from typing import Any

from build.engine import timing_cache
from build.graph import SourceGraph
from build.log import Figures
from build.options import BuildOptions
from build.planning import Planning
from build.target import Target


def options_record(options: BuildOptions, target: Target, planning: Planning) -> dict[str, Any]:
    """Give the options as they were decided, as JSON values; `--verbose` is none of them, for it changes nothing."""
    cache = timing_cache(target, options)
    return {
        "backend": target.backend.value,
        "compute_capabilities": list(target.capabilities),
        "current_gpu": target.current,
        "graph": options.graph,
        "max_batch_size": options.max_batch_size,
        "max_context": planning.context,
        "prefill_chunk": planning.chunk,
        "profiles": _profiles(planning),
        "memory_pools": dict(options.memory_pools),
        "builder_optimization_level": options.builder_optimization_level,
        "timing_cache": None if cache is None else str(cache),
        "profiling_verbosity": options.profiling_verbosity,
        "version_compatible": options.version_compatible,
        "hardware_compatibility_level": options.hardware_compatibility_level,
        "strip_weights": options.strip_weights,
        "refit": options.refit,
    }


def facts(target: Target, planning: Planning, graph: SourceGraph, figures: Figures) -> dict[str, Any]:
    """Give what is known of a plan; sizes in bytes, lists in the order of the profiles."""
    hole = planning.hole
    return {
        "backend": target.backend.value,
        "tensorrt_version": target.version,
        "compute_capabilities": list(target.capabilities),
        "form": graph.form.value,
        "capacity": graph.capacity,
        "max_context": planning.context,
        "prefill_chunk": planning.chunk,
        "profiles": _profiles(planning),
        "uncovered_step": None if hole is None else hole.axes,
        "initializers": graph.weights,
        "weights_memory": figures.weights,
        "activation_memory": figures.activations,
        "scratch_memory": figures.scratch,
        "allocator_peak": figures.allocator_peak,
    }


def _profiles(planning: Planning) -> list[dict[str, object]]:
    return [profile.record(planning.inputs) for profile in planning.profiles]
