"""A folder for a Polygraphy session: the smallest piece, real values, and commands that work as they stand."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper

from artifacts.contract import Form
from artifacts.errors import StageError
from artifacts.layout import ModelFolder
from artifacts.manifest import FileRecord, Manifest
from tests.layer_findings import KIN, RIGHT
from tests.planted_faults import Editor, keys_swapped, nonpad_instead_of_mask, scale_left_to_the_importer, scores_off
from validate.debugging import Piece, Request, debug
from validate.debugging.__main__ import main
from validate.debugging.comparison import Reading, conclusion
from validate.debugging.cut import cuttable, producers
from validate.debugging.graphs import load_graph
from validate.debugging.request import of_finding
from validate.debugging.truth import USUAL, choose_call
from validate.findings import Check, Findings
from validate.layers.findings import FirstWrong, LayerFindings
from validate.network import LABEL
from validate.prompt import Prompt
from validate.report import Report
from validate.runners import RUNNERS

ATTENTION = "model.layers.3.self_attn.attention"
DOWN = "model.layers.2.mlp.down_proj"
ROOT = Path(__file__).parent.parent


@pytest.fixture(scope="module")
def model(fused: ModelFolder, tmp_path_factory: pytest.TempPathFactory) -> ModelFolder:
    root = tmp_path_factory.mktemp("debugging") / fused.name
    shutil.copytree(fused.root, root)
    return ModelFolder(root)


@pytest.fixture(scope="module")
def faulty(model: ModelFolder, tmp_path_factory: pytest.TempPathFactory) -> ModelFolder:
    """The same model with one layer's down projection times 1.01, as if a pass had done it."""
    root = tmp_path_factory.mktemp("faulty") / model.name
    shutil.copytree(model.root, root)
    folder = ModelFolder(root)
    for twin in (False, True):
        path = folder.graph(Form.MODEL, twin=twin)
        graph = onnx.load(str(path), load_external_data=False)
        times(graph, DOWN, 1.01)
        onnx.save(graph, str(path))
    return folder


def times(model: onnx.ModelProto, name: str, factor: float) -> None:
    """Multiply a tensor by a factor before anybody sees it."""
    index, node = next((i, node) for i, node in enumerate(model.graph.node) if name in node.output)
    node.output[0] = f"{name}/right"
    kind = next(v.type.tensor_type.elem_type for v in model.graph.value_info if v.name == name)
    dtype = helper.tensor_dtype_to_np_dtype(kind)
    model.graph.initializer.append(numpy_helper.from_array(np.array(factor, dtype), "factor"))
    model.graph.node.insert(index + 1, helper.make_node("Mul", [f"{name}/right", "factor"], [name], name="fault"))


@pytest.mark.parametrize(
    ("fault", "call", "words"),
    [
        (scale_left_to_the_importer, "prefill of 301", "In FP32 both are right"),
        (nonpad_instead_of_mask, "chunk of 5 after 301", "what to send to NVIDIA"),
    ],
)
def test_what_the_importer_does_is_called_so(
    model: ModelFolder, tmp_path: Path, fault: Callable[[Editor], None], call: str, words: str
) -> None:
    """Two traps of TensorRT's parser in layer 2: scores 0.3 % too small in BF16, and an input that it drops."""
    folder = ModelFolder(Path(shutil.copytree(model.root, tmp_path / "m")))
    for twin in (False, True):
        path = folder.graph(Form.MODEL, twin=twin)
        graph = onnx.load(str(path), load_external_data=False)
        fault(Editor(graph, folder.config(), (1, 2, 3)))
        onnx.save(graph, str(path))
    piece = debug(folder.root, Request(tensor="model.layers.2.self_attn.attention", call=call))
    assert words in conclusion(piece.readings), piece.readings
    if fault is scale_left_to_the_importer:
        assert [reading.right for reading in piece.readings] == [True, True, False]
        scores = piece.readings[2].scores
        assert scores is not None
        assert scores[0] == pytest.approx(0.9971, abs=5e-4)  # 0.296875² for 128 ** -0.5; measured 0.99693
        assert "**WRONG**; scores × 0.99" in (piece.folder / "README.md").read_text()


