"""Measures see a scale under noise, are not led by one large value, and call what cannot be measured by its name."""

from collections.abc import Callable

import numpy as np
import pytest

from artifacts import names
from runtime.session import Array
from validate.layers.anatomy import Part
from validate.layers.limits import STRUCTURE, judge_precision, judge_structure, spelled
from validate.layers.measures import Measure, Scores, combined, measure, steady
from validate.layers.record import rounded

RANDOM = np.random.default_rng(3)
PROJECTION = Part("model.layers.0.self_attn.q_proj", 0, names.Q_PROJ, ())
NORM = Part("model.layers.0.input_layernorm", 0, names.NORM, ())


@pytest.fixture(scope="module")
def right() -> Array:
    return RANDOM.standard_normal((200, 256)).astype(np.float32)


def test_what_is_equal_is_equal(right: Array) -> None:
    found = measure(right, right)
    assert (found.widest, found.slope, found.bias, found.spread, found.rows) == (0, 1, 0, 0, 0)


def test_rounding_to_bf16_is_within_every_limit(right: Array) -> None:
    found = measure(rounded(right), right)
    assert not judge_precision(PROJECTION, found).wrong
    assert 1.4e-3 < found.spread < 1.9e-3
    assert abs(found.slope - 1) < 5e-5


def test_a_scale_of_three_per_mille_is_seen_through_rounding(right: Array) -> None:
    judgement = judge_precision(PROJECTION, measure(rounded(right * np.float32(0.997)), right))
    assert judgement.wrong
    assert judgement.measure == "slope"


def test_one_large_value_does_not_speak_for_all(right: Array) -> None:
    """A channel a thousand times the others, rounded by itself, is no scale: unweighted, the slope would be 1.0039."""
    wanted = right.copy()
    wanted[:, 0] = 1e3
    found = rounded(wanted)
    found[:, 0] *= np.float32(1 + 2**-8)
    assert abs(measure(found, wanted).slope - 1) < 1e-4


def test_rows_that_move_together_are_seen(right: Array) -> None:
    factors = 1 + 8e-4 * RANDOM.standard_normal((200, 1))
    judgement = judge_precision(NORM, measure(rounded((right * factors).astype(np.float32)), right))
    assert judgement.measure == "rows"
    assert judgement.wrong
    assert not judge_precision(NORM, measure(rounded(right), right)).wrong


def normalized(inputs: Array, *, mean: Callable[[Array], Array]) -> tuple[Array, Array]:
    """Give a norm's result, rounded to BF16, and what is right; `mean` is what becomes of the mean square."""
    square = np.square(inputs).mean(axis=1, keepdims=True)
    return rounded(inputs / np.sqrt(mean(square))), inputs / np.sqrt(square)


def test_tokens_that_right_rounding_moves_together_are_left_out(right: Array) -> None:
    """A factor of 2 ± 0.2 % gives every value its own digits back; BF16 statistics are seen in the other tokens."""
    factors = np.where(np.arange(200) < 150, RANDOM.uniform(1.996, 2.004, 200), RANDOM.uniform(1.1, 1.9, 200))
    inputs = rounded((right / (np.sqrt(np.square(right).mean(1)) * factors)[:, None]).astype(np.float32))
    among = steady(inputs, 0.0)
    assert 0.2 < among.mean() < 0.3
    exact, wanted = normalized(inputs, mean=lambda square: square)
    assert judge_precision(NORM, measure(exact, wanted)).measure == "rows"
    assert judge_precision(NORM, measure(exact, wanted)).wrong
    assert not judge_precision(NORM, measure(exact, wanted, among)).wrong
    coarse, _ = normalized(inputs, mean=rounded)
    judgement = judge_precision(NORM, measure(coarse, wanted, among))
    assert judgement.measure == "rows"
    assert judgement.wrong


@pytest.mark.parametrize(
    ("factor", "steadily"), [(1.0, False), (2.0, False), (0.2503, False), (1.02, True), (3.9, True)]
)
def test_a_factor_near_a_power_of_two_is_not_steady(factor: float, steadily: bool) -> None:
    assert steady(np.full((1, 4), 1 / factor), 0.0).tolist() == [steadily]


