"""Another token is a fault where the logits are apart, and none where they are nearer than the noise."""

import numpy as np

from artifacts.contract import Form
from tests.numpy_session import CONFIG, NumpySession
from validate.greedy import Continuation, first_difference, judge, near_ties, steps

REFERENCE = Continuation([4, 7, 9], [2.0, 0.01, 3.0])


def test_a_continuation_is_what_one_long_call_would_choose() -> None:
    chosen, again = Continuation(), Continuation()
    logits = list(steps(NumpySession(), [3, 1, 2], 6, CONFIG.num_hidden_layers, chosen))
    last = list(steps(NumpySession(), [3, 1, 2, *chosen.tokens[:5]], 1, CONFIG.num_hidden_layers, again))
    assert len(logits) == len(chosen.tokens) == 6
    assert again.tokens == chosen.tokens[5:]
    np.testing.assert_allclose(last[0], logits[5], rtol=1e-4)


def test_a_session_that_lost_an_output_ends_the_continuation() -> None:
    chosen = Continuation()
    list(steps(NumpySession(Form.MODEL, "missing"), [3, 1, 2], 6, CONFIG.num_hidden_layers, chosen))
    assert chosen.tokens == []


def test_the_gap_is_between_the_two_largest_logits() -> None:
    chosen = Continuation()
    assert chosen.choose(np.array([1.0, 5.0, -9.0, 4.5])) == 1
    assert chosen.gaps == [0.5]


def test_equal_tokens_pass() -> None:
    assert judge(Continuation([4, 7, 9], [0, 0, 0]), REFERENCE, 0.0) == []


def test_another_token_is_a_no_unless_the_two_largest_were_nearer_than_the_noise() -> None:
    tie, fault = Continuation([4, 8, 1], []), Continuation([5, 7, 9], [])
    assert judge(tie, REFERENCE, noise=0.02) == []
    assert "step 1: token 8, expected 7" in judge(tie, REFERENCE, noise=0.001)[0]
    assert "step 0" in judge(fault, REFERENCE, noise=0.02)[0]
    assert first_difference(tie, REFERENCE) == 1


def test_too_few_tokens_and_no_reference_are_each_a_no() -> None:
    assert judge(Continuation([4, 7], []), REFERENCE, 0.0)
    assert judge(Continuation(), Continuation(), 0.0)


def test_near_ties_are_listed() -> None:
    assert near_ties(REFERENCE, 0.05) == [1]
    assert near_ties(REFERENCE, 0.0) == []
