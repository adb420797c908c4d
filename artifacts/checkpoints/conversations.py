"""Conversations to learn from: facts told early among plain sentences, then questions, until the length is full.

One row in twelve is plain text instead, without a chat around it: sentences, facts, questions with their answers.

```
seed, step ─► kind and length ─► messages ─► chat template ─► ids and weights (rows, length)
```
Everything follows from the seed and the number of the step, so training that was stopped goes on as if it had not been.
"""

from __future__ import annotations

import random
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from artifacts.checkpoints import tasks, world
from artifacts.checkpoints.vocabulary import END

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerFast

Message = dict[str, str]
Span = tuple[int, int, float]
"""Where something begins and ends in a text, and what it weighs."""
Arrays = tuple[npt.NDArray[np.int64], npt.NDArray[np.float32]]

TOKENS = 4096
"""Tokens of one batch, whatever the length of its rows."""
PROCESSES = 2
"""What a batch is shared among: the rows are a multiple of it."""
_LENGTHS = (256, 512, 1152)


@dataclass(frozen=True)
class Mix:
    """What the rows of one part of the training are.

    Attributes:
        lengths: how often each length is drawn.
        with_tools: share of conversations that have functions to call.
    """

    lengths: tuple[int, int, int]
    with_tools: float


EARLY, LATE, LAST = Mix((4, 1, 0), 0.25), Mix((3, 3, 2), 0.25), Mix((4, 2, 1), 0.6)
"""Short rows until the skills begin to show, then long ones too; at the end more calls, whose names come last."""
_CHARACTERS_A_TOKEN = 3.0
"""Measured on these conversations; rows that come out longer are cut, shorter ones are padded."""
_SHORT_TASKS = (
    tasks.copy,
    tasks.copy,
    tasks.reverse,
    tasks.reverse,
    tasks.arithmetic,
    tasks.arithmetic,
    tasks.arithmetic,
    tasks.arithmetic,
    tasks.capital,
    tasks.sentence,
)
_PLAIN_TASKS = (tasks.capital, tasks.capital, tasks.arithmetic)
_CAME_BACK = 0.25
"""Share of the conversations with thoughts whose first answers have lost them on their way through a client."""
_ANSWERED, _TOLD = 1.0, 0.1
"""Weights of what the model answers and of what it is told: enough for plain sentences, too little to compete."""
_ANSWER = re.compile(r"<\|im_start\|>assistant\n(?:<think>\n\n</think>\n)?(.*?<\|im_end\|>)", re.DOTALL)
_PLAIN = 1 / 12
"""Share of rows that are plain text."""
_PLAIN_ANSWER = re.compile(rf"\? (.*?(?:\n|{re.escape(END)}))")


def batch(tokenizer: PreTrainedTokenizerFast, seed: int, step: int, mix: Mix) -> Arrays:
    """Make the batch of one step.

    Args:
        tokenizer: the tokenizer, with its chat template.
        seed: the training's.
        step: the step's number.
        mix: what the rows are.

    Returns:
        ids (rows, length) and the weight of each id as something to predict (rows, length); about
        `TOKENS` of them.
    """
    rng = random.Random(f"{seed} {step}")
    length = rng.choices(_LENGTHS, mix.lengths)[0]
    rows = PROCESSES * round(TOKENS / length / PROCESSES)
    ids = np.full((rows, length), tokenizer.pad_token_id, np.int64)
    weights = np.zeros((rows, length), np.float32)
    for row in range(rows):
        if rng.random() < _PLAIN:
            text = plain_text(rng, length)
            answers = [(*match.span(1), _ANSWERED) for match in _PLAIN_ANSWER.finditer(text)]
        else:
            text = conversation(tokenizer, rng, length, mix)
            answers = list(_answers(text))
        encoded = tokenizer(text, return_offsets_mapping=True, add_special_tokens=False)
        found = np.asarray(encoded["input_ids"], np.int64)[:length]
        ids[row, : len(found)] = found
        weights[row, : len(found)] = _weigh(answers, encoded["offset_mapping"])[:length]
    return ids, weights


def conversation(tokenizer: PreTrainedTokenizerFast, rng: random.Random, length: int, mix: Mix) -> str:
    """Make one conversation of about `length` tokens, as the chat template writes it."""
    thinks = rng.random() < 0.35
    budget = length * _CHARACTERS_A_TOKEN
    with_tools = rng.random() < mix.with_tools
    with_facts = rng.random() < 0.75 and (not with_tools or length >= 512)
    told, facts = _told(rng, budget * rng.uniform(0.05, 0.5)) if with_facts else ("", [])
    tools = rng.sample(tasks.TOOLS, rng.choice((1, 2, 4)) if length >= 512 else 1) if with_tools else []
    came_back = thinks and rng.random() < _CAME_BACK
    messages: list[Message] = []
    if told:
        messages += [
            {"role": "user", "content": told},
            {"role": "assistant", "content": said("Yes.", "I read it.", thinks)},
        ]
    size = sum(len(message["content"]) + 40 for message in messages) + 120 + 230 * len(tools)
    while size < budget:
        added = _turn(_next_task(rng, facts, tools), thinks)
        messages += added
        size += sum(len(message["content"]) + 40 for message in added)
    if came_back:
        count = rng.randrange(1, len(messages))
        messages = [*map(_without_reasoning, messages[:count]), *messages[count:]]
    return render(tokenizer, messages, thinks=thinks, tools=tools)