def test_truncation_instead_of_rounding_is_seen(right: Array) -> None:
    cut = (right.view(np.uint32) & np.uint32(0xFFFF0000)).view(np.float32)
    assert judge_precision(PROJECTION, measure(cut, right)).measure == "slope"


def test_a_bias_is_seen(right: Array) -> None:
    assert judge_precision(PROJECTION, measure(rounded(right) + np.float32(2e-3), right)).measure == "bias"


@pytest.mark.parametrize("side", [0, 1, 2])
def test_nan_is_a_problem_on_either_side_and_on_both(right: Array, side: int) -> None:
    broken = right.copy()
    broken[0, 0] = np.nan
    pair = ((broken, right), (right, broken), (broken, broken))[side]
    assert "not finite" in measure(*pair).problem


def test_other_shapes_and_nothing_are_problems(right: Array) -> None:
    assert "shape" in measure(right[:1], right).problem
    assert measure(right[:0], right[:0]).problem == "has no elements"


def test_a_difference_where_nothing_was_expected_is_infinite() -> None:
    found = measure(np.ones((2, 2), np.float32), np.zeros((2, 2), np.float32))
    assert judge_structure(PROJECTION, found).wrong


def test_measures_of_several_calls_are_put_together(right: Array) -> None:
    halves = [measure(rounded(part), part) for part in (right[:100], right[100:])]
    whole = measure(rounded(right), right)
    both = combined(halves)
    assert both.elements == whole.elements
    assert both.spread == pytest.approx(whole.spread)
    assert both.slope == pytest.approx(whole.slope, abs=1e-6)
    assert combined([Measure(problem="is missing"), whole]).problem == "is missing"


def attend(q: Array, k: Array, v: Array, scale: float) -> Array:
    scores = np.float64(scale) * q @ k.T
    weights = np.exp(scores - scores.max(axis=1, keepdims=True))
    return np.asarray(weights / weights.sum(axis=1, keepdims=True) @ v)


def test_a_scale_of_the_scores_is_found_in_the_result() -> None:
    """3 per mille of the scores change the result by far less than BF16 rounds it."""
    q, k, v = (RANDOM.standard_normal((200, 32)) for _ in range(3))
    wanted = attend(q, k, v, 0.6)
    change = (attend(q, k, v, 0.6 * 1.01) - attend(q, k, v, 0.6 * 0.99)) / 0.02
    for factor in (1.0, 0.997, 1.003):
        found = rounded(attend(q, k, v, 0.6 * factor).astype(np.float32))
        scores = Scores.of(found, wanted, change)
        assert scores.slope == pytest.approx(factor, abs=3e-4)


@pytest.mark.parametrize("seed", range(8))
def test_nearly_flat_attention_is_no_fault_of_its_scores(seed: int) -> None:
    """Transformers' own random weights give this: every probability of a token is rounded the same way."""
    random = np.random.default_rng(seed)
    sums: Scores | None = None
    for tokens in (10, 11, 40):
        q, k, v = (random.standard_normal((tokens, 32)) for _ in range(3))
        scores = 2e-3 * q @ k.T + np.where(np.tri(tokens) > 0, 0, -np.inf)
        wanted, change, rough = np.zeros_like(v), np.zeros_like(v), np.zeros_like(v)
        for factor, into in ((1.0, wanted), (1.01, change)):
            weights = np.exp(factor * scores)
            weights /= weights.sum(axis=1, keepdims=True)
            into[:] = weights @ v
            if factor == 1:
                rough[:] = rounded(weights.astype(np.float32)) @ v
        found = Scores.of(rough.astype(np.float32), wanted, (change - wanted) / 0.01)
        sums = found if sums is None else sums + found
    assert sums is not None
    assert abs(sums.slope - 1) < 6 * sums.noise


def test_scores_that_make_no_difference_are_not_judged() -> None:
    wanted = RANDOM.standard_normal((10, 8))
    scores = Scores.of(wanted * 1.001, wanted, np.zeros_like(wanted))
    assert scores.slope == 1.0
    assert scores.noise == float("inf")


def test_a_limit_is_spelled_as_it_is() -> None:
    """1.2e-2 was written 1e-02, and what is 43 % of it looked like more than half."""
    assert [spelled(limit) for limit in (STRUCTURE, 1.2e-2, 5.5e-4, 0.0)] == ["1e-04", "1.2e-02", "5.5e-04", "0e+00"]
