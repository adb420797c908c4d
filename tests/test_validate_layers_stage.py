"""The stage compares layer by layer in a process of its own, says no, exits with 1, and names the place."""

import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import onnx
import pytest

from artifacts.command import DONE, VERDICT_NO
from artifacts.contract import Form
from artifacts.errors import StageError
from artifacts.layout import ModelFolder
from artifacts.manifest import FileRecord
from tests.planted_faults import Editor, mask_shifted, not_a_number, output_dropped, output_renamed, scores_off
from validate.__main__ import main
from validate.findings import Check, Findings
from validate.greedy import Continuation
from validate.report import Report
from validate.runners import RUNNERS


@pytest.fixture
def folder(fused: ModelFolder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ModelFolder:
    """A model's folder that a test may change; what the runners find is right, and none is run."""
    check = Check("small positions: one call", 7, 100, 1e-6, 2e-6, 1e-4)
    found = [
        Findings(runner.name, runner.role.value, [check], continuation=Continuation([3], [1.0])) for runner in RUNNERS
    ]
    monkeypatch.setattr("validate.supervision.run_all", lambda *ignored: found)
    shutil.copytree(fused.root, tmp_path / fused.name)
    return ModelFolder(tmp_path / fused.name)


def plant(folder: ModelFolder, edit: Callable[[Editor], None], *, twin: bool, form: Form = Form.MODEL) -> None:
    """Change one graph and let the manifests vouch for it, as a wrong pass or a wrong export would."""
    path = folder.graph(form, twin=twin)
    model = onnx.load(str(path), load_external_data=False)
    edit(Editor(model, folder.config()))
    path.write_bytes(model.SerializeToString())
    name, record = folder.relative(path), FileRecord.of(path, folder.digests())
    exported, fused = folder.export_manifest(), folder.surgery_manifest()
    if form is Form.EXPORT:
        replace(exported, outputs={**exported.outputs, name: record}).write(folder.onnx / "export.manifest.json")
        fused = replace(fused, inputs={**fused.inputs, name: record})
    else:
        fused = replace(fused, outputs={**fused.outputs, name: record})
    fused.write(folder.onnx / "surgery.manifest.json")


@pytest.mark.slow
def test_right_graphs_are_a_yes_also_when_every_tensor_is_compared(folder: ModelFolder) -> None:
    assert main([str(folder.root), "--layers", "all"]) == DONE


@pytest.mark.parametrize("asked", ["model.layers.1.nothing", "99", "1-2", ",", "03", "\u0663", "\u00b2"])
def test_layers_that_are_not_there_are_refused_before_anything_runs(
    folder: ModelFolder, monkeypatch: pytest.MonkeyPatch, asked: str
) -> None:
    monkeypatch.setattr("validate.supervision.run_all", lambda *ignored: pytest.fail("a runner was begun"))
    with pytest.raises(StageError, match="there is no layer or tensor"):
        main([str(folder.root), "--layers", asked])


@pytest.mark.slow
@pytest.mark.parametrize(
    ("edit", "twin", "place", "layers"),
    [
        (mask_shifted(1), True, "attention_mask.slots", "attention_mask.slots,model.layers.0.self_attn.attention"),
        (scores_off, False, "model.layers.1.self_attn.q_scaled", "1"),
    ],
)
def test_a_fault_makes_the_command_exit_with_1_and_name_its_place(
    folder: ModelFolder,
    capsys: pytest.CaptureFixture[str],
    edit: Callable[[Editor], None],
    twin: bool,
    place: str,
    layers: str,
) -> None:
    plant(folder, edit, twin=twin)
    assert main([str(folder.root), "--layers", layers]) == VERDICT_NO
    shown = " ".join(capsys.readouterr().out.split())
    assert f"first wrong tensor: {place}" in shown
    report = Report.read(next((folder.root / "validate").iterdir()))
    assert report.layers is not None
    assert report.layers.first is not None
    assert report.layers.first.name == place


@pytest.mark.slow
@pytest.mark.parametrize(
    ("edit", "forms", "said"),
    [
        (not_a_number, (Form.MODEL, Form.EXPORT), "first wrong tensor: model.layers.1.mlp.down_proj"),
        (output_renamed, (Form.MODEL,), "output cache.1.key is not of the contract"),
        (output_dropped, (Form.MODEL,), "output present.1.key is missing"),
    ],
)
def test_a_fault_of_bookkeeping_makes_the_command_exit_with_1(
    folder: ModelFolder,
    capsys: pytest.CaptureFixture[str],
    edit: Callable[[Editor], None],
    forms: tuple[Form, ...],
    said: str,
) -> None:
    for form in forms:
        plant(folder, edit, twin=True, form=form)
    assert main([str(folder.root), "--layers", "1"]) == VERDICT_NO
    assert said in " ".join(capsys.readouterr().out.split())
