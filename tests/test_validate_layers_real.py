"""Faults planted in a trained model of 135M parameters with an irregular NoPE list are seen, and their places named.

Slow: needs REAL_CHECKPOINT, the folder of a checkpoint in SmolLM3's format whose config.json has NoPE layers 3, 7, 11,
12, 20 and 29 of 30, and about half an hour. Trained weights are what random ones are not: a few channels are a thousand
times the others, and attention is sharp where it matters.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, replace
from pathlib import Path

import onnx
import pytest

from artifacts.contract import Form
from artifacts.layout import ModelFolder
from artifacts.names import FP32_SUFFIX, ROTARY_COS, ROTARY_SIN
from surgery.tables import rotary_tables
from tests.planted_faults import (
    EVERYWHERE,
    FAULTS,
    INVISIBLE,
    TRAINED,
    Edit,
    Editor,
    Fault,
    moved,
    not_a_number,
    output_dropped,
    output_renamed,
    plant,
)
from validate.layers.anatomy import parts
from validate.layers.calls import Row, calls
from validate.layers.compare import Graphs, judge_graphs, run_reference
from validate.layers.comparison import Comparison
from validate.layers.record import Record

CHECKPOINT = os.environ.get("REAL_CHECKPOINT", "")
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        not CHECKPOINT, reason="needs REAL_CHECKPOINT, a trained checkpoint with an irregular NoPE list"
    ),
]
PLAN = (
    Row("one row", ((270,), (1,)), ("prefill of 270", "decode at position 270")),
    Row("three rows", ((11, 7, 4), (1, 1, 1)), ("left-padded batch of 3: prefill", "left-padded batch of 3: decode")),
)
PLANTED = tuple(fault for fault in FAULTS if fault.trained)


@dataclass(frozen=True)
class Real:
    """A trained model's folder with a reference that has been run."""

    folder: ModelFolder
    comparison: Comparison


@pytest.fixture(scope="module")
def real(tmp_path_factory: pytest.TempPathFactory) -> Real:
    from export import export_onnx
    from export.options import ExportOptions
    from surgery import fuse

    root = tmp_path_factory.mktemp("real")
    folder = export_onnx(ExportOptions(CHECKPOINT, out=root)).folder
    fuse(folder.root, 512)
    config = folder.config()
    comparison = Comparison(config, parts(config), calls(config, PLAN), Record(root / "reference"))
    run_reference(comparison, folder.graph(Form.EXPORT, twin=True))
    return Real(folder, comparison)


def write(real: Real, fault: Fault, name: str) -> Graphs:
    """Write the graphs with a fault beside the right ones; give the graphs to compare."""
    right, config = Graphs.of(real.folder), real.comparison.config
    known = rotary_tables(real.folder.export_manifest().facts, config, "")
    tables = {table: known[table + FP32_SUFFIX] for table in (ROTARY_COS, ROTARY_SIN)}
    network, twin = (onnx.load(str(path), load_external_data=False) for path in (right.network, right.twin))
    planted = plant(fault, (network, twin), config, tables, TRAINED)
    paths = [real.folder.onnx / f"{name}{suffix}.onnx" for suffix in ("", "_fp32")]
    for path, model in zip(paths, planted, strict=True):
        path.write_bytes(model.SerializeToString())
    return replace(right, network=paths[0], twin=paths[1])


def test_the_right_graphs_of_a_trained_model_pass(real: Real, tmp_path: Path) -> None:
    found = judge_graphs(real.comparison, Graphs.of(real.folder), Record(tmp_path))
    assert found.reasons == []


@pytest.mark.parametrize("fault", PLANTED, ids=lambda fault: f"{fault.name}, in {fault.place}")
def test_a_fault_in_a_trained_model_is_seen_and_its_place_named(real: Real, fault: Fault, tmp_path: Path) -> None:
    found = judge_graphs(real.comparison, write(real, fault, tmp_path.name), Record(tmp_path))
    assert not found.verdict
    assert found.first is not None
    assert (found.first.name, found.first.instrument) == (fault.trained, fault.kind)
    assert moved_words(fault.says) in found.first.words


def moved_words(says: str) -> str:
    """Give what the explanation must say of the layers that are meant."""
    return moved(says, TRAINED).replace("layer 2", f"layer {TRAINED[2]}")


def edited(real: Real, path: Path, edit: Edit, name: str) -> Path:
    """Write a graph with an edit beside the others."""
    model = onnx.load(str(path), load_external_data=False)
    edit(Editor(model, real.comparison.config, TRAINED))
    place = path.with_name(f"{name}_{path.name}")
    place.write_bytes(model.SerializeToString())
    return place


def test_nan_on_both_sides_is_a_no(real: Real, tmp_path: Path) -> None:
    right = Graphs.of(real.folder)
    raw, twin = (edited(real, path, not_a_number, tmp_path.name) for path in (right.raw_twin, right.twin))
    comparison = replace(real.comparison, reference=Record(tmp_path / "reference"))
    run_reference(comparison, raw)
    found = judge_graphs(comparison, replace(right, raw_twin=raw, twin=twin), Record(tmp_path / "network"))
    assert found.first is not None
    assert (found.first.name, found.first.pattern) == ("model.layers.3.mlp.down_proj", "bookkeeping")


@pytest.mark.parametrize(
    ("edit", "first", "reason"),
    [
        (output_renamed, "present.3.key", "output cache.3.key is not of the contract"),
        (output_dropped, None, "output present.3.key is missing"),
    ],
)
def test_an_output_that_is_not_there_is_a_no(
    real: Real, tmp_path: Path, edit: Edit, first: str | None, reason: str
) -> None:
    right = Graphs.of(real.folder)
    graphs = replace(right, twin=edited(real, right.twin, edit, tmp_path.name))
    found = judge_graphs(real.comparison, graphs, Record(tmp_path))
    assert (found.first and found.first.name) == first
    assert any(reason in one for one in found.reasons)


def test_zero_prompts_and_a_reference_of_another_length_are_a_no(real: Real, tmp_path: Path) -> None:
    nothing = judge_graphs(replace(real.comparison, calls=()), Graphs.of(real.folder), Record(tmp_path / "nothing"))
    assert any("nothing was compared" in reason for reason in nothing.reasons)
    shorter = calls(real.comparison.config, (Row("one row", ((269,),), ("prefill of 270",)),))
    other = replace(real.comparison, calls=shorter, reference=Record(tmp_path / "reference"))
    run_reference(other, real.folder.graph(Form.EXPORT, twin=True))
    asked = replace(other, calls=real.comparison.calls[:1])
    found = judge_graphs(asked, Graphs.of(real.folder), Record(tmp_path / "network"))
    assert found.first is not None
    assert found.first.name == "model.embed_tokens"


def test_every_fault_is_planted_but_those_that_cannot_show() -> None:
    assert len(PLANTED) == len(FAULTS) - len(INVISIBLE)
    assert {*EVERYWHERE, *INVISIBLE} <= {fault.name for fault in FAULTS}
