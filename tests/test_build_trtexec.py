"""trtexec.txt says the same as the build did, in flags that the stock tools have.

tests/data/trtexec_flags.json lists flags from trtexec's help and TensorRT-RTX's documentation; the tools themselves are
not in the Python packages and were not run here.
"""

import json
import shlex
from pathlib import Path

import pytest

from artifacts.backend import Backend
from artifacts.config import ModelConfig
from artifacts.contract import Form, signature
from build.options import BuildOptions
from build.profiles import default_profiles
from build.shapes import parse_shapes
from build.target import Target
from build.trtexec import command_line, script
from tests.fused_graph import CONFIG

KNOWN = json.loads((Path(__file__).parent / "data" / "trtexec_flags.json").read_text())
INPUTS = signature(ModelConfig.from_raw(CONFIG), Form.MODEL).inputs
SHAPES = [profile.shapes(INPUTS) for profile in default_profiles(2, 256, 64)]
RTX = Target(Backend.RTX, "1.7.1.116", ("8.9", "12.0"), False, False)
HERE = Target(Backend.RTX, "1.7.1.116", ("8.9",), False, True)
PROPER = Target(Backend.TENSORRT, "11.4.0.106", ("9.0",), False, True)
EVERYTHING = BuildOptions(
    memory_pools={"workspace": 1 << 30, "tacticSharedMem": 1000},
    builder_optimization_level=5,
    timing_cache_file=Path("cache file"),
    profiling_verbosity="none",
    version_compatible=True,
    hardware_compatibility_level="ampere+",
    strip_weights=True,
    refit=True,
    verbose=True,
)


def words(target: Target, options: BuildOptions) -> list[str]:
    """Give the words as a shell reads them: it joins lines that end in a backslash."""
    text = script(command_line("../../onnx/model.onnx", target, options, SHAPES))
    return shlex.split(text.replace("\\\n", ""))


@pytest.mark.parametrize("target", [RTX, HERE, PROPER])
@pytest.mark.parametrize("options", [BuildOptions(), EVERYTHING])
def test_every_flag_is_one_that_the_tool_has(target: Target, options: BuildOptions) -> None:
    tool, *flags = words(target, options)
    assert tool == target.backend.tool
    assert {flag.removeprefix("--").partition("=")[0] for flag in flags} <= set(KNOWN[tool])


def test_a_flag_that_no_tool_has_would_be_seen() -> None:
    assert "prefillChunk" not in {*KNOWN["trtexec"], *KNOWN["tensorrt_rtx"]}


def test_the_shapes_are_those_of_the_profiles() -> None:
    flags = words(RTX, BuildOptions())
    first, second = flags.index("--profile=0"), flags.index("--profile=1")
    for index, start in enumerate((first, second)):
        for number, point in enumerate(("min", "opt", "max")):
            flag, _, spec = flags[start + 1 + number].partition("=")
            assert flag == f"--{point}Shapes"
            assert parse_shapes(spec) == {name: points[number] for name, points in SHAPES[index].items()}


def test_the_destination_is_named() -> None:
    assert "--computeCapabilities=89,120" in words(RTX, BuildOptions())
    assert "--useGpu" in words(HERE, BuildOptions())
    assert not {"--useGpu", "--computeCapabilities=90"} & set(words(PROPER, BuildOptions()))


def test_settings_come_along() -> None:
    flags = words(PROPER, EVERYTHING)
    assert "--memPoolSize=workspace:1073741824B,tacticSharedMem:1000B" in flags
    assert f"--timingCacheFile={Path('cache file').resolve()}" in flags
    assert {"--refit", "--stripWeights", "--versionCompatible", "--hardwareCompatibilityLevel=ampere+"} <= set(flags)
    assert "--builderOptimizationLevel=5" not in words(RTX, EVERYTHING), "it does nothing there"


def test_the_plan_is_not_overwritten() -> None:
    assert "--saveEngine=trtexec.plan" in words(RTX, BuildOptions())
