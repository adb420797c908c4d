"""What one runner made of a paper: answers, decoded greedily from its own cache, and how likely it finds the text."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np

from artifacts.contract import LOGITS
from runtime.session import Array, Session
from validate import greedy
from validate.cache import capacity, empty_cache
from validate.comparison import TOLERANCE
from validate.exam.paper import SHORTEST_TEXT, Paper, Question
from validate.greedy import Continuation
from validate.play import run_call
from validate.scenarios import Passage

WINDOW = 512
"""Tokens of a text that are read in one call, from an empty cache."""


@dataclass
class Sheet:
    """What one runner wrote.

    Attributes:
        answers: one for each question; `None` where the question does not fit the runner's cache.
        magnitude: the largest logit seen.
        perplexity: of the paper's text; nothing for a graph that gives only the last position's logits.
        texts: the answers as text; empty where a question does not fit.
    """

    answers: list[Continuation | None] = field(default_factory=list)
    magnitude: float = 0.0
    perplexity: float | None = None
    texts: list[str] = field(default_factory=list)

    def right(self, paper: Paper, skill: str) -> tuple[int, int]:
        """How many questions of a skill were answered right, and how many were answered."""
        pairs = zip(paper.questions, self.answers, strict=False)
        found = [
            tuple(answer.tokens) == question.answer
            for question, answer in pairs
            if question.skill == skill and answer is not None
        ]
        return sum(found), len(found)

    @property
    def unanswered(self) -> int:
        """Questions that do not fit the runner's cache."""
        return sum(answer is None for answer in self.answers)

    def to_json(self) -> dict[str, Any]:
        """Give plain JSON values; a perplexity that is no number is kept as text."""
        raw = asdict(self)
        finite = self.perplexity is None or math.isfinite(self.perplexity)
        return {**raw, "perplexity": self.perplexity if finite else str(self.perplexity)}

    @classmethod
    def from_json(cls, raw: Mapping[str, Any]) -> Sheet:
        """Read what `to_json` gave."""
        answers = [None if one is None else Continuation(one["tokens"], one["gaps"]) for one in raw["answers"]]
        perplexity = raw["perplexity"]
        return cls(answers, raw["magnitude"], None if perplexity is None else float(perplexity), raw["texts"])


def sit(session: Session, paper: Paper, layers: int) -> Sheet:
    """Let an entered session answer every question and read the text."""
    sheet, slots = Sheet(), capacity(session)
    for question in paper.questions:
        fits = slots is None or len(question.prompt) + len(question.answer) <= slots
        sheet.answers.append(_answered(session, question, layers, sheet) if fits else None)
    if len(paper.text) >= SHORTEST_TEXT and session.outputs[LOGITS].axes[1] != 1:
        sheet.perplexity = perplexity(session, paper.text, layers)
    return sheet


def _answered(session: Session, question: Question, layers: int, sheet: Sheet) -> Continuation:
    """Decode until the turn ends, or as long as the right answer is."""
    chosen, count = Continuation(), len(question.answer)
    for logits in greedy.steps(session, question.prompt, count, layers, chosen, end=question.answer[-1]):
        sheet.magnitude = max(sheet.magnitude, float(np.abs(logits).max()))
    return chosen


def perplexity(session: Session, text: Sequence[int], layers: int) -> float:
    """Give e to the mean surprise of each token, given those before it in its window."""
    surprise, count = 0.0, 0
    for start in range(0, len(text), WINDOW):
        window = text[start : start + WINDOW]
        if len(window) < 2:
            break
        indices = np.arange(len(window))[None]
        passage = Passage("text", tuple(window))
        logits = run_call(session, empty_cache(session, layers, 1), [passage], indices, 0)[LOGITS][0, :-1]
        surprise += float(_surprise(logits.astype(np.float64), np.asarray(window[1:])).sum())
        count += len(window) - 1
    mean = surprise / count
    return math.exp(mean) if mean < 700 else math.inf


def _surprise(logits: Array, tokens: Array) -> Array:
    """Give -log p of tokens (S,) by logits (S, V)."""
    highest = logits.max(axis=-1)
    total = np.log(np.exp(logits - highest[:, None]).sum(axis=-1)) + highest
    surprise: Array = total - np.take_along_axis(logits, tokens[:, None], -1)[:, 0]
    return surprise


def judge_answers(found: Sheet, reference: Sheet, paper: Paper) -> list[str]:
    """Hold every answer against the reference's: the same tokens, but where its two largest logits are a near tie."""
    if len(found.answers) != len(paper.questions):
        return [f"{len(found.answers)} questions were answered, {len(paper.questions)} were asked"]
    noise, problems = 2 * TOLERANCE * reference.magnitude, []
    for question, mine, right in zip(paper.questions, found.answers, reference.answers, strict=True):
        if mine is None or right is None:
            continue
        step = greedy.parting(mine, right, noise)
        if step is not None:
            problems.append(f"{question.skill}, {question.asked!r}: another answer than PyTorch's from step {step} on")
    return problems


def judge_perplexity(found: Sheet, reference: Sheet) -> list[str]:
    """Hold the text's perplexity against the reference's; measured in FP32: 1e-7 of it."""
    if found.perplexity is None or reference.perplexity is None:
        return []
    if abs(found.perplexity - reference.perplexity) <= TOLERANCE * reference.perplexity:
        return []
    return [f"{found.perplexity:.6g}, expected PyTorch's {reference.perplexity:.6g}, within {TOLERANCE:g} of it"]
