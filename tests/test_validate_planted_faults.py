"""Faults planted in the real graphs of a small model are each a no, and the graphs as they are a yes.

Measured: the right graphs are within 2e-5 of PyTorch; the smallest of these faults is off by 1.6e-2. The quick tests of
test_validate_examination.py plant the same kinds of faults in a model that needs no export.
"""

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper

from artifacts.checkpoint import Checkpoint
from artifacts.contract import Form, past_name, present_name
from artifacts.layout import DATA_FILE, ROTARY_FILE, ModelFolder
from runtime import open_session
from validate import worker
from validate.examination import Examination
from validate.findings import Findings
from validate.pytorch_session import PyTorchSession
from validate.reference import Reference
from validate.runners import RUNNERS, Role, Runner
from validate.worker import Order

Plant = Callable[[onnx.ModelProto], None]
PROMPT, TOKENS = (5, 6, 7, 8), 8

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def examination(fused: ModelFolder, tmp_path_factory: pytest.TempPathFactory) -> Examination:
    """An examination of the tiny model whose reference, PyTorch, has been run."""
    import torch

    reference = Reference(tmp_path_factory.mktemp("reference"))
    examination = Examination(fused.config(), PROMPT, TOKENS, reference)
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    with PyTorchSession(Checkpoint.from_identity(fused.export_manifest().checkpoint), "float32") as session:
        findings = examination.run(RUNNERS[0], session)
    torch.set_num_threads(threads)
    assert findings.problems == []
    return examination


def examine(examination: Examination, graph: Path, form: Form) -> Findings:
    with open_session(graph) as session:
        return examination.run(Runner(graph.stem, Role.JUDGED, form), session)


def insert(model: onnx.ModelProto, value: str, kind: str, *others: str) -> None:
    """Put an operator on a value, for everyone who reads it."""
    changed = f"{value}/planted"
    for node in model.graph.node:
        for number, name in enumerate(node.input):
            if name == value:
                node.input[number] = changed
    place = next(number for number, node in enumerate(model.graph.node) if value in node.output) + 1
    model.graph.node.insert(place, helper.make_node(kind, [value, *others], [changed], name=changed))


def number(model: onnx.ModelProto, name: str, value: float) -> str:
    model.graph.initializer.append(numpy_helper.from_array(np.array(value, np.float32), name))
    return name


def swapped_layers(model: onnx.ModelProto) -> None:
    one, other = present_name(2, "key"), present_name(3, "key")
    for node in model.graph.node:
        for names in (node.input, node.output):
            for place, name in enumerate(names):
                names[place] = {one: other, other: one}.get(name, name)


def crossed_pasts(model: onnx.ModelProto) -> None:
    one, other = past_name(2, "key"), past_name(3, "key")
    for node in model.graph.node:
        for place, name in enumerate(node.input):
            node.input[place] = {one: other, other: one}.get(name, name)


def rotation_on_a_nope_layer(model: onnx.ModelProto) -> None:
    for part in ("q_proj", "k_proj"):
        value = f"model.layers.2.self_attn.{part}/Transpose"
        insert(model, value, "RotaryEmbedding", "rotary.cos.fp32", "rotary.sin.fp32", "position_ids")


def no_rotation_on_a_rope_layer(model: onnx.ModelProto) -> None:
    for node in model.graph.node:
        if node.op_type == "RotaryEmbedding" and "layers.1" in node.name:
            node.op_type = "Identity"
            del node.input[1:], node.attribute[:]


def mask_one_too_wide(model: onnx.ModelProto) -> None:
    compare = next(node for node in model.graph.node if node.op_type == "LessOrEqual")
    reach = compare.input[1]
    model.graph.initializer.append(numpy_helper.from_array(np.array(1, np.int64), "planted.one"))
    place = list(model.graph.node).index(compare)
    model.graph.node.insert(place, helper.make_node("Add", [reach, "planted.one"], ["planted.reach"], name="planted"))
    compare.input[1] = "planted.reach"


def scale_off_by_one_percent(model: onnx.ModelProto) -> None:
    tensor = next(tensor for tensor in model.graph.initializer if tensor.name == "attention.scale")
    tensor.raw_data = (numpy_helper.to_array(tensor) * np.float32(1.01)).tobytes()


def one_weight_one_percent_larger(model: onnx.ModelProto) -> None:
    insert(model, "model.layers.1.mlp.down_proj", "Mul", number(model, "planted.factor", 1.01))


FAULTS = (
    (swapped_layers, Form.MODEL, "it holds present.3.key"),
    (swapped_layers, Form.MODEL_LINEAR, "present.2.key is off"),
    (crossed_pasts, Form.MODEL_ALL, "present.2.key is off"),
    (rotation_on_a_nope_layer, Form.MODEL, "layer 2 is NoPE in config.json, but its keys moved"),
    (no_rotation_on_a_rope_layer, Form.MODEL, "layer 1 is RoPE in config.json, but its keys moved"),
    (mask_one_too_wide, Form.MODEL_ALL, "small positions: one call: call 1, row 1: logits is off"),
    (mask_one_too_wide, Form.MODEL_LINEAR, "small positions: one call: call 1, row 1: logits is off"),
    (scale_off_by_one_percent, Form.MODEL, "logits is off"),
    (one_weight_one_percent_larger, Form.MODEL, "logits is off"),
)


@pytest.mark.parametrize(("plant", "form", "said"), FAULTS, ids=lambda part: getattr(part, "__name__", str(part)))
def test_a_planted_fault_is_a_no(
    examination: Examination, fused: ModelFolder, tmp_path: Path, plant: Plant, form: Form, said: str
) -> None:
    for name in (DATA_FILE, ROTARY_FILE):
        shutil.copy(fused.onnx / name, tmp_path / name)
    model = onnx.load(fused.graph(form, twin=True), load_external_data=False)
    plant(model)
    onnx.save(model, tmp_path / form.file_name(twin=True))
    problems = "\n".join(examine(examination, tmp_path / form.file_name(twin=True), form).problems)
    assert said in problems


@pytest.mark.parametrize("form", list(Form))
def test_the_graphs_as_they_are_pass(examination: Examination, fused: ModelFolder, form: Form) -> None:
    findings = examine(examination, fused.graph(form, twin=True), form)
    assert findings.problems == []
    assert findings.left_out == []
    assert max(check.worst or 0 for check in findings.checks) < 5e-5


def test_a_worker_writes_its_findings_beside_its_order(
    examination: Examination, fused: ModelFolder, capsys: pytest.CaptureFixture[str]
) -> None:
    identity = dict(fused.export_manifest().checkpoint)
    order = Order(examination.reference.folder, fused.root, identity, PROMPT, TOKENS)
    order.write()
    assert worker.main([str(order.path), "model_fp32"]) == 0
    findings = Findings.from_json(json.loads(order.findings("model_fp32").read_text()))
    assert findings.problems == []
    assert findings.peak_bytes > 1 << 20
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "0 19"
    assert lines[-1] == "19 19"


@pytest.mark.parametrize("runner", [runner for runner in RUNNERS if runner.network], ids=lambda runner: runner.name)
def test_tensorrts_networks_of_the_graphs_are_a_yes(
    examination: Examination, fused: ModelFolder, runner: Runner
) -> None:
    with runner.open(fused, Checkpoint.from_identity(fused.export_manifest().checkpoint)) as session:
        assert examination.run(runner, session).problems == []
