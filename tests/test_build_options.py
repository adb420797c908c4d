"""What a plan can be asked for, and what is refused before anything is read."""

from pathlib import Path
from typing import Any

import pytest

from artifacts.config import ModelConfig
from artifacts.contract import Form, signature
from artifacts.errors import StageError
from build.__main__ import _options, _parser, main
from build.graph import SourceGraph
from build.options import BuildOptions, parse_pools
from build.planning import Planning
from tests.fused_graph import CONFIG

MODEL = ModelConfig.from_raw(CONFIG)


def graph(form: Form = Form.MODEL, capacity: int | None = None) -> SourceGraph:
    return SourceGraph(Path("g.onnx"), form, signature(MODEL, form, capacity=capacity), capacity, (), 1, 1)


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ({"graph": "model_fp32"}, "no fused kernel for attention in FP32"),
        ({"graph": "model_linear_fp32"}, "no fused kernel for attention in FP32"),
        ({"graph": "model_all"}, "--graph cannot be built"),
        ({"max_batch_size": 0}, "--max-batch-size is too small"),
        ({"max_context": 1}, "--max-context is too small"),
        ({"prefill_chunk": 1}, "--prefill-chunk is too small"),
        ({"profiling_verbosity": "loud"}, "--profilingVerbosity is unknown"),
        ({"hardware_compatibility_level": "hopper+"}, "--hardwareCompatibilityLevel is unknown"),
        ({"builder_optimization_level": 6}, "--builderOptimizationLevel is unknown"),
        ({"memory_pools": {"dlaSRAM": 1}}, "DLA pools belong to Jetson"),
        ({"memory_pools": {"heap": 1}}, "no pool heap"),
        ({"memory_pools": {"workspace": 0}}, "workspace is no size"),
        ({"memory_pools": {"workspace": 1 << 63}}, "workspace is no size"),
        ({"timing_cache_file": Path("no/such/folder/cache")}, "no folder .*no/such/folder"),
        ({"timing_cache_file": Path()}, "a folder"),
    ],
)
def test_options_are_judged_where_they_are_made(options: dict[str, Any], problem: str) -> None:
    with pytest.raises(StageError, match=problem):
        BuildOptions(**options)


def test_all_problems_come_at_once() -> None:
    with pytest.raises(StageError) as error:
        BuildOptions(max_batch_size=0, max_context=0, prefill_chunk=0, graph="x", builder_optimization_level=9)
    assert len(error.value.problems) == 5


def test_every_problem_says_what_to_do() -> None:
    with pytest.raises(StageError) as error:
        BuildOptions(
            graph="x",
            max_batch_size=0,
            memory_pools={"heap": 1, "workspace": 0},
            builder_optimization_level=9,
            timing_cache_file=Path(),
            profiling_verbosity="loud",
        )
    assert len(error.value.problems) == 7
    assert all(problem.expected and problem.found and problem.remedy for problem in error.value.problems)


@pytest.mark.parametrize(
    "text", ["workspace", "workspace:", "workspace:1T", "workspace:-1", ":4", f"workspace:{'9' * 400}"]
)
def test_a_pool_that_cannot_be_read_is_refused(text: str) -> None:
    with pytest.raises(StageError, match="--memPoolSize cannot be read"):
        parse_pools(text)


def test_the_command_line_makes_options() -> None:
    words = "m --compute-capability 8.9 12.0 --profile 1 --maxShapes input_ids:1x2 --minShapes input_ids:1x1"
    words += " --profile 0 --optShapes attention_mask:1x9 --optShapes input_ids:1x9 --memPoolSize workspace:1G --refit"
    options = _options(_parser().parse_args(words.split()))
    assert options.compute_capabilities == ("8.9", "12.0")
    assert options.shapes[1].points == {"max": {"input_ids": (1, 2)}, "min": {"input_ids": (1, 1)}}
    assert options.shapes[0].points == {"opt": {"attention_mask": (1, 9), "input_ids": (1, 9)}}
    assert (options.memory_pools, options.refit, options.strip_weights) == ({"workspace": 1 << 30}, True, False)


def test_capabilities_may_be_parted_by_commas() -> None:
    given = _parser().parse_args(["m", "--compute-capability", "8.9,12.0", "8.6"])
    assert _options(given).compute_capabilities == ("8.9", "12.0", "8.6")


def test_two_command_lines_share_no_shapes() -> None:
    _parser().parse_args(["m", "--maxShapes", "input_ids:1x2"])
    assert not _options(_parser().parse_args(["m"])).shapes


def test_a_profile_without_shapes_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stop:
        main(["m", "--minShapes", "input_ids:1x1", "--profile", "1"])
    assert stop.value.code == 2
    assert "--profile 1 is followed by no shapes" in capsys.readouterr().err


def test_an_unknown_flag_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stop:
        _parser().parse_args(["m", "--fp16"])
    assert stop.value.code == 2
    assert "--fp16" in capsys.readouterr().err


def test_defaults_shrink_to_the_model() -> None:
    planning = Planning(BuildOptions(), MODEL, graph())
    assert (planning.context, planning.chunk) == (512, 512)
    assert Planning(BuildOptions(max_context=64), MODEL, graph()).chunk == 64


def test_a_context_beyond_the_positions_is_refused_with_both_numbers() -> None:
    with pytest.raises(StageError, match=r"at most 512\n.*513"):
        Planning(BuildOptions(max_context=513), MODEL, graph())


def test_a_chunk_beyond_the_context_is_refused() -> None:
    with pytest.raises(StageError, match="65 > 64"):
        Planning(BuildOptions(max_context=64, prefill_chunk=65), MODEL, graph())


def test_shapes_beyond_the_positions_are_refused() -> None:
    words = "m --profile 2 --optShapes input_ids:1x1,attention_mask:1x514"
    with pytest.raises(StageError, match="beyond the model's positions"):
        Planning(_options(_parser().parse_args(words.split())), MODEL, graph())


@pytest.mark.parametrize(("context", "refused"), [(None, False), (128, False), (64, True), (256, True)])
def test_the_context_of_a_linear_cache_is_its_capacity(context: int | None, refused: bool) -> None:
    source = graph(Form.MODEL_LINEAR, 128)
    if refused:
        with pytest.raises(StageError, match=f"--max-context 128, or none\n.*{context}\n.*--capacity {context}"):
            Planning(BuildOptions(max_context=context, graph="model_linear"), MODEL, source)
    else:
        assert Planning(BuildOptions(max_context=context, graph="model_linear"), MODEL, source).context == 128


def test_a_batch_of_which_tensorrt_could_not_number_the_elements_is_refused() -> None:
    Planning(BuildOptions(max_batch_size=1 << 10), MODEL, graph())
    with pytest.raises(StageError, match=r"larger than a tensor of TensorRT can be\n.*2,147,483,647") as error:
        Planning(BuildOptions(max_batch_size=10**9), MODEL, graph())
    assert [problem.what.split(":")[0] for problem in error.value.problems] == ["profile prefill", "profile decode"]


def test_the_users_shapes_may_leave_a_hole_which_is_told() -> None:
    words = "m --minShapes input_ids:1x4 --optShapes input_ids:1x8 --maxShapes input_ids:1x8"
    hole = Planning(_options(_parser().parse_args(words.split())), MODEL, graph()).hole
    assert hole is not None
    assert hole.new == 3
