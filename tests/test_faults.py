"""Every planted fault makes the comparison say no, name the right tensor and say what it means; docs/faults.md agrees.

The model: 3 layers, head_dim 32, sharp random weights, NoPE in the middle. A right graph passes by a wide margin
(docs/layers.md has the numbers), so what is refused is refused for its fault.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from itertools import takewhile
from pathlib import Path

import numpy as np
import onnx
import pytest

from artifacts.config import ModelConfig
from artifacts.contract import Form
from artifacts.names import FP32_SUFFIX, ROTARY_COS, ROTARY_SIN
from surgery.tables import rotary_tables
from tests.hand_model import write_hand_model
from tests.planted_faults import FAULTS, TRAINED, Editor, Fault, moved, plant, scores_off
from validate.layers.anatomy import parts
from validate.layers.calls import Row, calls
from validate.layers.compare import BRIEF, Graphs, judge_graphs, run_reference
from validate.layers.comparison import Comparison
from validate.layers.findings import LayerFindings
from validate.layers.record import Record
from validate.network import LABEL

DOCUMENT = Path("docs/faults.md")
QUICK = {
    ("RoPE put back on one NoPE layer", "the pass"),
    ("mask one position too wide", "the pass"),
    ("positions in BF16", "the BF16 graph"),
}
"""Faults that every run plants; the whole list takes two minutes and is marked slow."""
PLAN = (
    Row("one row", ((270,), (5,)), ("prefill of 270", "chunk of 5 after 270")),
    Row("three rows", ((11, 7, 4), (1, 1, 1)), ("left-padded batch of 3: prefill", "left-padded batch of 3: decode")),
)


@dataclass(frozen=True)
class Bookkeeping:
    """A fault of names, shapes or values that no pattern is looked for in.

    Attributes:
        where: the first wrong tensor; nothing where none is wrong.
        words: what its explanation says, if there is one.
        reason: what one of the reasons says.
    """

    name: str
    place: str
    where: str | None = None
    words: str = ""
    reason: str = ""

    @property
    def row(self) -> str:
        """The fault's row in docs/faults.md."""
        said = ", ".join(filter(None, (self.words and f"…{self.words}…", self.reason)))
        where, trained = (f"`{name}`" if name else "none" for name in (self.where, moved(self.where or "", TRAINED)))
        return f"| {self.name} | {self.place} | bookkeeping | {where} | {trained} | {said} |"

    def check(self, found: LayerFindings) -> None:
        """Insist that the comparison said no, named the place, and said what the page quotes."""
        assert not found.verdict
        assert (found.first and found.first.name) == self.where
        if found.first:
            assert found.first.pattern == "bookkeeping"
            assert self.words in found.first.words
        assert any(self.reason in reason for reason in found.reasons)


NAN = Bookkeeping(
    "NaN on both sides",
    "the raw export and the twin",
    "model.layers.1.mlp.down_proj",
    "values not finite, the reference",
)
RENAMED = Bookkeeping(
    "an output renamed",
    "the twin",
    "present.1.key",
    "present.1.key is missing",
    "output cache.1.key is not of the contract",
)
DROPPED = Bookkeeping("an output missing", "the twin", reason="output present.1.key is missing")
EMPTY = Bookkeeping("zero prompts", "the calls", reason="nothing was compared")
SHORTER = Bookkeeping(
    "a reference of another length",
    "the reference",
    "model.embed_tokens",
    "has shape (1, 270, 128), expected (1, 269, 128)",
)
BOOKKEEPING = (NAN, RENAMED, DROPPED, EMPTY, SHORTER)


@dataclass(frozen=True)
class Hand:
    """A hand-made model's folder with a reference that has been run."""

    config: ModelConfig
    graphs: Graphs
    comparison: Comparison
    tables: dict[str, onnx.TensorProto]

    def plant(self, fault: Fault, place: Path) -> Graphs:
        """Write the graphs with a fault beside the right ones; give the graphs to compare."""
        right = [onnx.load(str(path), load_external_data=False) for path in (self.graphs.network, self.graphs.twin)]
        planted = plant(fault, (right[0], right[1]), self.config, self.tables)
        folder = self.graphs.network.parent
        paths = [folder / f"{place.name}{suffix}.onnx" for suffix in ("", "_fp32")]
        for path, model in zip(paths, planted, strict=True):
            path.write_bytes(model.SerializeToString())
        return Graphs(self.graphs.raw_twin, paths[1], paths[0])


@pytest.fixture(scope="module")
def hand(tmp_path_factory: pytest.TempPathFactory) -> Hand:
    """Write the model, fuse it, and run the reference."""
    root = tmp_path_factory.mktemp("faults") / "hand"
    folder = write_hand_model(root)
    config = folder.config()
    comparison = Comparison(config, parts(config), calls(config, PLAN), Record(root / "reference"))
    run_reference(comparison, folder.graph(Form.EXPORT, twin=True))
    known = rotary_tables(folder.export_manifest().facts, config, "")
    tables = {name: known[name + FP32_SUFFIX] for name in (ROTARY_COS, ROTARY_SIN)}
    return Hand(config, Graphs.of(folder), comparison, tables)


def test_the_quick_faults_are_faults_of_the_list() -> None:
    assert sum(map(chosen, FAULTS)) == len(QUICK)


def test_the_page_lists_the_faults_that_are_planted_and_no_others() -> None:
    lines = DOCUMENT.read_text(encoding="utf-8").splitlines()
    head = lines.index(
        "| fault | planted in | seen by | first wrong tensor | in the trained model | the explanation says |"
    )
    rows = list(takewhile(lambda line: line.startswith("|"), lines[head + 2 :]))
    assert rows == [*(fault.row for fault in FAULTS), *(fault.row for fault in BOOKKEEPING)]


