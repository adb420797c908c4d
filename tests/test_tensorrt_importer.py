"""TensorRT's parser makes of each operator what it made when the table was recorded; a change names the operator."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

from artifacts.config import ModelConfig
from artifacts.contract import Form
from artifacts.layout import ModelFolder
from surgery.inventory import expected_operators
from tests.fused_graph import CONFIG
from tests.importer_cases import CASES, PAGE, RECORD, Case, finding, page_table

TABLE: dict[str, Any] = json.loads(RECORD.read_text(encoding="utf-8"))

# No graph of ours is quantized yet; these are what a quantized one would be made of.
QUANTIZED = {"DequantizeLinear", "QuantizeLinear"}


def differences(each: Case, found: dict[str, Any], recorded: dict[str, Any]) -> str:
    """Say what changed, by operator; nothing where nothing did."""
    if found == recorded:
        return ""
    lines = [f"TensorRT makes something else of {each.name} than it did with {TABLE['backend']}:"]
    lines += [f"  - {line}" for line in _lines(recorded) if line not in _lines(found)]
    lines += [f"  + {line}" for line in _lines(found) if line not in _lines(recorded)]
    return "\n".join([*lines, "  look at docs/importer.md, then: python -m tests.importer_cases"])


def _lines(record: dict[str, Any]) -> list[str]:
    return [f"{key}: {line}" for key, value in record.items() for line in ([value] if key == "refused" else value)]


@pytest.mark.parametrize("each", CASES, ids=lambda each: each.name)
def test_the_importer_makes_what_was_recorded(each: Case, tmp_path: Path) -> None:
    changed = differences(each, finding(each, tmp_path), TABLE["cases"][each.name])
    assert not changed, changed


def test_a_change_of_mind_names_the_operator(tmp_path: Path) -> None:
    """Planted: a table in which `is_causal` was aligned to the lower right."""
    each = next(each for each in CASES if each.name == "Attention, is_causal")
    recorded = json.loads(json.dumps(TABLE["cases"][each.name]).replace("UPPER_LEFT", "LOWER_RIGHT"))
    text = differences(each, finding(each, tmp_path), recorded)
    assert "Attention, is_causal" in text
    assert any(line.startswith("  - ") and "LOWER_RIGHT" in line for line in text.splitlines())
    assert any(line.startswith("  + ") and "UPPER_LEFT" in line for line in text.splitlines())


def with_attribute(each: Case, name: str, value: float) -> Case:
    changed = copy.deepcopy(each.nodes)
    assert isinstance(changed, onnx.NodeProto)
    next(attribute for attribute in changed.attribute if attribute.name == name).f = value
    return replace(each, nodes=changed)


def with_keys_for_values(each: Case) -> Case:
    changed = copy.deepcopy(each.nodes)
    assert isinstance(changed, onnx.NodeProto)
    changed.input[1], changed.input[2] = changed.input[2], changed.input[1]
    return replace(each, nodes=changed)


@pytest.mark.parametrize(
    ("name", "changed"),
    [
        ("Attention, scale = 1", lambda each: with_attribute(each, "scale", 0.25)),
        ("Attention, scale = 1", with_keys_for_values),
        ("RMSNormalization", lambda each: with_attribute(each, "epsilon", 1.0)),
        ("Gather, negative index", lambda each: replace(each, constants={"i": np.array([0])})),
    ],
    ids=["scale", "order of inputs", "epsilon", "index"],
)
def test_factors_indices_and_wiring_are_part_of_the_record(
    name: str, changed: Callable[[Case], Case], tmp_path: Path
) -> None:
    """Planted: a graph that differs in a value or in its wiring only."""
    each = next(each for each in CASES if each.name == name)
    assert name in differences(each, finding(changed(each), tmp_path), TABLE["cases"][name])


def test_every_operator_of_our_graphs_is_walked(exported: ModelFolder) -> None:
    """Of the fused graphs by surgery's inventory, of the raw export and its twin by a real one."""
    config = ModelConfig.from_raw(CONFIG)
    ours = {name for form in Form if form is not Form.EXPORT for name in expected_operators(config, form)}
    raw = {name for twin in (False, True) for name in operators(exported.graph(Form.EXPORT, twin=twin))}
    walked = {name for each in CASES for name in each.operators}
    assert {"Softmax", "ReduceMean", "Cos"} <= raw
    assert not (ours | raw | QUANTIZED) - walked


def operators(graph: Path) -> set[str]:
    """Give the operators of a graph."""
    return {node.op_type for node in onnx.load(str(graph), load_external_data=False).graph.node}


def test_the_page_is_the_table() -> None:
    assert set(TABLE["cases"]) == {each.name for each in CASES}
    assert page_table(TABLE) in PAGE.read_text(encoding="utf-8")


def test_the_traps_are_in_the_table() -> None:
    """What the design rests on, spelled out, so that recording the table anew cannot wave it through."""
    cases = TABLE["cases"]
    assert cases["Attention, nonpad_kv_seqlen"]["ignored inputs"] == ["n"]
    assert "causal_kind=UPPER_LEFT" in "".join(cases["Attention, is_causal"]["layers"])
    assert sum("UNARY BF16 op=SQRT" in layer for layer in cases["Attention, scale left out"]["layers"]) == 4
    assert not any("UNARY" in layer for layer in cases["Attention, scale = 1"]["layers"])
    assert "REDUCE FLOAT op=AVG" in "".join(cases["RMSNormalization"]["layers"])
    assert cases["Gather, negative index"]["layers"][-1].startswith("GATHER BF16")
