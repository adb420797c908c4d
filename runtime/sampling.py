"""One token from a row of logits: greedy, or drawn with temperature, top-k, top-p, min-p and a repetition penalty.

The order is Transformers': penalty, temperature, top-k, top-p, min-p. Everything is numpy, in FP32 but for the
cumulative sums; V is the vocabulary.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from runtime.settings import Sampling

Logits = NDArray[np.float32]

COLUMN = 64
"""Logits whose maximum is taken at once, where only the largest are wanted."""


@dataclass(frozen=True)
class TokenLogprob:
    """A token and the logarithm of its probability under the model, before temperature, limits and penalty."""

    token: int
    logprob: float


class Sampler:
    """Chooses the tokens of one continuation; holds its random state and the tokens that it has seen.

    Args:
        sampling: how to choose.
        seen: the prompt's tokens, for the repetition penalty.
        choice: which of several continuations of one request this is; each has random numbers of its own.
    """

    def __init__(self, sampling: Sampling, seen: Iterable[int] = (), *, choice: int = 0) -> None:
        self._sampling = sampling
        self._seen = set(seen)
        # A negative seed is as good as any other; numpy takes only non-negative ones.
        seed = None if sampling.seed is None else [sampling.seed % 2**64, choice]
        self._random = np.random.default_rng(seed)

    def choose(self, logits: Logits) -> int:
        """Choose a token and remember it.

        Args:
            logits: one row, (V,), FP32; it is not changed.

        Raises:
            FloatingPointError: the largest logit is no number: the model is broken, and a token would hide it.
        """
        if self._sampling.repetition_penalty != 1:
            logits = penalized(logits, self._seen, self._sampling.repetition_penalty)
        token = int(logits.argmax())
        if not math.isfinite(logits[token]):
            raise FloatingPointError(f"the largest logit is {logits[token]}: the model's output is not finite")
        if not self._sampling.greedy:
            ids, probabilities = candidates(logits, self._sampling)
            token = int(ids[_draw(probabilities, self._random.random())])
        self._seen.add(token)
        return token


def penalized(logits: Logits, seen: set[int], penalty: float) -> Logits:
    """Give logits with those of seen tokens made less likely (penalty > 1) or more (< 1)."""
    ids = np.fromiter(seen, dtype=np.int64, count=len(seen))
    changed = logits.copy()
    values = changed[ids]
    changed[ids] = np.where(values > 0, values / penalty, values * penalty)
    return changed


def candidates(logits: Logits, sampling: Sampling) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """Give the tokens that may be drawn and their probabilities, which sum to 1.

    A limit that falls among equal probabilities keeps all of them, so that a token's number decides nothing.
    """
    ids: NDArray[np.int64] | None = None
    if 0 < sampling.top_k < len(logits):
        ids = _most_likely(logits, sampling.top_k)
        logits = logits[ids]
    # The largest logit is taken off first, so that a temperature close to 0 can overflow only to minus infinity, which
    # is a probability of 0. A temperature that FP32 takes for 0 would make the largest one 0 / 0.
    temperature = max(np.float32(sampling.temperature), np.finfo(np.float32).tiny)
    scaled = logits - logits.max()
    with np.errstate(over="ignore"):
        scaled /= temperature
    # Only now is anything done in FP64, with the few tokens that can still be among the candidates.
    near = (scaled >= _floor(sampling, len(scaled))).nonzero()[0]
    weights = np.exp(scaled[near].astype(np.float64))
    if sampling.top_p < 1:
        wanted = sampling.top_p * float(np.exp(scaled, out=scaled).sum(dtype=np.float64))
        inside = weights >= _nucleus_edge(weights, wanted)
        near, weights = near[inside], weights[inside]
    return near if ids is None else ids[near], weights / weights.sum()


def _most_likely(logits: Logits, count: int) -> NDArray[np.int64]:
    """Give the ids of the largest logits, ascending; more than `count` where the last of them has equals.

    The vocabulary is cut into columns first: as many logits as there are columns are maxima of one, so the last of the
    largest `count` maxima bounds the logits that are wanted from below, and only those above it are looked at closely.
    """
    width = len(logits) // COLUMN
    if count > width:
        return np.flatnonzero(logits >= np.partition(logits, -count)[-count])
    maxima = logits[: COLUMN * width].reshape(COLUMN, width).max(axis=0)
    near = (logits >= np.partition(maxima, -count)[-count]).nonzero()[0]
    values = logits[near]
    found: NDArray[np.int64] = near[values >= np.partition(values, -count)[-count]]
    return found


def _floor(sampling: Sampling, count: int) -> float:
    """Give the least scaled logit, the largest being 0, that min-p and top-p can keep.

    All tokens below half of (1 - top_p) / count have, together, less than 1 - top_p: the nucleus ends above them.
    """
    floors = [-math.inf]
    if sampling.min_p > 0:
        floors.append(math.log(sampling.min_p))
    if sampling.top_p < 1:
        floors.append(math.log(0.5 * (1 - sampling.top_p) / count))
    return max(floors)


def _nucleus_edge(weights: NDArray[np.float64], wanted: float) -> float:
    """Give the least weight inside the smallest set of largest weights that sums to what is wanted."""
    descending = np.sort(weights)[::-1]
    inside = int(descending.cumsum().searchsorted(wanted))
    return float(descending[min(inside, len(descending) - 1)])


def _draw(probabilities: NDArray[np.float64], point: float) -> int:
    """Give the index whose share of [0, 1) holds `point`."""
    cumulative = probabilities.cumsum()
    # The last sum may fall short of 1 by rounding; `point` is scaled to it so that no draw falls outside.
    return min(int(cumulative.searchsorted(point * cumulative[-1], side="right")), len(probabilities) - 1)


def logprob(logits: Logits, token: int) -> TokenLogprob:
    """Give a token's logarithm of probability, from raw logits (V,)."""
    return TokenLogprob(token, float(logits[token]) - _log_sum(logits))


def top_logprobs(logits: Logits, count: int) -> list[TokenLogprob]:
    """Give the most likely tokens, most likely first, from raw logits (V,)."""
    count = min(count, len(logits))
    if count == 0:
        return []
    total = _log_sum(logits)
    top = np.argpartition(logits, -count)[-count:]
    top = top[np.argsort(-logits[top], kind="stable")]
    return [TokenLogprob(int(token), float(logits[token]) - total) for token in top]


def _log_sum(logits: Logits) -> float:
    largest = float(logits.max())
    return largest + float(np.log(np.exp(logits - largest, dtype=np.float64).sum()))
