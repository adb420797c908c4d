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
from artifacts.names import ROTARY_COS, ROTARY_SIN
from artifacts.twin import SUFFIX
from surgery.tables import rotary_tables
from tests.planted_faults import EVERYWHERE, FAULTS, INVISIBLE, TRAINED, Fault, moved, plant
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
    tables = {table: known[table + SUFFIX] for table in (ROTARY_COS, ROTARY_SIN)}
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


def test_every_fault_is_planted_but_those_that_cannot_show() -> None:
    assert len(PLANTED) == len(FAULTS) - len(INVISIBLE)
    assert {*EVERYWHERE, *INVISIBLE} <= {fault.name for fault in FAULTS}
