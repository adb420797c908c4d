"""Each limit keeps the tokens that its definition keeps, the same as Transformers' own, and a seed repeats itself."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from runtime.sampling import Logits, Sampler, candidates, logprob, penalized, top_logprobs
from runtime.settings import Sampling

LOGITS: Logits = np.log(np.array([0.5, 0.25, 0.15, 0.07, 0.03], dtype=np.float32))


def kept(**limits: float) -> list[int]:
    ids, probabilities = candidates(LOGITS, Sampling(temperature=1.0, **limits))  # type: ignore[arg-type]  # ints too
    assert probabilities.sum() == pytest.approx(1)
    return [int(i) for i in ids]


def test_greedy_takes_the_first_of_the_largest() -> None:
    assert Sampler(Sampling()).choose(np.array([1, 3, 3, 0], dtype=np.float32)) == 1


@pytest.mark.parametrize(
    ("limits", "expected"),
    [
        ({"top_k": 2}, [0, 1]),
        ({"top_k": 99}, [0, 1, 2, 3, 4]),
        ({"top_p": 0.7}, [0, 1]),
        ({"top_p": 0.76}, [0, 1, 2]),
        ({"top_p": 0.01}, [0]),
        ({"min_p": 0.2}, [0, 1, 2]),
        ({"top_k": 3, "top_p": 0.8}, [0, 1]),
    ],
)
def test_limits_keep_what_they_say(limits: dict[str, float], expected: list[int]) -> None:
    assert kept(**limits) == expected


@settings(deadline=None)
@given(
    st.lists(st.integers(-64, 64).map(lambda eighths: eighths / 8), min_size=3, max_size=40, unique=True),
    st.integers(1, 40),
    st.floats(0.05, 1),
    st.floats(0, 0.9),
    st.floats(0.1, 3),
)
def test_what_may_be_drawn_is_what_transformers_would_draw(
    row: list[float], top_k: int, top_p: float, min_p: float, temperature: float
) -> None:
    import torch
    from transformers import MinPLogitsWarper, TemperatureLogitsWarper, TopKLogitsWarper, TopPLogitsWarper

    scores = torch.tensor([row])
    ids = torch.zeros((1, 1), dtype=torch.long)
    for warper in (
        TemperatureLogitsWarper(temperature),
        TopKLogitsWarper(top_k),
        TopPLogitsWarper(top_p),
        MinPLogitsWarper(min_p),
    ):
        scores = warper(ids, scores)
    theirs = torch.softmax(scores.double(), -1)[0].numpy()
    sampling = Sampling(temperature=temperature, top_k=top_k, top_p=top_p, min_p=min_p)
    ours = np.zeros(len(row))
    found, probabilities = candidates(np.array(row, dtype=np.float32), sampling)
    ours[found] = probabilities
    # On a limit's very edge FP32 and FP64 may fall to different sides.
    limited = candidates(np.array(row, dtype=np.float32), Sampling(temperature=temperature, top_k=top_k))[1]
    assume(top_p == 1 or np.abs(np.cumsum(np.sort(limited)[::-1]) - top_p).min() > 1e-5)
    assume(np.abs(limited / limited.max() - min_p).min() > 1e-5)
    np.testing.assert_allclose(ours, theirs, atol=1e-5)


@pytest.mark.parametrize("count", [1, 7, 50, 78, 79, 4999])
@pytest.mark.parametrize("kind", ["distinct", "many equals", "mostly minus infinity", "all equal"])
def test_the_most_likely_tokens_are_found_by_columns_as_by_sorting(count: int, kind: str) -> None:
    random = np.random.default_rng(count)
    row: Logits = random.normal(size=5000).astype(np.float32)
    if kind == "many equals":
        row = np.round(row)
    elif kind == "mostly minus infinity":
        row[random.permutation(5000)[20:]] = -np.inf
    elif kind == "all equal":
        row[:] = 1
    found, _ = candidates(row, Sampling(temperature=1.0, top_k=count))
    assert found.tolist() == np.flatnonzero(row >= np.sort(row)[-count]).tolist()


def test_a_seed_repeats_itself_and_choices_differ() -> None:
    logits = np.zeros(1000, dtype=np.float32)

    def tokens(seed: int | None, choice: int = 0) -> list[int]:
        sampler = Sampler(Sampling(temperature=1.0, seed=seed), choice=choice)
        return [sampler.choose(logits) for _ in range(8)]

    assert tokens(7) == tokens(7) != tokens(8)
    assert tokens(7, choice=1) != tokens(7)
    assert tokens(-1) == tokens(-1)
    assert tokens(None) != tokens(None)


def test_draws_follow_the_probabilities() -> None:
    sampler = Sampler(Sampling(temperature=1.0, seed=0))
    counts = np.bincount([sampler.choose(LOGITS) for _ in range(4000)], minlength=5)
    # 4 standard deviations of a share of 4,000 draws are at most 0.032.
    np.testing.assert_allclose(counts / 4000, np.exp(LOGITS), atol=0.032)


@pytest.mark.parametrize("temperature", [1e-30, 1e-46, 5e-324])
@pytest.mark.parametrize("limits", [{}, {"top_p": 0.9}, {"top_k": 3, "min_p": 0.1}])
@pytest.mark.filterwarnings("error")
def test_a_temperature_close_to_zero_takes_the_most_likely_token(temperature: float, limits: dict[str, Any]) -> None:
    sampler = Sampler(Sampling(temperature=temperature, seed=0, **limits))
    assert [sampler.choose(LOGITS * 100), sampler.choose(LOGITS[::-1] * 2)] == [0, 4]


def test_the_penalty_makes_seen_tokens_less_likely_whatever_their_sign() -> None:
    row = np.array([2.0, -2.0, 1.0], dtype=np.float32)
    assert penalized(row, {0, 1}, 2.0).tolist() == [1.0, -4.0, 1.0]
    assert row.tolist() == [2.0, -2.0, 1.0]
    sampler = Sampler(Sampling(repetition_penalty=4.0))
    assert [sampler.choose(row) for _ in range(3)] == [0, 2, 0]


def test_logits_that_are_no_numbers_are_refused() -> None:
    for row in ([1.0, np.nan], [-np.inf, -np.inf]):
        with pytest.raises(FloatingPointError, match="not finite"):
            Sampler(Sampling()).choose(np.array(row, dtype=np.float32))


def test_logprobs_are_those_of_the_softmax() -> None:
    assert logprob(LOGITS + 50, 1).logprob == pytest.approx(np.log(0.25), abs=1e-5)
    assert [entry.token for entry in top_logprobs(LOGITS[::-1], 3)] == [4, 3, 2]
    assert top_logprobs(LOGITS, 0) == []
