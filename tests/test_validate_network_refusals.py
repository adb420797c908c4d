"""What the evaluation does not know, it refuses by name; nothing is skipped or approximated."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from onnx import TensorProto

from artifacts.errors import StageError
from tests.one_operator import evaluate, model, node, packed, program
from validate.network import elementwise, kinds, reading, transformer
from validate.network.layers import Layer, Network, TensorFacts
from validate.network.order import ordered

X = np.ones((2, 3), np.float32)
TABLE = np.ones((4, 8), np.float32)
FP4 = {"q": packed("q", TensorProto.FLOAT4E2M1, (16, 3), bytes(24)), "s": np.ones((1, 3), np.float32)}


def i64(*values: int) -> Any:
    return np.array(values, np.int64)


@pytest.mark.parametrize(
    ("nodes", "constants", "words"),
    [
        (node("TopK", "x k", "y z"), {"k": i64(1)}, ("the TopK", "TOPK", "one of ACTIVATION")),
        (node("Selu", "x"), {}, ("the Selu", "ACTIVATION", "type = 'SELU'")),
        (node("Atan", "x"), {}, ("the Atan", "UNARY", "op = 'ATAN'")),
        (node("ReduceProd", "x a"), {"a": i64(1)}, ("the ReduceProd", "REDUCE", "op = 'PROD'")),
        (node("RandomUniformLike", "x"), {}, ("FILL", "operation = 'RANDOM_UNIFORM'")),
        (
            [node("DequantizeLinear", "q s", "w", axis=0, block_size=16), node("Add", "x w")],
            FP4,
            ("'q'", "CONSTANT", "FP4"),
        ),
    ],
    ids=["kind", "activation", "unary", "reduction", "fill", "type"],
)
def test_an_unknown_kind_or_attribute_names_layer_kind_and_value(
    tmp_path: Path, nodes: Any, constants: Any, words: tuple[str, ...]
) -> None:
    with pytest.raises(StageError) as caught:
        program(tmp_path, model(nodes, {"x": X}, constants))
    assert all(word in str(caught.value) for word in words), str(caught.value)


@pytest.mark.parametrize("library", ["tensorrt", "tensorrt_rtx"])
def test_the_table_names_every_attribute_that_either_tensorrt_has(library: str) -> None:
    """Both are held against the list of their names; a method sets or asks for something and changes no result."""
    api = json.loads((Path(__file__).parent / "data" / "tensorrt_api.json").read_text())
    aside = {*api["both"]["ILayer"], "set_input", "get_input", "get_output", "is_alpha_beta_int64"}
    known = {kind.class_name: kind.attributes for kind in kinds.KINDS.values()}
    for owner, attributes in {**known, "IAttention": kinds.ATTENTION_ATTRIBUTES}.items():
        members = {*api["both"].get(owner, ()), *api[library].get(owner, ())}
        assert members - aside == set(attributes) - aside, owner


def test_an_attribute_that_a_new_tensorrt_brings_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Planted by forgetting one that exists: the table no longer names `beta`."""
    known = kinds.KINDS["ACTIVATION"]
    monkeypatch.setattr(reading, "KINDS", {**kinds.KINDS, "ACTIVATION": replace(known, attributes=("type", "alpha"))})
    with pytest.raises(StageError, match=r"(?s)the Relu.*ACTIVATION.*new attributes \['beta'\]"):
        program(tmp_path, model(node("Relu", "x"), {"x": X}))


def test_a_layer_that_works_across_devices_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Spread:
        """A layer object that says it runs on two devices."""

        type = type("Kind", (), {"name": "SHAPE"})
        num_inputs = num_outputs = 0
        name, metadata, num_ranks = "across", "", 2

    with pytest.raises(StageError, match=r"(?s)across.*num_ranks = 2"):
        reading._Reader(None, Spread()).record({})


def test_what_the_parser_refuses_is_told_with_its_reason(tmp_path: Path) -> None:
    q = np.ones((1, 2, 3, 8), np.float32)
    with pytest.raises(StageError, match=r"(?s)the Attention.*softcap"):
        program(tmp_path, model(node("Attention", "q q q", softcap=2.0), {"q": q}))


