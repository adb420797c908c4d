"""Nothing passes by not being compared: names, shapes, NaN and nothing at all are each a no."""

import numpy as np
import pytest

from artifacts.contract import LOGITS
from runtime.session import Feeds
from validate.comparison import TOLERANCE, Tally, difference, whose
from validate.findings import SHOWN, Check, abridged

GOOD = {LOGITS: np.array([[1.0, -4.0]], np.float32), "present.0.key": np.array([2.0, 0.5], np.float32)}


def tally(actual: Feeds, expected: Feeds = GOOD) -> Tally:
    found = Tally()
    found.compare("call 1", actual, expected)
    return found


def test_equal_arrays_are_counted_and_pass() -> None:
    found = tally(GOOD)
    assert found.finish() == []
    assert (found.tensors, found.elements, found.logits) == (2, 4, 2)


def test_the_measure_is_the_largest_magnitude_of_the_tensor() -> None:
    found = difference("x", np.array([1.0, 8.4]), np.array([1.2, 8.0]))
    assert found.largest == pytest.approx(0.4)
    assert found.relative == pytest.approx(0.05)
    assert difference("x", np.ones(2), np.zeros(2)).relative == float("inf")


@pytest.mark.parametrize("factor", [1 - 3 * TOLERANCE, 1 + 3 * TOLERANCE])
def test_a_difference_above_the_tolerance_is_a_no(factor: float) -> None:
    assert len(tally({**GOOD, LOGITS: GOOD[LOGITS] * np.float32(factor)}).finish()) == 1
    assert tally({**GOOD, LOGITS: GOOD[LOGITS] * np.float32(1 + TOLERANCE / 3)}).finish() == []


def test_a_missing_and_an_extra_name_are_each_a_no() -> None:
    renamed = {LOGITS: GOOD[LOGITS], "present.0.keys": GOOD["present.0.key"]}
    assert tally(renamed).problems == [
        "call 1: present.0.key is missing",
        "call 1: present.0.keys was not expected",
    ]


def test_another_shape_is_a_no_even_if_it_broadcasts() -> None:
    assert "has shape (2,), expected (1, 2)" in tally({**GOOD, LOGITS: GOOD[LOGITS][0]}).problems[0]


@pytest.mark.parametrize("strange", [np.nan, np.inf])
def test_values_that_are_not_finite_are_a_no_on_both_sides(strange: float) -> None:
    broken = {**GOOD, LOGITS: np.array([[1.0, strange]], np.float32)}
    for actual, expected in ((broken, GOOD), (GOOD, broken), (broken, broken)):
        assert "not finite" in tally(actual, expected).finish()[0]
    unjudged = Tally(None)
    unjudged.compare("call 1", broken, broken)
    assert unjudged.finish()


def test_nothing_compared_is_a_no() -> None:
    assert Tally().finish() == ["no logits compared", "no cache compared"]
    empty = {LOGITS: np.zeros((0, 2), np.float32), "present.0.key": np.zeros(0, np.float32)}
    assert len(tally(empty, empty).finish()) == 4
    assert Check.of("nothing", Tally()).problems


def test_blocks_find_what_lies_in_the_last_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("validate.comparison._BLOCK", 4)
    actual, expected = np.zeros((3, 3)), np.ones((3, 3))
    actual[:, :] = 1
    actual[2, 2] = 3
    found = difference("x", actual, expected)
    assert (found.largest, found.squares, found.elements) == (2, 4, 9)


def test_the_owner_of_a_tensor_is_found() -> None:
    expected = {"a": np.arange(3.0), "b": np.arange(3.0) * -1, "c": np.arange(4.0)}
    assert whose("b", np.arange(3.0), expected, TOLERANCE) == "a"
    assert whose("b", np.full(3, 9.0), expected, TOLERANCE) == ""


def test_many_problems_are_abridged_and_counted() -> None:
    short = abridged([str(n) for n in range(SHOWN + 5)])
    assert len(short) == SHOWN + 1
    assert short[-1] == "and 5 more of the kind"
