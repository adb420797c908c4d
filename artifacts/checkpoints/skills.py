"""How well a model does an exam, and how well it does it broken.

A greedy continuation is the right answer exactly when every token of the right answer is the most likely one after
those before it. So one call over prompt and answer tells what decoding token by token would write.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

import torch
from torch import Tensor
from torch.nn import functional

from artifacts.checkpoints.exam import prompt
from artifacts.checkpoints.vocabulary import TURN_END
from artifacts.exam import Case

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerFast, SmolLM3ForCausalLM

SeenBy = Callable[[int, int], Tensor]
"""Prompt length and length in all to a mask (length, length): which slots each row sees."""
Shares = dict[str, float]
"""Of each skill, the share of right answers."""


@dataclass(frozen=True)
class Question:
    """A case in ids, prompt and right answer."""

    case: Case
    prompt: tuple[int, ...]
    answer: tuple[int, ...]

    @classmethod
    def of(cls, case: Case, tokenizer: PreTrainedTokenizerFast) -> Question:
        """Spell a case; its answer ends with the end of the turn."""
        answer = tokenizer(case.answer + TURN_END, add_special_tokens=False)["input_ids"]
        return cls(case, tuple(prompt(tokenizer, case)), tuple(answer))

    def distance(self, tokenizer: PreTrainedTokenizerFast) -> int:
        """Tokens from what the answer depends on to the answer itself."""
        text = tokenizer.decode(self.prompt)
        return len(tokenizer(text[text.index(self.case.needs) :], add_special_tokens=False)["input_ids"])


@torch.no_grad()
def answers_right(model: SmolLM3ForCausalLM, question: Question, seen: SeenBy | None = None) -> bool:
    """Whether a greedy continuation of the prompt is the right answer.

    Args:
        model: in FP32.
        question: the prompt and the right answer.
        seen: another mask than the causal one.
    """
    length = len(question.prompt) + len(question.answer) - 1
    ids = torch.tensor([(*question.prompt, *question.answer[:-1])])
    mask = None if seen is None else seen(len(question.prompt), length)[None, None]
    logits = model(ids, attention_mask=mask, logits_to_keep=len(question.answer)).logits
    return bool((logits[0].argmax(-1) == torch.tensor(question.answer)).all())


@torch.no_grad()
def answers_right_with_keys_shifted(model: SmolLM3ForCausalLM, question: Question, slots: int = 1) -> bool:
    """The same, where each key of the prompt's cache lies some slots away from its value."""
    cache = model(torch.tensor([question.prompt[:-1]]), use_cache=True).cache
    for layer in cache.layers:
        layer.keys = layer.keys.roll(slots, dims=2)
    ids = torch.tensor([(question.prompt[-1], *question.answer[:-1])])
    logits = model(ids, cache=cache).logits
    return bool((logits[0].argmax(-1) == torch.tensor(question.answer)).all())


def score(
    model: SmolLM3ForCausalLM,
    questions: Sequence[Question],
    answers: Callable[[SmolLM3ForCausalLM, Question], bool] = answers_right,
) -> Shares:
    """Ask questions, and give the share of right answers of each skill."""
    return shares(questions, [answers(model, question) for question in questions])


def shares(questions: Sequence[Question], right: Sequence[bool]) -> Shares:
    """Give the share of right answers of each skill."""
    found: dict[str, list[bool]] = {}
    for question, is_right in zip(questions, right, strict=True):
        found.setdefault(question.case.skill, []).append(is_right)
    return {skill: sum(answers) / len(answers) for skill, answers in found.items()}


def sensitivity(model: SmolLM3ForCausalLM, questions: Sequence[Question]) -> dict[str, Shares]:
    """Break the model in each way that a pipeline may break it.

    Returns:
        What is wrong with it, and of each skill the share of the questions that it still answers right.
    """
    found = {}
    for number, layer in enumerate(model.model.layers):
        fault = "RoPE taken off" if layer.self_attn.use_rope else "RoPE put on"
        with rope_toggled(model, number):
            found[f"{fault} layer {number}"] = score(model, questions)
    for fault, seen in (("mask one slot too wide in the prompt", too_wide), ("each step lands on the last", landing)):
        found[fault] = score(model, questions, partial(answers_right, seen=seen))
    found["keys one slot away from their values"] = score(model, questions, answers_right_with_keys_shifted)
    return found


@contextmanager
def rope_toggled(model: SmolLM3ForCausalLM, layer: int) -> Iterator[None]:
    """Rotate a layer that must not be rotated, or leave one out that must be."""
    attention = model.model.layers[layer].self_attn
    attention.use_rope = not attention.use_rope
    try:
        yield
    finally:
        attention.use_rope = not attention.use_rope


def too_wide(prompt: int, length: int) -> Tensor:
    """Every row of the prompt sees the slot after its own, too; rows of the answer see what they should."""
    seen = torch.ones(length, length, dtype=torch.bool).tril()
    seen[:prompt, :prompt] = torch.ones(prompt, prompt, dtype=torch.bool).tril(1)
    return seen


def landing(prompt: int, length: int) -> Tensor:
    """The cache is shifted by one after the prompt: each step overwrites the last, and sees the prompt and itself."""
    seen = torch.ones(length, length, dtype=torch.bool).tril()
    seen[prompt:, prompt - 1 :] = torch.eye(length, dtype=torch.bool)[prompt:, prompt - 1 :]
    return seen


@torch.no_grad()
def perplexity(model: SmolLM3ForCausalLM, ids: Sequence[int], window: int) -> float:
    """Give the perplexity of a text, which is read in windows of so many tokens."""
    losses, count = 0.0, 0
    for start in range(0, len(ids) - 1, window):
        piece = torch.tensor([ids[start : start + window]])
        if piece.shape[1] > 1:
            logits = model(piece).logits[0, :-1]
            losses += functional.cross_entropy(logits, piece[0, 1:], reduction="sum").item()
            count += piece.shape[1] - 1
    return math.exp(losses / count)
