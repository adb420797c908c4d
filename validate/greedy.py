"""Greedy continuation: the token with the largest logit, again and again, by each way to run the model itself.

Where the two largest logits are nearer to each other than the noise of the arithmetic, another choice is no fault;
where they are not, it is one.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np

from artifacts.contract import LOGITS
from runtime.session import Array, Session
from validate.cache import empty_cache
from validate.play import can_go_on, run_call
from validate.scenarios import Passage


@dataclass
class Continuation:
    """The tokens that were chosen.

    Attributes:
        tokens: the chosen token of each step.
        gaps: the largest logit minus the second largest, of each step.
    """

    tokens: list[int] = field(default_factory=list)
    gaps: list[float] = field(default_factory=list)

    def choose(self, logits: Array) -> int:
        """Choose the next token from logits (V,); of equal ones the first."""
        token = int(np.argmax(logits))
        self.tokens.append(token)
        second, largest = np.sort(np.partition(logits, -2)[-2:])
        self.gaps.append(float(largest - second))
        return token


def steps(
    session: Session,
    prompt: Sequence[int],
    count: int,
    layers: int,
    chosen: Continuation,
    *,
    end: int | None = None,
) -> Iterator[Array]:
    """Continue a prompt greedily.

    Args:
        session: an entered session.
        prompt: token ids.
        count: how many tokens to choose.
        layers: layers of the model.
        chosen: takes each step's choice.
        end: a token after which nothing more is chosen.

    Yields:
        The logits (V,) of each step, before its choice is made. It ends early if the outputs do not allow another
        step.
    """
    cache = empty_cache(session, layers, 1)
    tokens, done = list(prompt), 0
    for _ in range(count):
        indices = np.arange(done, len(tokens))[None]
        outputs = run_call(session, cache, [Passage("continuation", tuple(tokens))], indices, 0)
        if not can_go_on(session, cache, outputs, indices.shape[1]):
            return
        cache.keep(outputs)
        logits = outputs[LOGITS][0, -1].astype(np.float32)
        yield logits
        done = len(tokens)
        tokens.append(chosen.choose(logits))
        if tokens[-1] == end:
            return


def near_ties(reference: Continuation, noise: float) -> list[int]:
    """Give the steps at which the reference's two largest logits are nearer to each other than the noise."""
    return [step for step, gap in enumerate(reference.gaps) if gap <= noise]


def judge(found: Continuation, reference: Continuation, noise: float) -> list[str]:
    """Compare with the reference up to the first step at which another choice is no fault.

    Args:
        found: what was chosen.
        reference: what the reference chose.
        noise: the difference that the arithmetic may make to the gap of two logits.
    """
    if not reference.tokens or len(found.tokens) != len(reference.tokens):
        return [f"{len(found.tokens)} tokens were chosen, the reference chose {len(reference.tokens)}"]
    step = parting(found, reference, noise)
    if step is None:
        return []
    return [
        f"step {step}: token {found.tokens[step]}, expected {reference.tokens[step]}; the reference's two largest "
        f"logits are {reference.gaps[step]:.3g} apart, the arithmetic's noise is {noise:.1g}"
    ]


def parting(found: Continuation, reference: Continuation, noise: float) -> int | None:
    """Give the step at which two continuations part, if that is a fault; one that ends before the other parts there.

    Args:
        found: what was chosen.
        reference: what the reference chose.
        noise: as `judge` has it; where they part in a near tie, all that follows is no fault.
    """
    step = first_difference(found, reference)
    if step is None:
        ends = sorted((len(found.tokens), len(reference.tokens)))
        return ends[0] if ends[0] != ends[1] else None
    return None if reference.gaps[step] <= noise else step


def first_difference(found: Continuation, reference: Continuation) -> int | None:
    """Give the first step at which two continuations part, if they do."""
    pairs = enumerate(zip(found.tokens, reference.tokens, strict=False))
    return next((step for step, (left, right) in pairs if left != right), None)
