"""Attention fuses without repeats, with the config's scale; whatever it must not be is a miss with a reason."""

from pathlib import Path

import numpy as np
import pytest

from surgery.attention import ATTENTION
from tests.raw_graph import Deviation
from tests.subjects import count, refusal, subject_of


def test_one_in_each_layer_scaled_once_in_fp32(tmp_path: Path) -> None:
    subject = subject_of(tmp_path, before=ATTENTION)
    assert ATTENTION.run(subject) == 3
    assert count(subject, "Attention") == 3
    assert count(subject, "Softmax") == count(subject, "Expand") == 0
    node = next(node for node in subject.graph.nodes if node.op == "Attention")
    assert node.attrs == {"scale": 1.0}
    q, keys, values, mask = node.inputs
    assert (keys.name, values.name) == ("present.0.key", "present.0.value")
    assert mask.name == "fused/mask"
    assert q.inputs[0].op == "Cast"
    scaled = q.inputs[0].inputs[0].inputs[0]
    assert scaled.op == "Mul"
    assert scaled.inputs[1].values == np.float32(16**-0.5)
    assert scaled.inputs[0].inputs[0].op == "Cast"


def test_a_model_without_groups_has_nothing_repeated(tmp_path: Path) -> None:
    assert ATTENTION.run(subject_of(tmp_path, before=ATTENTION, num_key_value_heads=4)) == 3


@pytest.mark.parametrize(
    ("deviation", "reason"),
    [
        (Deviation(repeat_axis=1), "should repeat each head in place (axis 2), not along [1]"),
        (Deviation(scale=0.3), "the scale should be the config's 0.25, not 0.30"),
        (Deviation(softmax_axis=2), "should run over the last axis"),
    ],
)
def test_a_deviation_is_a_miss_with_its_reason(tmp_path: Path, deviation: Deviation, reason: str) -> None:
    text = refusal(ATTENTION, subject_of(tmp_path, deviation, before=ATTENTION))
    assert "3 matches" in text
    assert "0 matches; the nearest miss is layer 0" in text
    assert reason in text


def test_a_mask_that_is_not_made_of_the_attention_mask_is_a_miss(tmp_path: Path) -> None:
    subject = subject_of(tmp_path, before=ATTENTION)
    cast = next(node for node in subject.graph.nodes if node.name == "mask/Cast")
    cast.inputs[0] = next(t for t in subject.graph.inputs if t.name == "position_ids")
    shape = next(node for node in subject.graph.nodes if node.name == "mask/Shape_1")
    shape.inputs[0] = cast.inputs[0]
    assert "the mask model/Where should be made of attention_mask" in refusal(ATTENTION, subject)