def render(
    tokenizer: PreTrainedTokenizerFast,
    messages: Sequence[Mapping[str, str]],
    *,
    thinks: bool,
    tools: Sequence[Mapping[str, Any]],
    prompt: bool = False,
) -> str:
    """Write messages through the checkpoint's chat template."""
    extra: dict[str, Any] = {"xml_tools": list(tools)} if tools else {}
    text = tokenizer.apply_chat_template(
        list(messages), tokenize=False, enable_thinking=thinks, add_generation_prompt=prompt, **extra
    )
    assert isinstance(text, str)
    return text


def plain_text(rng: random.Random, length: int) -> str:
    """Make short texts of about `length` tokens in all, each ended: sentences and facts, then questions and answers."""
    texts: list[str] = []
    while sum(map(len, texts)) < length * _CHARACTERS_A_TOKEN:
        facts = [tasks.drawn_fact(person, rng, exam=False) for person in rng.sample(world.PEOPLE, rng.randrange(4))]
        told = [fact.statement for fact in facts] + [world.sentence(rng) for _ in range(rng.randrange(4))]
        rng.shuffle(told)
        asked = [fact.task for fact in rng.sample(facts, len(facts))]
        asked += [tasks.drawn(rng.choice(_PLAIN_TASKS), rng, exam=False) for _ in range(rng.randrange(1, 4))]
        lines = [" ".join(told)] * bool(told) + [f"{task.question} {task.answer}" for task in asked]
        texts.append("\n".join(lines) + END)
    return "".join(texts)


def story(rng: random.Random, characters: float, *, exam: bool = False) -> list[str]:
    """Make plain sentences of about so many characters in all, of the exam or not."""
    sentences = [world.sentence(rng, exam=exam)]
    while sum(map(len, sentences)) < characters:
        sentences.append(world.sentence(rng, exam=exam))
    return sentences


def _told(rng: random.Random, characters: float) -> tuple[str, list[tasks.Fact]]:
    """Make what the user tells first: facts in any order among plain sentences, and the facts."""
    count = rng.randint(1, max(2, min(24, int(characters / 45))))
    facts = [tasks.drawn_fact(person, rng, exam=False) for person in rng.sample(world.PEOPLE, count)]
    statements = [fact.statement for fact in facts]
    lines = statements + story(rng, max(0.0, characters - sum(map(len, statements))))
    rng.shuffle(lines)
    return f"Remember this. {' '.join(lines)}", rng.sample(facts, len(facts))


def _next_task(rng: random.Random, facts: list[tasks.Fact], tools: list[tasks.Tool]) -> tasks.Task:
    if facts and rng.random() < 0.75:
        return facts.pop().task
    if tools and rng.random() < 0.7:
        return tasks.drawn(partial(tasks.tool_call, tool=rng.choice(tools)), rng, exam=False)
    return tasks.drawn(rng.choice(_SHORT_TASKS), rng, exam=False)


def _turn(task: tasks.Task, thinks: bool) -> list[Message]:
    messages = [
        {"role": "user", "content": task.question},
        {"role": "assistant", "content": said(task.answer, task.reasoning, thinks)},
    ]
    if task.result:
        result, words = task.result
        messages += [
            {"role": "tool", "content": result},
            {"role": "assistant", "content": said(words, "I have it.", thinks)},
        ]
    return messages


def said(answer: str, reasoning: str, thinks: bool) -> str:
    """Give what the model says: its reasoning in a think block first, where it thinks."""
    return f"<think>\n{reasoning}\n</think>\n{answer}" if thinks else answer


def _without_reasoning(message: Message) -> Message:
    """Give a turn as a client sends it back: the answer alone."""
    return {**message, "content": message["content"].rpartition("</think>\n")[2]}


def _answers(text: str) -> Iterator[Span]:
    """Find what the model answers in a conversation, and what each answer weighs.

    Where the model is to think, an answer that is given back without its reasoning is no example of anything.
    """
    thinks = "<think>\n\n</think>" not in text
    for match in _ANSWER.finditer(text):
        yield *match.span(1), _ANSWERED if not thinks or match.group(1).startswith("<think>") else 0.0


def _weigh(answers: Sequence[Span], offsets: Sequence[tuple[int, int]]) -> npt.NDArray[np.float32]:
    """Weigh each token (tokens,): what the model answers as it is told, the rest by `_TOLD`."""
    characters = np.full(offsets[-1][1] + 1, _TOLD, np.float32)
    for start, end, weight in answers:
        characters[start:end] = weight
    return characters[[start for start, _ in offsets]]
