"""Build a TensorRT plan of a model's fused graph: `python -m build artifacts/out/<model>`.

Two profiles, prefill and decode, cover every step up to --max-context. Flags that trtexec has are spelled as trtexec
spells them; docs/build.md tells which of them work with which TensorRT.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from artifacts.command import DONE, Parser, run, stderr, stdout
from artifacts.layout import ModelFolder
from build.memory import ask_for_large_pages
from build.options import (
    DEFAULT_CHUNK,
    DEFAULT_CONTEXT,
    GRAPHS,
    HARDWARE_LEVELS,
    VERBOSITIES,
    BuildOptions,
    parse_pools,
)
from build.profiles import POINTS
from build.shapes import GivenShapes, parse_shapes


class _Shapes(argparse.Action):
    """Collects `--minShapes` and its sisters into the profile that `--profile` named last, as trtexec does."""

    def __call__(
        self, parser: argparse.ArgumentParser, namespace: argparse.Namespace, values: Any, option: str | None = None
    ) -> None:
        profile = namespace.shapes.setdefault(namespace.profile, GivenShapes())
        point = str(option).removeprefix("--").removesuffix("Shapes")
        profile.points.setdefault(point, {}).update(parse_shapes(values))


def _parser() -> Parser:
    parser = Parser(prog="python -m build", description=__doc__)
    parser.add_argument("folder", type=Path, metavar="OUT/<model>", help="the model's folder, with onnx/ in it")
    _add_plan_options(parser)
    _add_trtexec_options(parser)
    return parser


def _add_plan_options(parser: Parser) -> None:
    add = parser.add_argument_group("the plan").add_argument
    add("--backend", default="auto", help="auto | tensorrt | tensorrt-rtx (default: auto, see docs/build.md)")
    add("--graph", default=GRAPHS[0], help=f"{' | '.join(GRAPHS)} (default: {GRAPHS[0]})")
    add("--max-batch-size", type=int, default=1, metavar="N", help="most sequences at once (default: 1)")
    add("--max-context", type=int, metavar="N", help=f"past and new tokens together (default: {DEFAULT_CONTEXT})")
    add("--prefill-chunk", type=int, metavar="N", help=f"most new tokens of a prefill step (default: {DEFAULT_CHUNK})")
    chips = "GPUs to build for, such as 8.9 12.0 (default: this one; without one 8.0 8.6 8.9 12.0)"
    add("--compute-capability", nargs="+", default=[], metavar="CC", help=chips)


def _add_trtexec_options(parser: Parser) -> None:
    add = parser.add_argument_group("as trtexec has them").add_argument
    add("--profile", type=int, default=0, metavar="N", help="profile that the shapes after it belong to (default: 0)")
    for point in POINTS:
        example = "input_ids:1x512,attention_mask:1x512; inputs left out follow the formula"
        add(f"--{point}Shapes", action=_Shapes, metavar="SPEC", help=example if point == "min" else "likewise")
    add("--memPoolSize", type=parse_pools, default={}, metavar="SPEC", help="such as workspace:4096 (MiB)")
    add("--builderOptimizationLevel", type=int, metavar="N", help="0 to 5")
    add("--timingCacheFile", type=Path, metavar="FILE", help="read before, written after")
    add("--profilingVerbosity", default="detailed", help=" | ".join(VERBOSITIES) + " (default: detailed)")
    add("--versionCompatible", action="store_true", help="an engine that later TensorRTs can run")
    add("--hardwareCompatibilityLevel", default="none", help=" | ".join(HARDWARE_LEVELS) + " (default: none)")
    add("--stripWeights", action="store_true", help="a plan without weights, to be refitted")
    add("--refit", action="store_true", help="a plan whose weights can be replaced")
    add("--verbose", action="store_true", help="TensorRT's log on stderr too")
    parser.set_defaults(shapes={})


def _options(given: argparse.Namespace) -> BuildOptions:
    return BuildOptions(
        backend=given.backend,
        graph=given.graph,
        max_batch_size=given.max_batch_size,
        max_context=given.max_context,
        prefill_chunk=given.prefill_chunk,
        compute_capabilities=tuple(chip for word in given.compute_capability for chip in word.split(",") if chip),
        shapes=given.shapes,
        memory_pools=given.memPoolSize,
        builder_optimization_level=given.builderOptimizationLevel,
        timing_cache_file=given.timingCacheFile,
        profiling_verbosity=given.profilingVerbosity,
        version_compatible=given.versionCompatible,
        hardware_compatibility_level=given.hardwareCompatibilityLevel,
        strip_weights=given.stripWeights,
        refit=given.refit,
        verbose=given.verbose,
    )


def main(arguments: Sequence[str]) -> int:
    """Parse the command line, build, and print the closing table."""
    from build.plan import build_plan
    from build.report import table

    parser = _parser()
    given = parser.parse_args(arguments)
    if given.profile and given.profile not in given.shapes:
        parser.error(f"--profile {given.profile} is followed by no shapes; name it before them")
    plan = build_plan(ModelFolder(given.folder), _options(given))
    if not plan.fresh:
        stderr().print(f"up to date: {plan.directory}")
    stdout().print(table(plan))
    return DONE


if __name__ == "__main__":
    ask_for_large_pages()
    run(main)
