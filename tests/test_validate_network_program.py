"""A program reads the network once, holds weights once, frees what is used up, and computes any tensor by name."""

from __future__ import annotations

import gc
import weakref
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
import torch

from artifacts.contract import Form
from artifacts.errors import StageError
from artifacts.layout import ModelFolder
from tests.fused_graph import write_model_folder
from tests.one_operator import model, node, program
from validate.network import Program, load_program

X = torch.linspace(-1, 1, 6).reshape(2, 3)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> ModelFolder:
    return write_model_folder(tmp_path_factory.mktemp("out") / "by-hand")


@pytest.fixture(scope="module")
def fused(folder: ModelFolder) -> Program:
    return load_program(folder.graph(Form.MODEL))


def chain(folder: Path) -> Program:
    """Relu, then Sigmoid, then Exp, of x."""
    steps = [node("Relu", "x", "a"), node("Sigmoid", "a", "b"), node("Exp", "b")]
    return program(folder, model(steps, {"x": X.numpy()}))


def step_feeds(program: Program, batch: int = 2, new: int = 3, past: int = 5) -> dict[str, torch.Tensor]:
    """Make feeds for a step of the fused graph, positions beyond 256."""
    sizes = {"batch": batch, "sequence": new, "past_sequence": past, "total_sequence": past + new}
    generator = torch.Generator().manual_seed(0)
    feeds = {}
    for name, facts in program.inputs.items():
        shape = [sizes[axis] if isinstance(axis, str) else axis for axis in facts.axes]
        if facts.dtype == "BF16":
            feeds[name] = torch.randn(shape, generator=generator).bfloat16()
        else:
            feeds[name] = torch.randint(1, 200, shape, generator=generator)
    feeds["attention_mask"] = torch.ones(batch, past + new, dtype=torch.int64)
    feeds["position_ids"] = torch.arange(300, 300 + new).expand(batch, new)
    return feeds


def test_any_tensor_can_be_asked_for_by_name(tmp_path: Path) -> None:
    made = chain(tmp_path)
    assert made.tensors == ("a", "b", "y")
    found = made.run({"x": X}, ["b", "x"])
    assert torch.equal(found["b"], torch.sigmoid(torch.relu(X)))
    assert found["x"] is X
    assert made.layer_of("b").kind == "ACTIVATION"


def test_any_tensor_can_be_fed_and_only_what_lies_between_is_computed(tmp_path: Path) -> None:
    made = chain(tmp_path)
    assert torch.equal(made.run({"b": X})["y"], torch.exp(X))
    told: list[str] = []
    made.stream({"a": X}, made.tensors, lambda name, value: told.append(name))
    assert told == ["a", "b", "y"]


def test_a_block_from_its_own_inputs_is_the_same_as_within_the_whole(fused: Program) -> None:
    """The feed-forward part of layer 1: from the residual stream and the norm before it."""
    inside = ["model.layers.1.residual", "model.layers.1.post_attention_layernorm", "model.layers.1"]
    whole = fused.run(step_feeds(fused), inside)
    alone = fused.run({name: whole[name] for name in inside[:2]}, inside[2:])
    assert torch.equal(alone[inside[2]], whole[inside[2]])


def test_every_tensor_can_be_streamed_and_none_is_kept(fused: Program) -> None:
    """When a tensor is made, only those that a later layer still reads are alive: here never more than 12 of them."""
    alive: dict[str, weakref.ref[torch.Tensor]] = {}
    most = 0

    def observe(name: str, value: torch.Tensor) -> None:
        nonlocal most
        gc.collect(0)
        alive[name] = weakref.ref(value)
        most = max(most, sum(reference() is not None for reference in alive.values()))

    fused.stream(step_feeds(fused), fused.tensors, observe)
    assert len(alive) == len(fused.tensors) > 80
    assert most <= 12
    assert not any(reference() is not None for reference in alive.values())