def test_the_right_graphs_pass(hand: Hand, tmp_path: Path) -> None:
    found = judge_graphs(hand.comparison, hand.graphs, Record(tmp_path))
    assert found.reasons == []


def test_a_brief_comparison_of_right_graphs_passes_and_says_what_it_left_out(hand: Hand, tmp_path: Path) -> None:
    comparison = replace(hand.comparison, reference=Record(tmp_path / "reference"), brief=True)
    run_reference(comparison, hand.graphs.raw_twin)
    found = judge_graphs(comparison, hand.graphs, Record(tmp_path / "network"))
    assert found.reasons == []
    assert BRIEF in found.notes
    assert {row.subject.partition(":")[0] for row in found.tensors} == {LABEL}
    assert [word.subject for word in found.last_word] == [f"{LABEL}: model"]


@pytest.mark.slow
def test_a_brief_comparison_sees_and_names_a_fault(hand: Hand, tmp_path: Path) -> None:
    fault = next(fault for fault in FAULTS if fault.edit is scores_off)
    found = judge_graphs(replace(hand.comparison, brief=True), hand.plant(fault, tmp_path), Record(tmp_path))
    assert found.first is not None
    assert found.first.name == fault.where


def test_a_fault_as_small_as_noise_is_named_and_no_layer_after_it(hand: Hand, tmp_path: Path) -> None:
    def a_little(model: onnx.ModelProto) -> None:
        editor = Editor(model, hand.config)
        editor.after("model.layers.1.mlp.down_proj", "Mul", editor.constant("fault.little", 1.0005))

    brief = replace(hand.comparison, brief=True)
    found = judge_graphs(brief, plain(hand, tmp_path, a_little), Record(tmp_path))
    wrong = {row.name for row in found.tensors if row.problem}
    assert wrong == {"model.layers.1.mlp.down_proj", "model.norm", "logits"}


def chosen(fault: Fault) -> bool:
    """Whether a fault is among the quick ones: one for each thing that the instruments look at."""
    return (fault.name, fault.place) in QUICK


@pytest.mark.parametrize(
    "fault",
    [pytest.param(fault, marks=() if chosen(fault) else pytest.mark.slow) for fault in FAULTS],
    ids=lambda fault: f"{fault.name}, in {fault.place}",
)
def test_a_fault_is_seen_and_its_place_named(hand: Hand, fault: Fault, tmp_path: Path) -> None:
    found = judge_graphs(hand.comparison, hand.plant(fault, tmp_path), Record(tmp_path))
    assert not found.verdict
    assert found.first is not None
    assert (found.first.name, found.first.instrument) == (fault.where, fault.kind)
    assert fault.says in found.first.words
    assert all(right for _, right in found.first.feeds)


def plain(hand: Hand, tmp_path: Path, edit: Callable[[onnx.ModelProto], None], *, raw: bool = False) -> Graphs:
    """Write the graphs with a twin that is edited; the reference's graph too, if asked for."""
    paths = {}
    for name, path in (("raw_twin", hand.graphs.raw_twin), ("twin", hand.graphs.twin)):
        model = onnx.load(str(path), load_external_data=False)
        if raw or name == "twin":
            edit(model)
        paths[name] = hand.graphs.twin.parent / f"{tmp_path.name}_{name}.onnx"
        paths[name].write_bytes(model.SerializeToString())
    return Graphs(paths["raw_twin"], paths["twin"], hand.graphs.network)


def test_nan_on_both_sides_is_a_no(hand: Hand, tmp_path: Path) -> None:
    def break_it(model: onnx.ModelProto) -> None:
        editor = Editor(model, hand.config)
        editor.after("model.layers.1.mlp.down_proj", "Mul", editor.constant("fault.nan", np.nan))

    graphs = plain(hand, tmp_path, break_it, raw=True)
    comparison = replace(hand.comparison, reference=Record(tmp_path / "reference"))
    run_reference(comparison, graphs.raw_twin)
    NAN.check(judge_graphs(comparison, graphs, Record(tmp_path / "network")))


@pytest.mark.slow
def test_a_renamed_output_is_a_no(hand: Hand, tmp_path: Path) -> None:
    def rename(model: onnx.ModelProto) -> None:
        Editor(model, hand.config).rename({"present.1.key": "cache.1.key"})
        next(value for value in model.graph.output if value.name == "present.1.key").name = "cache.1.key"

    RENAMED.check(judge_graphs(hand.comparison, plain(hand, tmp_path, rename), Record(tmp_path)))


def test_a_missing_output_is_a_no(hand: Hand, tmp_path: Path) -> None:
    def drop(model: onnx.ModelProto) -> None:
        model.graph.output.remove(next(value for value in model.graph.output if value.name == "present.1.key"))

    DROPPED.check(judge_graphs(hand.comparison, plain(hand, tmp_path, drop), Record(tmp_path)))


def test_zero_prompts_are_a_no(hand: Hand, tmp_path: Path) -> None:
    EMPTY.check(judge_graphs(replace(hand.comparison, calls=()), hand.graphs, Record(tmp_path)))


def test_a_reference_of_another_length_is_a_no(hand: Hand, tmp_path: Path) -> None:
    shorter = calls(hand.config, (Row("one row", ((269,),), ("prefill of 270",)),))
    other = replace(hand.comparison, calls=shorter, reference=Record(tmp_path / "reference"))
    run_reference(other, hand.graphs.raw_twin)
    asked = replace(other, calls=hand.comparison.calls[:1])
    SHORTER.check(judge_graphs(asked, hand.graphs, Record(tmp_path / "network")))