@pytest.mark.parametrize(
    ("nodes", "feeds", "constants", "words"),
    [
        (node("Gather", "x i", axis=1), {"x": X, "i": i64(-1)}, {}, "none negative, since the axis is dynamic"),
        (node("Gather", "t i"), {"i": i64(4)}, {"t": TABLE}, "indices from 4 to 4 on axis 0"),
        (
            node("RotaryEmbedding", "q c s p"),
            {"q": np.ones((1, 2, 1, 16), np.float32), "p": i64(4).reshape(1, 1)},
            {"c": TABLE, "s": TABLE},
            "positions from 4 to 4",
        ),
        (
            node("TensorScatter", "k u w", axis=2, mode="linear"),
            {"k": np.ones((1, 2, 8, 4), np.float32), "u": np.ones((1, 2, 3, 4), np.float32), "w": i64(6)},
            {},
            "row 0 writes 6 … 8",
        ),
        (node("Reshape", "x s"), {"x": X, "s": i64(4, 5)}, {}, "is invalid for input of size 6"),
    ],
    ids=["negative index", "index past the end", "position past the table", "write past the cache", "torch's error"],
)
def test_a_value_that_a_layer_cannot_work_on_is_refused(
    tmp_path: Path, nodes: Any, feeds: Any, constants: Any, words: str
) -> None:
    with pytest.raises(StageError) as caught:
        evaluate(tmp_path, model(nodes, feeds, constants, "q k u w s p"), feeds)
    assert words in str(caught.value)
    assert repr(nodes.name) in str(caught.value)


def test_a_mask_that_lets_a_row_see_nothing_gives_nan(tmp_path: Path) -> None:
    """So the formula has it; a graph of ours always lets a query see its own slot."""
    q = np.ones((1, 1, 2, 8), np.float32)
    feeds = {"q": q, "m": np.array([[True, False], [False, False]])}
    found = evaluate(tmp_path, model(node("Attention", "q q q m"), feeds, None, "q m"), feeds)["y"]
    assert found[0, 0].isnan().any(1).tolist() == [False, True]


def test_an_assertion_that_does_not_hold_is_refused_with_its_message() -> None:
    """The parser makes none of our graphs' operators into one, so it is made by hand."""
    insist = elementwise.assertion(Layer("the assertion", "ASSERTION", (), (), {"message": "sizes differ"}))
    insist(torch.tensor([True, True]))
    with pytest.raises(StageError, match=r"(?s)'the assertion'.*sizes differ"):
        insist(torch.tensor([True, False]))


@pytest.mark.parametrize(("attribute", "value"), [("causal_kind", "LOWER_RIGHT"), ("norm_op", "NONE")])
def test_an_attention_that_the_parser_never_makes_is_refused(attribute: str, value: str) -> None:
    known = {**transformer.PLAIN, "causal_kind": "NONE"}
    transformer.attention(Layer("the attention", "ATTENTION", (), (), known))
    with pytest.raises(StageError, match=f"(?s)the attention.*{attribute} = '{value}'"):
        transformer.attention(Layer("the attention", "ATTENTION", (), (), {**known, attribute: value}))


def layer(name: str, inputs: tuple[str, ...], outputs: tuple[str, ...]) -> Layer:
    def facts(names: tuple[str, ...]) -> tuple[TensorFacts, ...]:
        return tuple(TensorFacts(tensor, "FLOAT", ()) for tensor in names)

    return Layer(name, "IDENTITY", facts(inputs), facts(outputs), {})


def network(*layers: Layer) -> Network:
    return Network(Path("by hand"), "none", layers, (TensorFacts("x", "FLOAT", ()),), ())


def test_layers_are_ordered_by_their_tensors() -> None:
    found = ordered(network(layer("late", ("a",), ("b",)), layer("early", ("x",), ("a",)), layer("free", (), ("c",))))
    assert [each.name for each in found] == ["early", "late", "free"]


@pytest.mark.parametrize(
    ("layers", "words"),
    [
        ((layer("first", ("b",), ("a",)), layer("second", ("a",), ("b",))), "has a loop"),
        ((layer("first", ("x",), ("a",)), layer("second", ("x",), ("a",))), "'a' is made twice"),
        ((layer("first", ("nothing",), ("a",)),), r"\['nothing'\] are made by no layer"),
    ],
    ids=["loop", "twice", "never"],
)
def test_a_network_that_cannot_be_ordered_is_refused(layers: tuple[Layer, ...], words: str) -> None:
    with pytest.raises(StageError, match=words):
        ordered(network(*layers))
