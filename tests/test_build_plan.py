"""Plans built for real with TensorRT-RTX, which needs no GPU; two layers take about a second.

Nothing here says that an engine computes anything: without a GPU a plan can be made and handed over, not run.
"""

import errno
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, NoReturn

import onnx
import pytest

from artifacts.contract import Form
from artifacts.errors import StageError
from artifacts.layout import DATA_FILE, ModelFolder
from artifacts.manifest import Manifest
from build import BuildOptions, Plan, build_plan
from build.memory import Room
from build.report import table
from build.shapes import GivenShapes
from tests.fused_graph import write_manifests, write_model_folder

ROOT = Path(__file__).parent.parent
FILES = {"model.plan", "network.json", "build.log", "trtexec.txt", "manifest.json"}
ADA = BuildOptions(backend="tensorrt-rtx", compute_capabilities=("8.9",), max_context=256, prefill_chunk=64)


@pytest.fixture
def folder(tmp_path: Path) -> ModelFolder:
    return write_model_folder(tmp_path / "m")


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Plan:
    """A plan that tests only look at."""
    return build_plan(write_model_folder(tmp_path_factory.mktemp("built") / "m"), ADA, gpus=[])


def build(folder: ModelFolder, options: BuildOptions = ADA, **changes: Any) -> Plan:
    return build_plan(folder, replace(options, **changes), gpus=[])


def nothing_written(folder: ModelFolder) -> bool:
    return not (folder.root / "build").exists()


def change_graph(folder: ModelFolder, edit: Callable[[onnx.GraphProto], None]) -> None:
    path = folder.graph(Form.MODEL)
    model = onnx.load(str(path), load_external_data=False)
    edit(model.graph)
    path.write_bytes(model.SerializeToString())
    write_manifests(folder)


def node(graph: onnx.GraphProto, kind: str) -> Any:
    return next(node for node in graph.node if node.op_type == kind)


def test_a_plan_lies_in_the_folder_of_its_target(built: Plan) -> None:
    assert built.fresh
    assert built.directory.parts[-2:] == ("build", "tensorrt_rtx-1.7.1-sm89")
    assert {path.name for path in built.directory.iterdir()} == FILES


def test_the_manifest_names_every_file_and_input(built: Plan) -> None:
    manifest, folder = built.manifest, built.folder
    manifest.check_outputs(folder.root, folder.digests(), made_by="")
    assert Manifest.read(built.directory / "manifest.json", made_by="") == manifest
    assert {Path(name).name for name in manifest.outputs} == FILES - {"manifest.json"}
    assert set(manifest.inputs) == {"onnx/model.onnx", f"onnx/{DATA_FILE}", "onnx/config.json"}
    assert manifest.checkpoint["origin"] == "random:by-hand"


def test_the_facts_are_tensorrts_own(built: Plan) -> None:
    facts = built.manifest.facts
    assert facts["tensorrt_version"].startswith("1.7.1")
    assert facts["compute_capabilities"] == ["8.9"]
    assert [profile["name"] for profile in facts["profiles"]] == ["prefill", "decode"]
    assert facts["profiles"][1]["max"] == {
        "batch": 1,
        "sequence": 2,
        "past_sequence": 255,
        "total_sequence": 257,
    }
    assert facts["initializers"] <= facts["weights_memory"] < 1.05 * facts["initializers"]
    assert len(facts["activation_memory"]) == 2
    assert facts["uncovered_step"] is None
    names = [tensor["name"] for tensor in facts["tensors"]["inputs"]]
    assert names[:4] == ["input_ids", "attention_mask", "position_ids", "past_key_values.0.key"]
    assert facts["tensors"]["inputs"][3] == {"name": names[3], "type": "BF16", "shape": [-1, 2, -1, 16]}


def test_network_json_holds_every_layer(built: Plan) -> None:
    network = json.loads((built.directory / "network.json").read_text())
    kinds = network["kinds"]
    assert network["count"] == len(network["layers"]) == sum(kinds.values()) == built.manifest.facts["layer_count"]
    assert (kinds["ATTENTION_INPUT"], kinds["ROTARY_EMBEDDING"]) == (2, 2)
    layer = next(layer for layer in network["layers"] if layer["name"] == "model.layers.0.self_attn.q_proj")
    assert layer["kind"] == "MATRIX_MULTIPLY"
    assert layer["outputs"] == [{"name": layer["name"], "type": "BF16", "shape": [-1, -1, 64]}]


def test_build_log_is_tensorrts_own(built: Plan) -> None:
    text = (built.directory / "build.log").read_text()
    assert "Total Weights Memory:" in text
    assert " VERBOSE " in text


def test_trtexec_names_the_graph_from_the_plans_folder(built: Plan) -> None:
    text = (built.directory / "trtexec.txt").read_text()
    graph = re.search(r"--onnx=(\S+)", text)
    assert graph is not None
    assert (built.directory / graph[1]).resolve() == built.folder.graph(Form.MODEL).resolve()
    assert text.startswith("tensorrt_rtx ")


