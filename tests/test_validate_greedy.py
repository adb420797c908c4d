"""Another token is a fault where the logits are apart, and none where they are nearer than the noise."""

import numpy as np

from tests.numpy_session import CONFIG, NumpySession
from validate.greedy import Continuation, first_difference, judge, near_ties, steps

REFERENCE = Continuation([4, 7, 9], [2.0, 0.01, 3.0])


def test_a_continuation_is_what_one_long_call_would_choose() -> None:
    session = NumpySession()
    chosen = [token for token, _, _ in steps(session, [3, 1, 2], 6, CONFIG.num_hidden_layers)]
    last = [logits for _, _, logits in steps(session, [3, 1, 2, *chosen[:5]], 1, CONFIG.num_hidden_layers)]
    assert len(chosen) == 6
    assert int(np.argmax(last[0])) == chosen[5]


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
