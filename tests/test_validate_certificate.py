"""The certificate tells RoPE from NoPE by the keys alone, and says so when it cannot."""

from dataclasses import replace

import numpy as np
import pytest

from tests.numpy_session import CONFIG, NumpySession
from validate.certificate import MOVED, STILL, Movement, judge, measure, movements
from validate.scenarios import passages

RIGHT = (Movement(0, 1.5, 0.0), Movement(1, 1e-6, 1e-6), Movement(2, 1.2, 1e-6))


def test_a_right_model_is_certified() -> None:
    found = measure(NumpySession(), passages(CONFIG)["small positions"], CONFIG.num_hidden_layers)
    assert judge(found, CONFIG) == []
    assert [movement.key > MOVED for movement in found] == list(CONFIG.uses_rope)


@pytest.mark.parametrize(
    ("layer", "key", "said"),
    [
        (0, 1e-6, "layer 0 is RoPE"),
        (1, 0.8, "layer 1 is NoPE"),
        (1, (MOVED + STILL) / 2, "layer 1 is NoPE"),
        (0, (MOVED + STILL) / 2, "layer 0 is RoPE"),
        (0, float("inf"), "layer 0 is RoPE"),
        (1, float("nan"), "layer 1 is NoPE"),
        (0, float("nan"), "layer 0 is RoPE"),
    ],
)
def test_a_layer_of_the_other_kind_is_named(layer: int, key: float, said: str) -> None:
    found = [replace(movement, key=key) if movement.layer == layer else movement for movement in RIGHT]
    problems = judge(found, CONFIG)
    assert len(problems) == 1
    assert said in problems[0]


def test_values_must_stay_where_they_are() -> None:
    assert "its values moved" in judge([*RIGHT[:2], replace(RIGHT[2], value=0.1)], CONFIG)[0]


def test_a_layer_that_was_not_looked_at_is_a_no() -> None:
    assert "2 layers were looked at, the model has 3" in judge(RIGHT[:2], CONFIG)[0]
    assert judge((), CONFIG)


def test_missing_and_strange_tensors_count_as_moved_beyond_measure() -> None:
    keys = {"present.0.key": np.array([np.nan, 1.0])}
    assert movements(keys, keys, 1)[0] == Movement(0, float("inf"), float("inf"))
