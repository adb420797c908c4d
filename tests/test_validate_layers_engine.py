"""Up to the runner an engine's subject does what the CPU's does: the same tensors, types, feeds and findings."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import onnx
import pytest

from artifacts import names
from artifacts.contract import Form
from artifacts.layout import ModelFolder
from tests.hand_model import write_hand_model
from tests.planted_faults import Editor
from tests.stand_in_runner import stand_in
from validate.layers.anatomy import narrow, parts
from validate.layers.calls import Row, calls
from validate.layers.compare import Graphs, judge_graphs, run_reference
from validate.layers.comparison import Comparison
from validate.layers.engine import EngineSubject
from validate.layers.findings import LayerFindings, TensorFinding
from validate.layers.record import Record
from validate.network import LABEL

ENGINE = "TensorRT engine"
PLAN = (
    Row("one row", ((5,), (2,)), ("prefill of 5", "chunk of 2 after 5")),
    Row("two rows", ((4, 2),), ("left-padded batch of 2: prefill",)),
)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> ModelFolder:
    return write_hand_model(tmp_path_factory.mktemp("engine") / "hand")


@pytest.fixture(scope="module")
def comparison(folder: ModelFolder) -> Comparison:
    config = folder.config()
    known = Comparison(config, parts(config), calls(config, PLAN), Record(folder.root / "reference"))
    run_reference(known, folder.graph(Form.EXPORT, twin=True))
    return known


def both(
    comparison: Comparison, graphs: Graphs, work: Path, monkeypatch: pytest.MonkeyPatch
) -> tuple[LayerFindings, LayerFindings]:
    """Judge graphs by the network on the CPU, and by engines in its place."""
    monkeypatch.setattr("validate.layers.engine.find_gpus", list)
    on_cpu = judge_graphs(comparison, graphs, Record(work / "cpu"))
    stand_in(monkeypatch)
    return on_cpu, judge_graphs(comparison, graphs, Record(work / "engine"))


def relabelled(rows: Sequence[TensorFinding]) -> list[TensorFinding]:
    return [replace(row, subject=row.subject.replace(LABEL, ENGINE)) for row in rows]


SLOW_ASKED = [pytest.param(asked, marks=pytest.mark.slow) for asked in ("1", "model.layers.1.self_attn.attention")]


@pytest.mark.parametrize("asked", ["named", *SLOW_ASKED])
def test_an_engine_is_judged_as_the_network_is(
    folder: ModelFolder, comparison: Comparison, asked: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of one layer, too, every block is computed again from its own inputs: they are marked with it."""
    narrowed = replace(comparison, parts=narrow(comparison.parts, asked))
    on_cpu, engine = both(narrowed, Graphs.of(folder), tmp_path, monkeypatch)
    assert engine.reasons == []
    assert {row.name for row in engine.tensors if row.instrument == "precision"} == set(narrowed.by_name)
    assert list(engine.tensors) == relabelled(on_cpu.tensors)
    assert [replace(word, subject="") for word in engine.last_word] == [
        replace(word, subject="") for word in on_cpu.last_word
    ]
    if names.MASK in narrowed.by_name:
        assert Record(tmp_path / "engine").read(narrowed.calls[0], names.MASK).dtype == np.bool_


def test_a_tensor_that_the_network_lacks_is_a_finding_and_a_strange_one_too(
    folder: ModelFolder, comparison: Comparison, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    graph = onnx.load(str(folder.graph(Form.MODEL)), load_external_data=False)
    gate, rotated = "model.layers.2.mlp.gate_proj", "model.layers.1.self_attn.q_rotary"
    Editor(graph, comparison.config).rename({gate: "nobody", "model.layers.1.self_attn.q_proj/Transpose": rotated})
    path = folder.onnx / "renamed.onnx"
    path.write_bytes(graph.SerializeToString())
    graphs = replace(Graphs.of(folder), network=path)
    on_cpu, engine = both(comparison, graphs, tmp_path, monkeypatch)
    assert f"{ENGINE}: renamed: {gate} is missing" in engine.reasons
    assert f"{ENGINE}: renamed: {rotated} is there, but config.json says that layer 1 does not rotate" in engine.reasons
    assert list(engine.tensors) == relabelled(on_cpu.tensors)


def test_a_runner_that_is_fed_another_type_would_be_seen(
    folder: ModelFolder, comparison: Comparison, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Polygraphy's own check, in the stand-in as in `TrtRunner`: the cache of the BF16 graph is BF16."""
    stand_in(monkeypatch)
    from polygraphy.exception import PolygraphyException

    call = comparison.calls[0]
    feeds = {**call.feeds, **comparison.reference.past(call, comparison.config)}
    with EngineSubject(folder.graph(Form.MODEL), comparison) as subject:
        with pytest.raises(PolygraphyException, match="unexpected dtype"):
            subject._runner.infer(feeds, copy_outputs_to_host=True)
        told = dict[str, np.dtype[np.generic]]()
        subject.stream(feeds, [names.MASK, names.EMBEDDING], lambda name, array: told.update({name: array.dtype}))
    assert told == {names.MASK: np.dtype(bool), names.EMBEDDING: np.dtype(np.float32)}
