"""The six graphs compute what the raw export computes, in every way of cutting the tokens; planted faults are seen.

Measured on these graphs: fused against raw at most 1.6e-6 of the largest magnitude; the faults planted below move the
logits by 0.12 and more. The tolerance is 1e-4.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest

from artifacts.contract import Form
from artifacts.errors import StageError
from artifacts.layout import ModelFolder
from artifacts.twin import fp32_twin
from surgery import fuse
from tests.raw_graph import write_raw_folder
from tests.steps import Steps, Tokens, distance

TOLERANCE = 1e-4
CAPACITY = 384
LENGTH = 310
CUTS = {
    "one call": [LENGTH],
    "5+3+1+1": [5, 3, 1, 1],
    "one by one": [1] * 12,
    "n-1+1": [LENGTH - 1, 1],
    "256": [250, 10, 7],
}
FUSED = (Form.MODEL, Form.MODEL_LINEAR, Form.MODEL_ALL)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> ModelFolder:
    written = write_raw_folder(tmp_path_factory.mktemp("surgery") / "hand")
    raw = onnx.load(str(written.graph(Form.EXPORT)), load_external_data=False)
    twin = fp32_twin(raw, written.config())
    written.graph(Form.EXPORT, twin=True).write_bytes(twin.SerializeToString())
    fuse(written.root, CAPACITY)
    return written


@pytest.fixture(scope="module")
def raw(folder: ModelFolder) -> Steps:
    return Steps(folder.graph(Form.EXPORT, twin=True))


@pytest.fixture(scope="module")
def batch() -> Tokens:
    return Tokens.draw(LENGTH, pads=(0, 4, 37))


@pytest.mark.parametrize("form", FUSED)
@pytest.mark.parametrize("cut", CUTS)
def test_every_cut_gives_the_logits_and_the_cache_of_the_raw_export(
    folder: ModelFolder, raw: Steps, form: Form, cut: str
) -> None:
    tokens, sizes = Tokens.draw(LENGTH, pads=(0,)), CUTS[cut]
    (wanted,), cache = raw.run(tokens, [sum(sizes)]) if sum(sizes) == LENGTH else _beginning(raw, tokens, sum(sizes))
    logits, present = Steps(folder.graph(form, twin=True)).run(tokens, sizes)
    ends = np.cumsum(sizes) - 1
    wanted = wanted[:, ends] if form.last_only else wanted
    assert distance(np.concatenate(logits, axis=1), wanted) < TOLERANCE
    assert present.keys() == cache.keys()
    for name, value in present.items():
        assert distance(value[:, :, : sum(sizes)], cache[name]) < TOLERANCE, name


def _beginning(raw: Steps, tokens: Tokens, length: int) -> tuple[list[np.ndarray], dict[str, np.ndarray]]:
    cut = Tokens(tokens.ids[:, :length], tokens.mask[:, :length], tokens.positions[:, :length])
    return raw.run(cut, [length])


@pytest.mark.parametrize("form", FUSED)
def test_a_row_of_a_padded_batch_equals_the_row_alone(folder: ModelFolder, batch: Tokens, form: Form) -> None:
    steps = Steps(folder.graph(form, twin=True))
    together = steps.logits(batch, [LENGTH - 3, 1, 1, 1])
    assert np.isfinite(together).all()
    for index in range(3):
        row = batch.row(index)
        alone = steps.logits(row, [row.ids.shape[1] - 3, 1, 1, 1])
        assert distance(together[index : index + 1, -alone.shape[1] :], alone) < TOLERANCE
    others = Tokens.draw(LENGTH, pads=(0, 4, 37), pad=9)
    assert distance(steps.logits(others, [LENGTH])[:, -1], steps.logits(batch, [LENGTH])[:, -1]) == 0


@pytest.mark.parametrize("form", [Form.MODEL_ALL, Form.MODEL_LINEAR])
@pytest.mark.parametrize("fault", ["positions for slots", "one slot too many", "one slot too few"])
def test_a_wrong_mask_is_seen(folder: ModelFolder, batch: Tokens, form: Form, fault: str, tmp_path: Path) -> None:
    right = Steps(folder.graph(form, twin=True)).logits(batch, [LENGTH])[:, -1]
    wrong = _with_fault(folder, form, fault)
    try:
        assert distance(Steps(wrong).logits(batch, [LENGTH])[:, -1], right) > 100 * TOLERANCE
    finally:
        wrong.unlink()


def _with_fault(folder: ModelFolder, form: Form, fault: str) -> Path:
    """Write a twin whose mask lets queries see other slots than it should."""
    model = onnx.load(str(folder.graph(form, twin=True)), load_external_data=False)
    nodes = {node.name: node for node in model.graph.node}
    compare = nodes["attention_mask.slots/LessOrEqual"]
    position = list(model.graph.node).index(compare)
    if fault == "positions for slots":
        axes = onnx.numpy_helper.from_array(np.array([1, 3]), "fault.axes")
        made = onnx.helper.make_node("Unsqueeze", ["position_ids", "fault.axes"], ["fault"])
    else:
        # The own slot is always seen, so that one slot too few shows two slots back.
        axes = onnx.numpy_helper.from_array(np.array(1 if "many" in fault else -2), "fault.axes")
        made = onnx.helper.make_node("Add", [compare.input[1], "fault.axes"], ["fault"])
    model.graph.initializer.append(axes)
    compare.input[1] = "fault"
    model.graph.node.insert(position, made)
    path = folder.onnx / "fault.onnx"
    path.write_bytes(model.SerializeToString())
    return path


def test_a_second_run_changes_no_byte_and_another_capacity_does(tmp_path: Path) -> None:
    folder = write_raw_folder(tmp_path / "hand")
    assert not fuse(folder.root, 128).up_to_date
    before = {path: path.stat().st_mtime_ns for path in folder.root.rglob("*")}
    assert fuse(folder.root, 128).up_to_date
    assert before == {path: path.stat().st_mtime_ns for path in folder.root.rglob("*")}
    assert not fuse(folder.root, 64).up_to_date
    facts = folder.surgery_manifest().facts
    assert facts["capacity"] == 64
    assert facts["graphs"]["model_linear.onnx"]["operators"]["TensorScatter"] == 6


def test_a_changed_graph_is_made_again(tmp_path: Path) -> None:
    folder = write_raw_folder(tmp_path / "hand")
    made = fuse(folder.root, 128).manifest
    path = folder.graph(Form.MODEL)
    path.write_bytes(path.read_bytes()[:-1] + b"\0")
    assert not fuse(folder.root, 128).up_to_date
    assert folder.surgery_manifest().outputs == made.outputs


def test_an_export_that_was_replaced_is_refused_with_everything_else_that_is_wrong(tmp_path: Path) -> None:
    folder = write_raw_folder(tmp_path / "hand")
    path = folder.graph(Form.EXPORT)
    model = onnx.load(str(path), load_external_data=False)
    model.graph.initializer[0].external_data[0].value = "../elsewhere.bin"
    path.write_bytes(model.SerializeToString())
    with pytest.raises(StageError) as refusal:
        fuse(folder.root, 128)
    text = str(refusal.value)
    assert "export.onnx is not the file that was made" in text
    assert "leaves the graph's folder" in text
    assert not list(folder.onnx.glob("model*.onnx"))


def test_no_weight_is_opened(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = write_raw_folder(tmp_path / "hand")
    data = folder.onnx / "model.onnx_data"
    folder.digests().of(data)
    opened = []
    opening = Path.open

    def open_and_note(path: Path, *arguments: object, **options: object) -> object:
        opened.append(path.name)
        return opening(path, *arguments, **options)  # type: ignore[call-overload]

    monkeypatch.setattr(Path, "open", open_and_note)
    fuse(folder.root, 128)
    assert data.name not in opened
