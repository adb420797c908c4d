"""Rotations become RotaryEmbedding over the checkpoint's tables, if their angles are those of the positions."""

from pathlib import Path

import numpy as np
import onnx_graphsurgeon as gs
import pytest

from surgery.rotary_embedding import ROTARY_EMBEDDING
from tests.raw_graph import Deviation
from tests.subjects import count, refusal, subject_of


@pytest.mark.parametrize("rotation", ["arithmetic", "split", "ai.onnx"])
def test_two_in_each_rope_layer(tmp_path: Path, rotation: str) -> None:
    subject = subject_of(tmp_path, Deviation(rotation=rotation))  # type: ignore[arg-type]  # a literal
    assert ROTARY_EMBEDDING.run(subject) == 4
    assert count(subject, "RotaryEmbedding") == 4
    assert count(subject, "Cos") == count(subject, "Neg") == 0
    nodes = [node for node in subject.graph.cleanup().nodes if node.op == "RotaryEmbedding"]
    assert all([t.name for t in node.inputs[1:]] == ["rotary.cos", "rotary.sin", "position_ids"] for node in nodes)


def test_angles_of_something_else_are_a_miss(tmp_path: Path) -> None:
    subject = subject_of(tmp_path)
    unsqueeze = next(node for node in subject.graph.nodes if node.name == "rotary/Unsqueeze")
    unsqueeze.inputs[0] = next(t for t in subject.graph.inputs if t.name == "input_ids")
    assert "the angles rotary/Concat should be made of position_ids" in refusal(ROTARY_EMBEDDING, subject)


def test_halves_joined_the_wrong_way_are_a_miss(tmp_path: Path) -> None:
    subject = subject_of(tmp_path)
    joined = next(node for node in subject.graph.nodes if node.name == "model.layers.0.self_attn/q_rotated/Slice")
    joined.inputs[1] = gs.Constant("start", np.array([8]))
    text = refusal(ROTARY_EMBEDDING, subject)
    assert "3 matches; the nearest miss is layer 0's q" in text
    assert "should take a half of 16, not 8 to 8" in text


def test_sine_in_place_of_cosine_is_a_miss(tmp_path: Path) -> None:
    subject = subject_of(tmp_path)
    for node in subject.graph.nodes:
        node.op = {"Cos": "Sin", "Sin": "Cos"}.get(node.op, node.op)
    assert "should be made of" in refusal(ROTARY_EMBEDDING, subject)
