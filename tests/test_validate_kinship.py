"""A fault in a BF16 graph that no comparison in numbers judges is seen in the graph itself, and named."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import ml_dtypes
import numpy as np
import onnx
import pytest
from onnx import numpy_helper

from artifacts.config import ModelConfig
from artifacts.contract import Form
from artifacts.layout import ModelFolder
from tests.hand_model import write_hand_model
from tests.layer_findings import KIN
from tests.planted_faults import Editor, causal_instead_of_mask, down_projection, mask_shifted, rope_missing, scores_off
from validate.kinship import FORMS, Kinship, look


@pytest.fixture(scope="module")
def hand(tmp_path_factory: pytest.TempPathFactory) -> ModelFolder:
    """A hand-made model of three layers, NoPE in the middle; never written to."""
    return write_hand_model(tmp_path_factory.mktemp("kin") / "hand")


@pytest.fixture
def folder(hand: ModelFolder, tmp_path: Path) -> ModelFolder:
    """A copy that a test may change."""
    return ModelFolder(Path(shutil.copytree(hand.root, tmp_path / "hand")))


def plant(folder: ModelFolder, form: Form, edit: Callable[[Editor], None], *, twin: bool = False) -> None:
    path = folder.graph(form, twin=twin)
    model = onnx.load(str(path), load_external_data=False)
    edit(Editor(model, folder.config()))
    path.write_bytes(model.SerializeToString())


def problems(folder: ModelFolder) -> dict[str, str]:
    """What is wrong with each graph, of those with which something is."""
    return {kinship.form: "; ".join(kinship.problems) for kinship in look(folder) if kinship.problems}


def test_graphs_as_surgery_makes_them_are_kin(hand: ModelFolder) -> None:
    found = look(hand)
    assert [kinship.form for kinship in found] == [form.value for form in FORMS]
    assert all(kinship.nodes > 50 and kinship.rows and not kinship.problems for kinship in found), found


def test_graphs_that_rotate_in_fp32_are_kin_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As with YaRN's attention factor."""
    monkeypatch.setattr(ModelConfig, "rotates_in_fp32", property(lambda config: True))
    found = look(write_hand_model(tmp_path / "hand"))
    assert all(kinship.rows and not kinship.problems for kinship in found), found


def another_weight(edit: Editor) -> None:
    """Begin one weight a row later in the data file."""
    weight = next(tensor for tensor in edit.graph.initializer if tensor.name == "model.layers.1.mlp.down_proj.weight")
    offset = next(entry for entry in weight.external_data if entry.key == "offset")
    offset.value = str(int(offset.value) + 64)


def tables_that_end(edit: Editor) -> None:
    """Make the tables zero from position 310 on, which is beyond every call that compares blocks."""
    for name in (edit.cos, edit.cos.replace("cos", "sin")):
        old = next(tensor for tensor in edit.graph.initializer if tensor.name == name)
        shape = tuple(old.dims)
        values = np.cos(np.arange(shape[0] * shape[1])).reshape(shape).astype(ml_dtypes.bfloat16)
        values[310:] = 0
        old.CopyFrom(numpy_helper.from_array(values, name))


@pytest.mark.parametrize(
    ("form", "edit", "said"),
    [
        (Form.MODEL_LINEAR, down_projection, "model.layers.1.mlp.down_proj (Mul) is not made as in model.onnx"),
        (Form.MODEL_ALL, scores_off, "model.layers.1.self_attn/Mul (Mul) is not made as in model.onnx"),
        (Form.MODEL_LINEAR, rope_missing, "q_rotary/RotaryEmbedding rotates in one of it and its twin only"),
        (Form.MODEL_LINEAR, mask_shifted(1), "LessOrEqual (LessOrEqual) is not made as in model_linear_fp32.onnx"),
        (Form.MODEL_ALL, causal_instead_of_mask, "(Attention) is not made as in model.onnx"),
        (Form.MODEL_LINEAR, another_weight, "model.layers.1.mlp.down_proj.weight is not the weight of that name"),
        (Form.MODEL, tables_that_end, "rotary.cos is not rotary.cos.fp32, from position 0 on"),
    ],
)
def test_a_fault_in_one_graph_is_named(
    folder: ModelFolder, form: Form, edit: Callable[[Editor], None], said: str
) -> None:
    plant(folder, form, edit)
    assert said in problems(folder)[form.value]


def test_tables_that_are_right_as_far_as_any_call_goes_are_told_from_right_ones(folder: ModelFolder) -> None:
    def end(edit: Editor) -> None:
        path = str(folder.onnx)
        old = next(tensor for tensor in edit.graph.initializer if tensor.name == edit.cos)
        values = numpy_helper.to_array(old, path).copy()
        values[310:] = 0
        old.CopyFrom(numpy_helper.from_array(values, edit.cos))

    plant(folder, Form.MODEL_LINEAR, end)
    found = problems(folder)
    assert set(found) == {"model_linear"}
    assert "rotary.cos is not rotary.cos.fp32, from position 310 on" in found["model_linear"]


def test_a_report_without_the_look_is_a_no_and_so_is_a_stranger(tmp_path: Path) -> None:
    from tests.test_validate_report import right_report

    report = right_report(tmp_path)
    assert report.verdict
    assert replace(report, kinships=KIN[1:]).problems == ["model was not held against its kin"]
    stranger = Kinship("model_linear", 5, 6, ("model_linear.onnx: x (Mul) is not made as in model.onnx",))
    assert replace(report, kinships=(KIN[0], stranger, KIN[2])).problems == [*stranger.problems]
