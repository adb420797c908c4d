"""The scenarios cover what they promise, and every way to feed a passage adds up to the passage."""

from dataclasses import replace

import numpy as np
import pytest

from artifacts.contract import Form
from tests.numpy_session import CONFIG, NumpySession
from validate.cache import STALE, LinearCache, capacity, empty_cache
from validate.play import lay_out
from validate.scenarios import Scenario, in_one_call, passages, scenarios, too_long

KNOWN = passages(CONFIG)


@pytest.mark.parametrize(
    "scenario", [*scenarios(KNOWN), *in_one_call(KNOWN.values())], ids=lambda scenario: scenario.name
)
def test_calls_add_up_to_the_passages(scenario: Scenario) -> None:
    totals = np.sum(scenario.calls, axis=0)
    assert totals.tolist() == [len(KNOWN[row].tokens) for row in scenario.rows]


def test_what_is_promised_is_there() -> None:
    names = [scenario.name for scenario in scenarios(KNOWN)]
    for place in ("small positions", "across 256", "across 300"):
        assert [name.partition(": ")[2] for name in names if name.startswith(place)] == [
            "one call",
            "5+3+1+1",
            "one by one",
            "9+1",
        ]
    assert KNOWN["across 256"].start < 256
    assert KNOWN["across 256"].end > 258
    assert KNOWN["across 300"].start < 300 < KNOWN["across 300"].end
    assert KNOWN["last positions"].end == CONFIG.max_positions
    assert any(call == (301,) for scenario in scenarios(KNOWN) for call in scenario.calls)
    assert len(names) == len(set(names)) == 17


def test_the_cost_is_the_one_that_the_documentation_counts() -> None:
    """docs/validate.md predicts the full-size time from these."""
    asked = scenarios(KNOWN)
    assert sum(len(scenario.calls) for scenario in asked) == 66
    assert sum(len(call) * max(call) for scenario in asked for call in scenario.calls) == 800


def test_a_model_of_few_positions_has_fewer_passages() -> None:
    small = passages(replace(CONFIG, max_position_embeddings=128))
    assert set(small) == {"small positions", "last positions", "row of 7", "row of 4"}
    assert len(scenarios(small)) == 4 + 1 + 2
    assert [line.partition(":")[0] for line in too_long(replace(CONFIG, max_position_embeddings=128))] == [
        "across 256",
        "across 300",
        "long prompt",
    ]
    assert not too_long(CONFIG)


def test_passages_are_the_same_every_time() -> None:
    assert passages(CONFIG) == KNOWN


def test_padding_stands_on_its_side() -> None:
    assert lay_out((3, 1), [0, 4], "left").tolist() == [[0, 1, 2], [-1, -1, 4]]
    assert lay_out((3, 1), [0, 4], "right").tolist() == [[0, 1, 2], [4, -1, -1]]


def test_a_linear_cache_writes_every_row_at_its_own_fill() -> None:
    session = NumpySession(Form.MODEL_LINEAR, capacity=6)
    cache = empty_cache(session, CONFIG.num_hidden_layers, 2)
    assert isinstance(cache, LinearCache)
    assert capacity(session) == 6
    first = cache.feeds(lay_out((3, 1), [0, 0], "right"))
    assert first["write_indices"].tolist() == [0, 0]
    assert first["attention_mask"].tolist() == [[1, 1, 1, 0, 0, 0], [1, 0, 0, 0, 0, 0]]
    assert (first["past_key_values.0.key"] == STALE).all()
    second = cache.feeds(lay_out((1, 1), [3, 1], "right"))
    assert second["write_indices"].tolist() == [3, 1]
    assert second["attention_mask"].tolist() == [[1, 1, 1, 1, 0, 0], [1, 1, 0, 0, 0, 0]]


def test_a_linear_cache_counts_left_padding_as_filled() -> None:
    cache = empty_cache(NumpySession(Form.MODEL_LINEAR, capacity=6), CONFIG.num_hidden_layers, 2)
    cache.feeds(lay_out((3, 1), [0, 0], "left"))
    assert cache.feeds(lay_out((1, 1), [3, 1], "left"))["write_indices"].tolist() == [3, 3]


def test_a_concatenated_cache_grows_by_the_same_for_every_row() -> None:
    cache = empty_cache(NumpySession(), CONFIG.num_hidden_layers, 2)
    assert cache.feeds(lay_out((3, 1), [0, 0], "left"))["attention_mask"].tolist() == [[1, 1, 1], [0, 0, 1]]
    assert cache.occupants.tolist() == [[0, 1, 2], [-1, -1, 0]]