def test_a_weight_is_held_once_and_mapped(fused: Program, folder: ModelFolder) -> None:
    """The tied head is a view of the embedding, and both are views of the mapped data file."""
    weights = [value for value in fused._constants.values() if value.dtype is torch.bfloat16 and value.numel() > 1]
    size = (folder.onnx / "model.onnx_data").stat().st_size
    held = sum({value.data_ptr(): value.numel() * 2 for value in weights}.values())
    assert held <= size
    assert sum(256 in value.shape for value in weights) == 2  # (V, hidden) and (1, hidden, V)
    assert len({value.data_ptr() for value in weights if 256 in value.shape}) == 1


def test_what_depends_on_constants_only_is_computed_once(tmp_path: Path) -> None:
    """A twin's Cast of a weight leaves one FP32 copy and no step."""
    import ml_dtypes

    weight = np.ones((3, 4), ml_dtypes.bfloat16)
    steps = [node("Cast", "w", "wide", to=onnx.TensorProto.FLOAT), node("MatMul", "x wide")]
    made = program(tmp_path, model(steps, {"x": X.numpy()}, {"w": weight}))
    assert made.tensors == ("y",)
    assert [value.dtype for value in made._constants.values()] == [torch.float32]


def test_a_product_with_one_hands_its_tensor_on(tmp_path: Path) -> None:
    """The same bits, no copy; any other factor, or one that makes the tensor larger, is multiplied by."""
    graph = [node("Mul", "x one", "a"), node("Mul", "x two", "b"), node("Mul", "x ones", "c")]
    sizes = {"one": (1.0, (1, 1)), "two": (2.0, (1, 1)), "ones": (1.0, (4, 1, 1))}
    constants = {name: np.full(shape, value, np.float32) for name, (value, shape) in sizes.items()}
    found = program(tmp_path, model(graph, {"x": X.numpy()}, constants)).run({"x": X})
    assert found["a"] is X
    assert torch.equal(found["b"], X * 2)
    assert torch.equal(found["c"], X.expand(4, 2, 3))


def test_a_run_neither_reads_the_network_nor_the_file(tmp_path: Path) -> None:
    made = chain(tmp_path)
    (tmp_path / "one.onnx").unlink()
    assert not any("tensorrt" in type(value).__module__ for value in vars(made.network).values())
    assert torch.equal(made.run({"x": X})["y"], torch.exp(torch.sigmoid(torch.relu(X))))


def test_feeds_that_do_not_fit_are_refused_all_at_once(fused: Program) -> None:
    feeds: dict[str, Any] = step_feeds(fused)
    feeds["input_ids"] = feeds["input_ids"].int()
    feeds["attention_mask"] = feeds["attention_mask"][:1]
    feeds["past_key_values.1.key"] = feeds["past_key_values.1.key"][..., :7]
    del feeds["past_key_values.0.value"]
    with pytest.raises(StageError) as caught:
        fused.run(feeds)
    text = str(caught.value)
    for words in (
        "past_key_values.0.value is not fed",
        "input_ids cannot be fed",
        "attention_mask has another batch",
        "past_key_values.1.key cannot be fed",
    ):
        assert words in text, text


def test_a_constant_is_given_but_not_taken(tmp_path: Path) -> None:
    """One that was computed when the program was made, too; the message names it."""
    steps = [node("Abs", "w", "folded"), node("Mul", "x folded")]
    made = program(tmp_path, model(steps, {"x": X.numpy()}, {"w": X.numpy()}))
    assert torch.equal(made.run({"x": X}, ["folded"])["folded"], X.abs())
    with pytest.raises(StageError, match=r"(?s)'folded' cannot be fed.*a constant"):
        made.run({"x": X, "folded": X})


def test_names_that_the_network_does_not_have_are_refused_all_at_once(tmp_path: Path) -> None:
    with pytest.raises(StageError, match=r"(?s)'nobody'.*'nothing'"):
        chain(tmp_path).run({"x": X, "nobody": X}, ["nothing"])
