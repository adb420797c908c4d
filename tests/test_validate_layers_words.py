"""What is said of a pattern, the last word's ties, and findings that come back from their file as they were."""

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pytest

from artifacts.contract import LOGITS, Form, signature
from runtime.session import Array
from tests.layer_findings import RIGHT, ROW
from tests.numpy_session import CONFIG
from validate.layers.anatomy import LAYER, Part
from validate.layers.calls import calls
from validate.layers.comparison import Comparison
from validate.layers.engine import tensorrt
from validate.layers.evidence import Evidence
from validate.layers.findings import FirstWrong, LayerFindings
from validate.layers.last_word import last_word, record
from validate.layers.record import Record
from validate.layers.subject import NetworkSubject, Run
from validate.layers.words import Case, explain

WRONG = replace(ROW, name="model.layers.1", layer=1, kind=LAYER, problem="model.layers.1: error is off by 2e-04")


def case(evidence: Evidence | None, **changes: object) -> Case:
    part = Part(WRONG.name, 1, LAYER, ("model.layers.1.residual",))
    known = Case(part, WRONG, evidence, frozenset({"a"}), ("a", "b"), frozenset({"b"}), 0.0)
    return replace(known, **changes)  # type: ignore[arg-type]  # fields by name


@pytest.mark.parametrize(
    ("known", "pattern", "words"),
    [
        (case(None), "bookkeeping", "look at names"),
        (case(Evidence(1.0, False), before=0.5), "growing", "which is precision"),
        (case(Evidence(1.0, False, begins=7)), "position", "right up to position 6, wrong from 7"),
        (case(Evidence(1.0, False)), "structure", "weights or config"),
        (case(Evidence(0.5, True)), "slope", "0.5000 times"),
        (case(Evidence(1.0, False), wrong_calls=frozenset({"b"})), "position", "right with an empty cache"),
    ],
)
def test_a_pattern_is_said_in_words(known: Case, pattern: str, words: str) -> None:
    found = explain(known, {}, CONFIG)
    assert found[0] == pattern
    assert words in found[1]


def test_who_is_at_fault_is_said_too() -> None:
    known = case(Evidence(1.0, False))
    assert "the fault is in the graph" in explain(known, {"ONNX Runtime": frozenset({"a"})}, CONFIG)[1]
    assert "ONNX Runtime has it right on the same file" in explain(known, {"ONNX Runtime": frozenset()}, CONFIG)[1]
    assert "wrong in other calls (b)" in explain(known, {"ONNX Runtime": frozenset({"b"})}, CONFIG)[1]


def test_a_parser_is_not_blamed_for_what_onnx_runtime_has_wrong() -> None:
    known = case(Evidence(1.0, False), row=replace(WRONG, subject="ONNX Runtime: model_fp32"))
    words = explain(known, {"TensorRT network, evaluated on the CPU: model_fp32": frozenset()}, CONFIG)[1]
    assert "ONNX Runtime computes it otherwise" in words
    assert "parser" not in words


def test_a_block_that_was_not_computed_again_is_blamed_on_nobody() -> None:
    row = replace(WRONG, instrument="precision", scenario="")
    assert "recomputed" not in explain(case(None, row=row), {}, CONFIG)[1]
    assert "recomputed" in explain(case(None, row=replace(row, scenario="a")), {}, CONFIG)[1]


@dataclass
class Logits:
    """A subject that gives logits and nothing else that counts."""

    values: Array
    label: str = "stand-in"
    missing: str = ""

    @contextmanager
    def unmarked(self) -> Iterator[Run]:
        outputs = {output.name for output in signature(CONFIG, Form.MODEL, twin=True).outputs} - {self.missing}

        def run(feeds: Mapping[str, Array]) -> dict[str, Array]:
            return {name: self.values if name == LOGITS else np.zeros(0) for name in outputs}

        yield run


@pytest.fixture
def comparison(tmp_path: Path) -> Comparison:
    """One call whose reference holds tokens 0 and 1 for equally likely, but for a thousandth."""
    known = Comparison(CONFIG, (), calls(CONFIG)[:1], Record(tmp_path))
    record(known, Logits(logits(0.001)))  # type: ignore[arg-type]  # what is asked of it is there
    return known


def logits(lead: float) -> Array:
    values = np.random.default_rng(5).standard_normal((1, 1, CONFIG.vocab_size)).astype(np.float32)
    values[..., 0], values[..., 1] = 5 + lead, 5
    return values


def test_another_token_is_excused_where_the_reference_has_a_tie(comparison: Comparison) -> None:
    found = last_word(comparison, Logits(logits(-0.001)), twin=False)  # type: ignore[arg-type]  # as above
    assert (found.tokens, found.same, found.ties, found.problem) == (1, 0, 1, "")
    assert found.note == (
        "stand-in: 1 of 1 next tokens are others, only where the reference holds both for nearly as likely: a tie"
    )


def test_another_token_is_a_no_where_there_is_none(comparison: Comparison) -> None:
    other = logits(0.001)
    other[..., 7] = 5.5
    found = last_word(comparison, Logits(other), twin=True)  # type: ignore[arg-type]  # as above
    assert "1 of 1 tokens are others, and no ties" in found.problem
    assert "(1e-04 allowed)" in found.problem
    assert found.note == ""


def test_an_output_that_is_missing_is_a_no(comparison: Comparison) -> None:
    found = last_word(comparison, Logits(logits(0), missing="present.1.key"), twin=True)  # type: ignore[arg-type]
    assert found.problem == "output present.1.key is missing"


def test_findings_come_back_as_they_were() -> None:
    first = FirstWrong(ROW.name, 3, "structure", ROW.subject, "a", (("b", True), ("c", False)), "slope", "words")
    wrong = replace(ROW, error=float("inf"), slope=float("nan"), problem="is missing", elements=0)
    found = replace(RIGHT, tensors=(ROW, replace(wrong, slope=None)), first=first, problems=("p",), notes=("n",))
    raw = json.loads(json.dumps(found.to_json(), allow_nan=False))
    assert raw["verdict"] == "no"
    assert LayerFindings.from_json(raw) == found
    assert found.reasons[0].endswith("words")
    assert RIGHT.verdict


def test_without_a_gpu_the_network_stands_for_the_engine(
    comparison: Comparison, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("validate.layers.engine.find_gpus", list)
    assert isinstance(tensorrt(Path("model.onnx"), comparison), NetworkSubject)
    monkeypatch.setattr("validate.layers.engine.find_gpus", lambda: ["a GPU"])
    assert tensorrt(Path("model.onnx"), comparison).label == "TensorRT engine: model"