def nodes(folder: Path, name: str = "twin.onnx") -> list[str]:
    return [node.op_type for node in onnx.load(str(folder / name), load_external_data=False).graph.node]


def commands(folder: Path) -> Iterator[tuple[str, str]]:
    """Give every command of a README with the heading that it stands under."""
    for section in (folder / "README.md").read_text().split("\n## "):
        for block in re.findall(r"```bash\n(.*?)```", section, re.DOTALL):
            for line in block.strip().splitlines():
                yield section.splitlines()[0], line


def run_all(folder: Path, chosen: str) -> list[tuple[str, int, str]]:
    """Run the commands whose heading or text fits, in the folder; exports are kept from one to the next."""
    environment = {**os.environ, "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}
    done = []
    for heading, line in commands(folder):
        if line.startswith("export "):
            name, _, value = line.removeprefix("export ").partition("=")
            environment[name] = value
        elif re.search(chosen, f"{heading}: {line}"):
            gone = subprocess.run(line, shell=True, cwd=folder, env=environment, capture_output=True, text=True)
            done.append((line, gone.returncode, gone.stdout + gone.stderr))
    return done


@pytest.mark.parametrize(
    ("tensor", "expected", "begins"),
    [
        (ATTENTION, ["Mul", "Attention"], {"present.3.key", "present.3.value", "attention_mask.slots"}),
        ("present.3.key", ["Concat"], {"past_key_values.3.key"}),
        (DOWN, ["Sigmoid", "Mul", "Mul", "MatMul"], {"model.layers.2.mlp.gate_proj", "model.layers.2.mlp.up_proj"}),
        ("model.layers.1.self_attn.q_rotary", ["Reshape", "Transpose", "RotaryEmbedding"], {"position_ids"}),
        ("logits", ["MatMul"], {"model.norm"}),
    ],
)
def test_a_piece_is_the_step_that_makes_the_tensor(
    model: ModelFolder, tensor: str, expected: list[str], begins: set[str]
) -> None:
    piece = debug(model.root, Request(tensor=tensor))
    assert (
        piece.folder == model.root / "validate" / "unreported" / "polygraphy" / f"{tensor}@model@chunk-of-5-after-301"
    )
    assert nodes(piece.folder) == expected
    assert begins <= set(piece.cut.inputs)
    assert all(reading.right for reading in piece.readings), piece.readings
    assert "this piece alone does not show a fault" in conclusion(piece.readings)


def test_a_layer_comes_with_its_cache_and_only_its_weights(model: ModelFolder) -> None:
    """A NoPE layer: no rotary tables either."""
    piece = debug(model.root, Request(layer=2))
    assert piece.cut.outputs == ("model.layers.2", "present.2.key", "present.2.value")
    assert nodes(piece.folder).count("MatMul") == 7
    graph = onnx.load(str(piece.folder / "bf16.onnx"), load_external_data=False).graph
    weights = sum(int(np.prod(tensor.dims)) for tensor in graph.initializer)
    config = model.config()
    width, heads = config.hidden_size, config.num_attention_heads + config.num_key_value_heads
    per_layer = width * (2 * heads * config.head_dim + 3 * config.intermediate_size + 2)
    assert per_layer <= weights <= per_layer + 32
    assert all(reading.right for reading in piece.readings), piece.readings


def test_values_are_of_a_filled_cache_beyond_300_and_are_what_bf16_holds(model: ModelFolder) -> None:
    piece = debug(model.root, Request(tensor="present.3.key"))
    past = piece.feeds["past_key_values.3.key"]
    assert past.shape == (1, 2, 301, 128)
    assert past.any(axis=(0, 1, 3)).all()
    assert not (past.view(np.uint32) & 0xFFFF).any()


@pytest.mark.slow
@pytest.mark.parametrize("form", [Form.EXPORT, Form.MODEL_ALL])
@pytest.mark.parametrize("call", ["left-padded batch of 3: prefill", "left-padded batch of 3: decode"])
def test_other_graphs_and_padded_calls(model: ModelFolder, form: Form, call: str) -> None:
    piece = debug(model.root, Request(layer=2, form=form, call=call))
    assert all(reading.right for reading in piece.readings), piece.readings


def test_the_mask_is_held_against_its_definition(model: ModelFolder) -> None:
    piece = debug(model.root, Request(tensor="attention_mask.slots", call="left-padded batch of 3: prefill"))
    assert not piece.raw
    assert piece.expected["attention_mask.slots"].dtype == bool
    assert all(reading.right for reading in piece.readings)


def test_a_number_without_axes_is_a_piece_too(model: ModelFolder) -> None:
    """The length of the past, which the mask is made of."""
    piece = debug(model.root, Request(tensor="attention_mask.slots/Squeeze"))
    assert [array.shape for array in piece.expected.values()] == [()]
    assert all(reading.right for reading in piece.readings)


def test_both_graphs_stand_alone(model: ModelFolder, tmp_path: Path) -> None:
    """Moved away from the model, they still have their weights: 16 bits apart at most from what they were."""
    piece = debug(model.root, Request(tensor=DOWN))
    moved = Path(shutil.copytree(piece.folder, tmp_path / "sent"))
    for name in ("twin.onnx", "bf16.onnx", "reference.onnx"):
        onnx.checker.check_model(str(moved / name), full_check=True)
    weight = next(t for t in onnx.load(str(moved / "twin.onnx")).graph.initializer if len(t.dims) == 2)
    own = next(t for t in onnx.load(str(moved / "bf16.onnx")).graph.initializer if list(t.dims) == [1, *weight.dims])
    assert np.array_equal(numpy_helper.to_array(weight), numpy_helper.to_array(own)[0].astype(np.float32))


def test_two_sections_need_what_lies_around_the_folder_and_the_rest_nothing(model: ModelFolder) -> None:
    """docs/debug.md names them: one needs the project, one the model."""
    folder = debug(model.root, Request(tensor=ATTENTION)).folder
    beside = {heading for heading, line in commands(folder) if "../" in line or "validate" in line}
    assert beside == {"Make it smaller without a GPU", "How it was cut"}
    assert all(f'"{heading}"' in (ROOT / "docs" / "debug.md").read_text() for heading in beside)


@pytest.mark.slow
def test_the_commands_work_and_end_as_the_readme_says(model: ModelFolder) -> None:
    """All but `debug reduce` and the GPU's, which have tests of their own below; seven processes of Polygraphy."""
    folder = debug(model.root, Request(tensor=ATTENTION)).folder
    done = run_all(folder, r"^(With Polygraphy|How it was cut)")
    assert len(done) == 7
    assert {code for _, code, _ in done} == {0}, [text for _, code, text in done if code]


def test_the_commands_for_a_gpu_are_ones_that_polygraphy_takes(model: ModelFolder, tmp_path: Path) -> None:
    folder = debug(model.root, Request(tensor=ATTENTION)).folder
    readme = folder / "README.md"
    script = f" --gen-script {tmp_path / 'run.py'}"
    lines = [line for heading, line in commands(folder) if heading.startswith("On a machine with a GPU")]
    assert len(lines) == 3
    readme.write_text("\n## x\n```bash\n" + "\n".join(line + script for line in lines[:2]) + "\n```\n")
    assert [code for _, code, _ in run_all(folder, "x")] == [0, 0]


@pytest.mark.slow
def test_a_fault_of_the_graph_is_called_one_and_polygraphy_fails_too(faulty: ModelFolder) -> None:
    piece = debug(faulty.root, Request(tensor=DOWN))
    assert not any(reading.right for reading in piece.readings)
    assert piece.readings[0].slope == pytest.approx(1.01, abs=1e-4)
    assert "fault of surgery" in conclusion(piece.readings)
    assert "ONNX Runtime against the reference: **fails**" in (piece.folder / "README.md").read_text()
    done = run_all(piece.folder, r"run twin.onnx --onnxrt|reference.json network.json")
    assert [code for _, code, _ in done] == [1, 1]


def test_a_wrong_twin_is_not_reduced_because_its_own_values_are_what_reduce_compares_with(
    faulty: ModelFolder, model: ModelFolder
) -> None:
    folders = [debug(root, Request(tensor=DOWN)).folder for root in (faulty.root, model.root)]
    reduced = [[line for _, line in commands(folder) if "debug reduce" in line] for folder in folders]
    assert [len(lines) for lines in reduced] == [0, 3]
    wrong, right = ((folder / "README.md").read_text() for folder in folders)
    assert "ONNX Runtime on twin.onnx is wrong itself" in wrong
    assert "Here nothing is wrong in FP32" in right
    assert "Nor is bf16.onnx outside its limit" in right
    assert all("\n\n\n" not in text for text in (wrong, right))


def test_a_fault_of_the_twin_alone_is_called_so(model: ModelFolder, tmp_path: Path) -> None:
    folder = ModelFolder(Path(shutil.copytree(model.root, tmp_path / "m")))
    path = folder.graph(Form.MODEL, twin=True)
    graph = onnx.load(str(path), load_external_data=False)
    times(graph, DOWN, 1.01)
    onnx.save(graph, str(path))
    piece = debug(folder.root, Request(tensor=DOWN))
    assert [reading.right for reading in piece.readings] == [False, False, True]
    assert "the BF16 graph, which is what goes to TensorRT, is within its limit" in conclusion(piece.readings)


def edit(folder: ModelFolder, fault: Callable[[Editor], None], *, twin: bool) -> None:
    """Plant a fault in one of the two graphs alone."""
    path = folder.graph(Form.MODEL, twin=twin)
    graph = onnx.load(str(path), load_external_data=False)
    fault(Editor(graph, folder.config()))
    onnx.save(graph, str(path))


@pytest.mark.parametrize(
    ("twin", "right", "words"),
    [
        (True, [False, False, True], "either the twin alone is wrong"),
        (False, [True, True, False], "the fault is in how the BF16 graph is wired"),
    ],
    ids=["in the twin", "in the BF16 graph"],
)
def test_where_one_graph_is_wired_otherwise_each_is_cut_at_its_own_borders(
    own: ModelFolder, twin: bool, right: list[bool], words: str
) -> None:
    """Keys of layers 0 and 2 swapped in one of the two: it begins at layer 2's cache, the other at layer 0's."""
    edit(own, keys_swapped, twin=twin)
    piece = debug(own.root, Request(tensor="present.0.key"))
    assert [reading.right for reading in piece.readings] == right
    ours, theirs = ("2", "0") if twin else ("0", "2")
    assert f"begins at past_key_values.{ours}.key, model.layers.{ours}.self_attn.k_proj, and" in piece.unlike
    assert f"bf16.onnx at past_key_values.{theirs}.key, model.layers.{theirs}.self_attn.k_proj." in piece.unlike
    assert "MatMul" not in nodes(piece.folder, "reference.onnx")  # one step too, and not all that comes before it
    text = (piece.folder / "README.md").read_text()
    assert piece.unlike in text
    assert words in text


def test_a_scale_that_the_report_saw_is_seen_in_its_folder_too(own: ModelFolder) -> None:
    """0.3 % of a scale is less than BF16's last bit, and more than what many tokens leave in doubt."""
    edit(own, scores_off, twin=False)
    few, many = (
        debug(own.root, Request(tensor="model.layers.1.self_attn.q_scaled", call=call))
        for call in ("prefill of 10", "prefill of 301")
    )
    assert [reading.right for reading in few.readings] == [True, True, True]
    assert [reading.right for reading in many.readings] == [True, True, False]
    assert many.readings[2].slope == pytest.approx(0.997, abs=5e-4)
    assert [line for _, line in commands(many.folder) if "--slope 0.001" in line]


def test_a_graph_that_is_cut_off_and_data_that_is_gone_are_refused(own: ModelFolder) -> None:
    path = own.graph(Form.MODEL, twin=True)
    whole = path.read_bytes()
    path.write_bytes(whole[: len(whole) // 2])
    with pytest.raises(StageError, match=r"model_fp32\.onnx is no graph"):
        debug(own.root, Request(layer=1))
    path.write_bytes(whole)
    (own.onnx / "model.onnx_data").write_bytes(b"")
    with pytest.raises(StageError, match="ONNX Runtime cannot open"):
        debug(own.root, Request(layer=1))


def test_a_layer_of_which_one_graph_lacks_a_name_is_cut_without_it(own: ModelFolder) -> None:
    def rename(editor: Editor) -> None:
        editor.rename({"present.1.key": "cache.1.key"})
        next(value for value in editor.graph.output if value.name == "present.1.key").name = "cache.1.key"

    edit(own, rename, twin=True)
    piece = debug(own.root, Request(layer=1))
    assert piece.cut.outputs == ("model.layers.1", "present.1.value")
    assert all(reading.right for reading in piece.readings), piece.readings
    left_out = "Left out, because the BF16 graph and its FP32 twin do not both make it: present.1.key."
    assert left_out in (piece.folder / "README.md").read_text()
    with pytest.raises(StageError, match=r"(?s)around 'present.1.key'.*only the BF16 graph makes it.*--layer"):
        debug(own.root, Request(tensor="present.1.key"))


@pytest.mark.slow
@pytest.mark.parametrize("graph", ["twin", "bf16"])
def test_debug_reduce_finds_a_planted_node(model: ModelFolder, graph: str) -> None:
    """The fault is planted in the folder's graph, after what is right was computed: as if TensorRT misread the node."""
    folder = debug(model.root, Request(layer=2)).folder
    path, output = folder / f"{graph}.onnx", "model.layers.2.self_attn.o_proj"
    broken = onnx.load(str(path))
    used = next(node.input[1] for node in broken.graph.node if output in node.output)
    weight = next(tensor for tensor in broken.graph.initializer if tensor.name == used)
    values = numpy_helper.to_array(weight)
    weight.CopyFrom(numpy_helper.from_array((values * np.float32(1.5)).astype(values.dtype), used))
    onnx.save(broken, str(path))
    done = run_all(folder, f"without a GPU: polygraphy debug reduce {graph}.onnx")
    assert [code for _, code, _ in done] == [0], done[0][2]
    reduced = onnx.load(str(folder / ("reduced.onnx" if graph == "twin" else "reduced_bf16.onnx"))).graph
    assert [value.name for value in reduced.output] == [output]
    if graph == "twin":
        assert [node.op_type for node in reduced.node] == ["MatMul"]


def test_words_follow_from_who_differs() -> None:
    def reading(side: str, error: float) -> Reading:
        return Reading(side, "x", error, 1.0, 1e-3)

    sides = ("ONNX Runtime: twin.onnx", f"{LABEL}: twin.onnx", f"{LABEL}: bf16.onnx")
    assert "NVIDIA" in conclusion([reading(sides[0], 0), reading(sides[1], 0.1), reading(sides[2], 0.1)])
    assert "In FP32 both are right" in conclusion([reading(sides[0], 0), reading(sides[1], 0), reading(sides[2], 0.1)])
    assert "surgery" in conclusion([reading(side, 0.1) for side in sides])
    assert "the twin alone" in conclusion([reading(sides[0], 0.1), reading(sides[1], 0.1), reading(sides[2], 0)])


def first(**changes: object) -> FirstWrong:
    found = FirstWrong(
        name=DOWN,
        layer=2,
        instrument="structure",
        subject=f"{LABEL}: model_all_fp32",
        scenario="decode at position 10",
        feeds=(("model.layers.2.mlp.gate_proj", True), ("model.layers.2.mlp.up_proj", True)),
        pattern="slope",
        words="It is too large by one hundredth.",
    )
    return replace(found, **changes)  # type: ignore[arg-type]  # a test's shorthand


def write_report(folder: ModelFolder, layers: LayerFindings, *problems: str) -> Path:
    """Write a report of the graphs that lie there; PyTorch and every runner agree, but for what `problems` say."""
    place = folder.root / "validate" / "a-target"
    place.mkdir(parents=True, exist_ok=True)
    check = Check("small positions: one call", 7, 100, 1e-6, 2e-6, 1e-4, problems)
    found = tuple(Findings(runner.name, runner.role.value, [check]) for runner in RUNNERS)
    rotates, digests = folder.config().uses_rope, folder.digests()
    report = Report(folder.name, "a-target", rotates, Prompt((1, 2), None), found, {}, (), place, layers, {}, KIN)
    report.write(place / "report.json")
    graphs = {folder.relative(path): FileRecord.of(path, digests) for path in folder.onnx.glob("*.onnx")}
    Manifest("validate", {}, {}, graphs, {}, {}).write(place / "manifest.json")
    return place


@pytest.fixture
def own(model: ModelFolder, tmp_path: Path) -> ModelFolder:
    """A copy of the model that a test may change."""
    return ModelFolder(Path(shutil.copytree(model.root, tmp_path / "m")))


def test_without_a_name_it_is_the_first_wrong_tensor_of_the_last_report(faulty: ModelFolder) -> None:
    place = write_report(faulty, replace(RIGHT, first=first()))
    piece = debug(faulty.root)
    assert piece.folder == place / "polygraphy" / f"{DOWN}@model_all@decode-at-position-10"
    assert (piece.request.form, piece.call.name) == (Form.MODEL_ALL, "decode at position 10")
    text = (piece.folder / "README.md").read_text()
    assert "It is too large by one hundredth." in text
    assert "model.layers.2.mlp.gate_proj (right)" in text


@pytest.mark.parametrize("reported", [True, False])
def test_where_nothing_is_wrong_it_says_so(own: ModelFolder, reported: bool) -> None:
    if reported:
        write_report(own, RIGHT)
    with pytest.raises(StageError, match="nothing is wrong in" if reported else "no report of") as caught:
        debug(own.root)
    command = f"make debug MODEL=random:tiny-d128 NAME=m OUT={own.root.parent} LAYER=7"
    assert command in str(caught.value)


@pytest.mark.parametrize(
    ("layers", "problems"),
    [
        (replace(RIGHT, problems=("output cache.1.key is not of the contract",)), ()),
        (replace(RIGHT, last_word=(replace(RIGHT.last_word[0], problem="logits are off"),)), ()),
        (RIGHT, ("PyTorch says no",)),
    ],
    ids=["a problem", "the last word", "a runner"],
)
def test_a_report_that_says_no_without_a_first_wrong_tensor_tells_why(
    own: ModelFolder, layers: LayerFindings, problems: tuple[str, ...]
) -> None:
    place = write_report(own, layers, *problems)
    with pytest.raises(StageError, match="no tensor is the first wrong one in") as caught:
        debug(own.root)
    reason = json.loads((place / "report.json").read_text())["problems"][0]
    assert reason in str(caught.value)
    assert "nothing is wrong" not in str(caught.value)


def test_a_report_of_other_graphs_is_refused(own: ModelFolder) -> None:
    write_report(own, replace(RIGHT, first=first()))
    path = own.graph(Form.MODEL)
    path.write_bytes(path.read_bytes() + b" ")
    with pytest.raises(StageError, match=r"(?s)is of other graphs.*onnx/model.onnx") as caught:
        debug(own.root)
    assert f"make validate MODEL=random:tiny-d128 NAME=m OUT={own.root.parent}" in str(caught.value)


def test_a_report_of_another_version_is_refused(own: ModelFolder) -> None:
    place = write_report(own, RIGHT)
    raw = json.loads((place / "report.json").read_text())
    raw["layers"]["tensors"][0]["a new number"] = 1
    (place / "report.json").write_text(json.dumps(raw))
    with pytest.raises(StageError, match=r"(?s)is no report of this version.*a new number.*make validate MODEL="):
        debug(own.root)


def test_of_a_missing_tensor_it_is_the_layer_in_the_usual_call(model: ModelFolder) -> None:
    """It was wrong in no call and cannot be cut out; `choose_call` takes what the request has."""
    request = of_finding(model, first(scenario=""))
    assert (request.layer, request.tensor, request.call) == (2, None, None)
    assert of_finding(model, first(name="logits", layer=None, scenario="")).tensor == "logits"
    assert choose_call(model.config(), request.call).name == USUAL


@pytest.mark.parametrize(
    ("request_", "message"),
    [
        (Request(layer=4), "the model has no layer 4"),
        (Request(tensor="model.layers.3.self_attn.q_rotori"), "model.layers.3.self_attn.q_rotary"),
        (Request(tensor="input_ids"), "an input, which no node makes"),
        (Request(tensor="model.norm.weight"), "a weight, which no node makes"),
        (Request(layer=1, call="never"), "there is no call 'never'"),
    ],
)
def test_refusals_name_what_there_is(model: ModelFolder, request_: Request, message: str) -> None:
    with pytest.raises(StageError, match=re.escape(message)):
        debug(model.root, request_)


@pytest.mark.parametrize("asked", ["3,7", "all", "-1", "\u0663"])
def test_one_layer_is_asked_for_at_a_time(model: ModelFolder, capsys: pytest.CaptureFixture[str], asked: str) -> None:
    with pytest.raises(SystemExit) as end:
        main([str(model.root), f"--layer={asked}"])
    assert end.value.code == 2
    assert f"expected one layer, such as 7, found '{asked}'" in capsys.readouterr().err


def test_two_calls_of_a_piece_have_two_folders(model: ModelFolder) -> None:
    folders = [debug(model.root, Request(tensor="model.norm", call=call)).folder for call in (None, "prefill of 10")]
    assert len({folder for folder in folders if (folder / "README.md").is_file()}) == 2


@pytest.mark.parametrize("form", [Form.EXPORT, Form.MODEL])
@pytest.mark.parametrize("name", ["lm_head/Transpose/bf16", "model.embed_tokens/bf16", "lm_head/Transpose"])
def test_what_one_graph_has_alone_or_makes_of_weights_alone_is_neither_taken_nor_offered(
    model: ModelFolder, name: str, form: Form
) -> None:
    """The twin's own casts, and a transposed weight: there is nothing to cut in both graphs, or nothing to feed."""
    twin, bf16 = (load_graph(model, form, twin=twin).graph for twin in (True, False))
    assert name in producers(twin)
    assert name not in cuttable(twin, bf16)
    with pytest.raises(StageError, match=r"(?s)no piece can be cut out.*both the BF16 graph and its FP32 twin"):
        debug(model.root, Request(tensor=name, form=form))


def test_a_failure_leaves_the_earlier_folder(model: ModelFolder, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = debug(model.root, Request(tensor="model.norm")).folder
    before = (folder / "twin.onnx").read_bytes()

    def fail(*_: object) -> Piece:
        raise KeyboardInterrupt

    monkeypatch.setattr("validate.debugging.folder.network_outputs", fail)
    with pytest.raises(KeyboardInterrupt):
        debug(model.root, Request(tensor="model.norm"))
    assert (folder / "twin.onnx").read_bytes() == before
    assert not list(folder.parent.glob(".writing*"))


def test_names_of_the_raw_export_are_those_of_the_fused_graph(model: ModelFolder) -> None:
    raw = load_graph(model, Form.EXPORT, twin=True)
    assert {ATTENTION, "model.layers.1.self_attn.q_rotary"} <= {name for node in raw.graph.node for name in node.output}
    assert choose_call(model.config(), None).past == 301