def test_the_table_says_what_was_built(built: Plan) -> None:
    from rich.console import Console

    console = Console(width=120, record=True, file=open(os.devnull, "w"))  # noqa: SIM115  # rich keeps the record
    console.print(table(built))
    text = console.export_text()
    for word in (built.target, "ATTENTION_INPUT", "weights memory", "prefill", "decode", "peak"):
        assert word in text


def test_a_second_run_changes_no_byte(built: Plan) -> None:
    before = {path: (path.stat().st_mtime_ns, path.read_bytes()) for path in built.directory.iterdir()}
    begun = time.process_time()
    assert not build_plan(built.folder, ADA, gpus=[]).fresh
    assert time.process_time() - begun < 5
    assert before == {path: (path.stat().st_mtime_ns, path.read_bytes()) for path in built.directory.iterdir()}


def test_verbose_alone_builds_nothing_anew(built: Plan) -> None:
    assert not build_plan(built.folder, replace(ADA, verbose=True), gpus=[]).fresh


class BuiltAgainError(Exception):
    """Raised in place of a build."""


@pytest.fixture
def copied(built: Plan, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ModelFolder:
    """A model with a plan, where a build would raise `BuiltAgainError`."""

    def no_build(work: object) -> NoReturn:
        raise BuiltAgainError

    monkeypatch.setattr("build.work.Work.build", no_build)
    return ModelFolder(Path(shutil.copytree(built.folder.root, tmp_path / "copied")))


def test_a_copied_folder_is_up_to_date(copied: ModelFolder) -> None:
    assert not build(copied).fresh


@pytest.mark.parametrize("name", sorted(FILES))
def test_a_damaged_plan_is_built_again(copied: ModelFolder, built: Plan, name: str) -> None:
    (copied.target("build", built.target) / name).write_bytes(b"{}")
    with pytest.raises(BuiltAgainError):
        build(copied)


def test_other_options_build_again(copied: ModelFolder) -> None:
    for change in ({"max_context": 128}, {"profiling_verbosity": "none"}, {"max_batch_size": 2}):
        with pytest.raises(BuiltAgainError):
            build(copied, **change)


def test_another_export_builds_again(copied: ModelFolder) -> None:
    data = bytearray((copied.onnx / DATA_FILE).read_bytes())
    data[0] ^= 1
    (copied.onnx / DATA_FILE).write_bytes(data)
    with pytest.raises(StageError, match="not the file that was made"):
        build(copied)
    write_manifests(copied)
    with pytest.raises(BuiltAgainError):
        build(copied)


@pytest.mark.slow
def test_the_linear_form_builds_with_a_batch_of_one(folder: ModelFolder) -> None:
    plan = build(folder, graph="model_linear", max_context=None, prefill_chunk=None)
    assert plan.target == "tensorrt_rtx-1.7.1-sm89-linear"
    assert plan.manifest.facts["layers"]["KV_CACHE_UPDATE"] == 4
    assert plan.manifest.facts["capacity"] == 128
    assert plan.manifest.facts["profiles"][0]["max"] == {"batch": 1, "sequence": 128}


@pytest.mark.slow
def test_several_capabilities_cost_nothing(built: Plan, folder: ModelFolder) -> None:
    """Measured: 32 bytes more for four capabilities than for one."""
    plan = build(folder, compute_capabilities=("8.0", "8.6", "8.9", "12.0"))
    assert abs(plan.path.stat().st_size - built.path.stat().st_size) < 1024


def test_a_profile_of_one_row_is_found_out(folder: ModelFolder) -> None:
    """Planted: decode with exactly one new token, batch 1. 345,088 bytes of weights instead of 197,632."""
    one = GivenShapes({point: {"input_ids": (1, 1)} for point in ("min", "opt", "max")})
    with pytest.raises(StageError, match="the plan holds weights more than once") as error:
        build(folder, shapes={1: one})
    assert "exactly one row" in str(error.value)
    assert nothing_written(folder)


def test_the_users_shapes_are_built(folder: ModelFolder) -> None:
    opt: dict[str, tuple[int, ...]] = {"input_ids": (1, 3), "attention_mask": (1, 9)}
    given = GivenShapes({"min": opt, "opt": opt, "max": {"input_ids": (1, 4), "attention_mask": (1, 12)}})
    facts = build(folder, shapes={2: given}).manifest.facts
    assert [profile["name"] for profile in facts["profiles"]] == ["prefill", "decode", "profile-2"]
    assert len(facts["activation_memory"]) == 3


def unknown_operator(graph: onnx.GraphProto) -> None:
    node(graph, "Sigmoid").op_type = "Sigmoide"


def softcap(graph: onnx.GraphProto) -> None:
    node(graph, "Attention").attribute.append(onnx.helper.make_attribute("softcap", 3.0))


@pytest.mark.parametrize(
    ("edit", "words"),
    [
        (unknown_operator, ["Sigmoide node model.layers.0.mlp/Sigmoid", "Plugin not found"]),
        (softcap, ["Attention node model.layers.0.self_attn.attention", "softcap"]),
    ],
)
def test_a_parse_error_names_node_operator_and_reason(
    folder: ModelFolder, edit: Callable[[onnx.GraphProto], None], words: list[str]
) -> None:
    change_graph(folder, edit)
    with pytest.raises(StageError) as error:
        build(folder)
    assert all(word in str(error.value) for word in words)
    assert nothing_written(folder)


def test_a_machine_that_is_too_small_is_told_so(folder: ModelFolder) -> None:
    with pytest.raises(StageError, match="too little host memory"):
        build_plan(folder, ADA, room=Room(memory=lambda: 10**6), gpus=[])
    assert nothing_written(folder)


def test_a_full_disk_leaves_what_was_there(folder: ModelFolder, monkeypatch: pytest.MonkeyPatch) -> None:
    directory = folder.target("build", "tensorrt_rtx-1.7.1-sm89")
    directory.mkdir(parents=True)
    (directory / "model.plan").write_bytes(b"the old one")

    def no_room(engine: object, file: object) -> NoReturn:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr("build.work.copy_engine", no_room)
    with pytest.raises(StageError, match="free space or set OUT to a larger disk"):
        build(folder, max_context=128)
    assert (directory / "model.plan").read_bytes() == b"the old one"
    assert [path.name for path in directory.iterdir()] == ["model.plan"]


def test_a_folder_that_cannot_be_written_is_told(folder: ModelFolder) -> None:
    (folder.root / "build").write_text("a file where the folder should be")
    with pytest.raises(StageError, match="cannot be written"):
        build(folder)


def test_ctrl_c_cancels(folder: ModelFolder, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("build.progress.PhaseBars.step", lambda *arguments: signal.raise_signal(signal.SIGINT))
    with pytest.raises(KeyboardInterrupt):
        build(folder)
    assert nothing_written(folder)


def wait_for(find: Callable[[], Iterator[Path]]) -> None:
    deadline = time.monotonic() + 30
    while not any(find()) and time.monotonic() < deadline:
        time.sleep(0.005)


def test_a_killed_build_leaves_what_was_there(folder: ModelFolder) -> None:
    directory = folder.target("build", "tensorrt_rtx-1.7.1-sm89")
    directory.mkdir(parents=True)
    (directory / "model.plan").write_bytes(b"the old one")
    command = [sys.executable, "-m", "build", str(folder.root), "--backend", "tensorrt-rtx"]
    command += ["--compute-capability", "8.9", "--max-context", "128"]
    process = subprocess.Popen(command, cwd=ROOT, stderr=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
    wait_for(lambda: directory.glob(".writing.*.network.json"))
    process.kill()
    assert process.wait() == -signal.SIGKILL
    assert (directory / "model.plan").read_bytes() == b"the old one"
    assert not (directory / "manifest.json").exists()
    assert build(folder, max_context=128).fresh
    assert {path.name for path in directory.iterdir()} == FILES


def test_the_log_hears_tensorrt_though_polygraphy_has_a_logger() -> None:
    """TensorRT keeps to the first logger of a process; ours must be the one that Polygraphy gives it."""
    from artifacts.backend import Backend, load, logger

    trt = load(Backend.RTX)
    from polygraphy.backend.trt import get_trt_logger

    assert get_trt_logger() is logger(trt)


def test_the_command_prints_the_table_on_stdout(built: Plan) -> None:
    command = [sys.executable, "-m", "build", str(built.folder.root), "--backend", "tensorrt-rtx"]
    command += ["--compute-capability", "8.9", "--max-context", "256", "--prefill-chunk", "64"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    assert "up to date" in done.stderr
    assert built.target in done.stdout


def test_a_refusal_ends_with_two() -> None:
    command = [sys.executable, "-m", "build", "nowhere", "--compute-capability", "7.5"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert "7.5 (no BF16 attention)" in done.stderr
    assert done.stdout == ""


@pytest.mark.gpu
def test_an_engine_for_this_gpu_can_be_opened(folder: ModelFolder) -> None:
    """Needs an NVIDIA GPU: deserialising calls the CUDA driver."""
    from artifacts.backend import Backend, load, logger

    plan = build_plan(folder, BuildOptions(max_context=256, prefill_chunk=64))
    trt = load(Backend(plan.manifest.facts["backend"]))
    engine = trt.Runtime(logger(trt)).deserialize_cuda_engine(plan.path.read_bytes())
    assert engine.num_optimization_profiles == 2
    assert engine.num_io_tensors == 12
