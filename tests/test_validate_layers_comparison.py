"""Nothing is left out of a comparison without a word, and memory does not grow with what is compared."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from artifacts import names
from artifacts.contract import Form
from runtime.session import Array
from surgery import fuse
from tests.numpy_session import CONFIG
from tests.raw_graph import write_raw_folder
from validate.layers import subject as subjects
from validate.layers.anatomy import OTHER, Part, every, made_by_nodes, parts
from validate.layers.calls import Row, calls
from validate.layers.comparison import NO_CALL, Comparison
from validate.layers.examination import Examination
from validate.layers.record import Record
from validate.layers.subject import NetworkSubject, Observer, OnnxRuntimeSubject

NORM, GATE, INNER = (f"model.layers.0.{kind}" for kind in (names.POST_NORM, names.GATE_PROJ, "mlp/Mul"))
PARTS = (
    Part(NORM, 0, names.POST_NORM, ("input_ids",)),
    Part(GATE, 0, names.GATE_PROJ, (NORM,)),
    Part(INNER, 0, OTHER, (GATE,)),
)


@dataclass
class Stand:
    """A subject that makes the same numbers of the same names, whatever it is fed; it stands for a twin, too."""

    names: set[str]
    label: str
    program: Any = field(
        default_factory=lambda: SimpleNamespace(inputs={"input_ids": None}, needs=lambda wanted, fed: {"input_ids"})
    )

    def stream(self, feeds: Mapping[str, Array], wanted: Sequence[str], observe: Observer) -> None:
        for name in wanted:
            random = np.random.default_rng(len(name))
            observe(name, random.standard_normal((*feeds["input_ids"].shape, 4)).astype(np.float32))

    def between(self, feeds: Mapping[str, Array], wanted: Sequence[str]) -> dict[str, Array]:
        found: dict[str, Array] = {}
        self.stream(feeds, wanted, found.__setitem__)
        return found


@pytest.fixture
def comparison(tmp_path: Path) -> Comparison:
    """Three calls on an empty cache, with a reference that has the contract's tensors."""
    fresh = tuple(call for call in calls(CONFIG) if call.after is None)
    known = Comparison(CONFIG, PARTS, fresh, Record(tmp_path / "reference"))
    known.record(stand(NORM, GATE))
    return known


def stand(*known: str, label: str = "stand-in") -> Any:
    return Stand(set(known), label)


def problems(tally: Any) -> dict[str, str]:
    """Give what cannot be compared in any call."""
    return {name: found[NO_CALL].problem for name, found in tally.measures.items() if NO_CALL in found}


def test_a_tensor_that_a_subject_lacks_is_noted_once_however_many_calls(comparison: Comparison, tmp_path: Path) -> None:
    network = Record(tmp_path / "network")
    comparison.record(stand(NORM, GATE), network)
    tally = comparison.precision(stand(NORM, GATE, INNER), network)
    assert tally.absent == [INNER]
    assert len(tally.measures[GATE]) == len(comparison.calls) == 3
    assert comparison.structure(stand(NORM, GATE)).absent == [INNER]


@pytest.mark.parametrize(
    ("shown", "twin", "expected"),
    [
        ((NORM, GATE), (NORM, GATE), {}),
        ((GATE,), (NORM, GATE), {NORM: "is missing", GATE: "cannot be computed again from its own inputs"}),
        ((NORM, GATE), (NORM,), {GATE: f"cannot be computed again in FP32: the twin has no {GATE}"}),
    ],
)
def test_a_block_that_cannot_be_computed_again_is_a_problem(
    comparison: Comparison, tmp_path: Path, shown: tuple[str, ...], twin: tuple[str, ...], expected: dict[str, str]
) -> None:
    network = Record(tmp_path / "network")
    comparison.record(stand(*shown), network)
    found = problems(comparison.precision(stand(*twin), network))
    assert found.keys() == expected.keys()
    assert all(words in found[name] for name, words in expected.items())


def test_a_block_of_no_contract_name_that_cannot_be_computed_again_is_a_note(
    comparison: Comparison, tmp_path: Path
) -> None:
    network = Record(tmp_path / "network")
    comparison.record(stand(NORM, GATE, INNER), network)
    tally = comparison.precision(stand(NORM, GATE), network)
    assert tally.absent == [INNER]
    assert problems(tally) == {}


def test_what_was_asked_for_by_name_is_a_problem_where_it_is_absent(comparison: Comparison, tmp_path: Path) -> None:
    asked = replace(comparison, parts=(*PARTS[:2], replace(PARTS[2], asked=True)))
    asked.structure(stand(NORM, GATE, INNER))  # the first subject lends it to the reference
    assert problems(asked.structure(stand(NORM, GATE))) == {INNER: "is missing"}
    network = Record(tmp_path / "network")
    asked.record(stand(NORM, GATE), network)
    assert problems(asked.precision(stand(NORM, GATE, INNER), network)) == {INNER: "is missing"}


