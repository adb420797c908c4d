"""A graph keeps the contract in names, types, axes and order, and everything that it does not keep is told at once."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import onnx
import pytest

from artifacts.contract import Form, Signature, signature
from artifacts.graph_signature import signature_problems
from tests.fused_graph import write_model_folder


@pytest.fixture
def kept(tmp_path: Path) -> tuple[onnx.GraphProto, Signature]:
    folder = write_model_folder(tmp_path / "m")
    model = onnx.load(str(folder.graph(Form.MODEL)), load_external_data=False)
    return model.graph, signature(folder.config(), Form.MODEL)


def test_a_graph_that_keeps_it_has_no_problem(kept: tuple[onnx.GraphProto, Signature]) -> None:
    assert list(signature_problems(*kept, "m", "again")) == []


def exchange(graph: onnx.GraphProto) -> None:
    first, second = graph.output[1], graph.output[2]
    first.name, second.name = second.name, first.name


def forget_axis(graph: onnx.GraphProto) -> None:
    graph.input[0].type.tensor_type.shape.dim[1].Clear()


def rename_and_widen(graph: onnx.GraphProto) -> None:
    graph.output[0].name = "logit"
    graph.input[3].type.tensor_type.elem_type = onnx.TensorProto.FLOAT


@pytest.mark.parametrize(
    ("edit", "said"),
    [
        (exchange, ["m: its outputs are in another order"]),
        (forget_axis, ["INT64 (batch, ?)"]),
        (rename_and_widen, ["FLOAT (batch", "m: logits among its outputs", "m: logit among its outputs"]),
    ],
)
def test_what_it_does_not_keep_is_told(
    kept: tuple[onnx.GraphProto, Signature], edit: Callable[[onnx.GraphProto], None], said: list[str]
) -> None:
    graph, contract = kept
    edit(graph)
    problems = list(signature_problems(graph, contract, "m", "again"))
    assert len(problems) == len(said)
    assert all(words in str(problem) for words, problem in zip(said, problems, strict=True))
    assert {problem.remedy for problem in problems} == {"again"}