def test_a_subject_of_which_nothing_was_compared_is_a_no_whatever_others_show(
    comparison: Comparison, tmp_path: Path
) -> None:
    """Only what a subject lends the reference is excused: somebody else is compared with it."""
    inner = Examination(replace(comparison, parts=PARTS[2:]))
    inner.structure(stand(INNER))
    assert inner.problems == []
    inner.structure(stand(GATE, label="another"))
    assert inner.problems == ["another, structure: nothing was compared"]
    whole, empty = Examination(comparison), Record(tmp_path / "network")
    whole.structure(stand(NORM, GATE))
    whole.precision(stand(NORM, GATE), empty, "a third")
    assert whole.problems == ["a third, precision: nothing was compared"]
    assert any(row.elements for row in whole.rows)


def test_a_missing_tensor_was_wrong_in_no_call(comparison: Comparison) -> None:
    examination = Examination(comparison)
    examination.structure(stand(NORM))
    assert examination.first is not None
    assert (examination.first.name, examination.first.scenario) == (GATE, "")
    assert (examination.first.pattern, examination.first.where) == (
        "bookkeeping",
        f"layer {examination.first.layer}, in every call",
    )


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> tuple[Comparison, Path]:
    """Every tensor of a model in one call, and its fused twin."""
    root = tmp_path_factory.mktemp("memory") / "hand"
    folder = write_raw_folder(root, num_hidden_layers=3, no_rope_layers=[1, 0, 1])
    fuse(folder.root, 128)
    config, twin = folder.config(), folder.graph(Form.MODEL, twin=True)
    call = calls(config, (Row("one row", ((6,),), ("prefill of 6",)),))
    return Comparison(config, every(parts(config), made_by_nodes(twin)), call, Record(root / "reference")), twin


def most_alive(subject: Any, comparison: Comparison, monkeypatch: pytest.MonkeyPatch) -> tuple[int, int]:
    """Compare a subject with itself; give how many tensors were alive at once at most, and how many were compared."""
    alive: list[weakref.ref[Array]] = []
    most = 0

    def count(self: Comparison, part: Part, call: Any, actual: Array, expected: Array) -> Any:
        nonlocal most
        gc.collect(0)
        alive.extend((weakref.ref(actual), weakref.ref(expected)))
        most = max(most, sum(reference() is not None for reference in alive))
        return compare(self, part, call, actual, expected)

    compare = Comparison.compare
    monkeypatch.setattr(Comparison, "compare", count)
    with subject:
        comparison.record(subject, comparison.reference)
        comparison.structure(subject)
    return most, len(alive) // 2


def test_memory_does_not_grow_with_the_number_of_tensors(
    whole: tuple[Comparison, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    """ONNX Runtime gives a group at once, and TensorRT's network one: each with what was expected of it."""
    comparison, twin = whole
    monkeypatch.setattr(subjects, "GROUP_BYTES", 1)
    for subject in (OnnxRuntimeSubject(twin, comparison.by_name), NetworkSubject(twin)):
        most, compared = most_alive(subject, comparison, monkeypatch)
        assert compared > 60
        assert most <= 3


def test_a_group_that_is_too_large_would_be_seen(
    whole: tuple[Comparison, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    comparison, twin = whole
    most, compared = most_alive(OnnxRuntimeSubject(twin, comparison.by_name), comparison, monkeypatch)
    assert most > compared / 2


@dataclass
class Noisy(Stand):
    """Is off by a little end to end; its blocks are off by a part of that."""

    off: float = 0.0
    blocks: float = 0.0

    def stream(self, feeds: Mapping[str, Array], wanted: Sequence[str], observe: Observer) -> None:
        super().stream(feeds, wanted, lambda name, array: observe(name, array * np.float32(1 + self.off)))

    def between(self, feeds: Mapping[str, Array], wanted: Sequence[str]) -> dict[str, Array]:
        return Stand(self.names, self.label).between(feeds, wanted) | {
            name: array * np.float32(1 + self.blocks)
            for name, array in Stand(self.names, self.label).between(feeds, wanted).items()
        }


@pytest.mark.parametrize(
    ("off", "blocks", "forgiven"),
    [(5e-4, 0.0, True), (5e-4, 5e-5, True), (5e-4, 5e-4, False), (2e-3, 0.0, False), (5e-5, 0.0, False)],
)
def test_only_a_little_noise_of_a_block_that_is_right_is_forgiven(
    comparison: Comparison, off: float, blocks: float, forgiven: bool
) -> None:
    twin: Any = Noisy({NORM, GATE}, "twin", off=off, blocks=blocks)
    tally = comparison.structure(twin)
    carried = comparison.without_noise(twin, tally)
    assert set(carried) == ({NORM, GATE} if forgiven else set())
    worst = max(found.widest for found in tally.measures[GATE].values())
    assert worst == pytest.approx(blocks if forgiven else off, rel=0.01, abs=1e-6)
