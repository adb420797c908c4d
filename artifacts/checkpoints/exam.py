"""The exam: questions and sentences that training never saw.

It goes along with the checkpoint as `exam.json`, so that whoever runs the model can ask it.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

from artifacts.checkpoints import conversations, tasks, world
from artifacts.exam import Case, Exam

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerFast

CASES = 60
"""Cases of each skill, where there are as many: one right or wrong is 1.7 %. Calls take turns among the functions."""
_DRAWN = 200
"""Draws for a case that is not there yet."""
SEED = 20261130
_CHARACTERS = (150, 5100)
"""Of what is told before a fact is asked for; the longest prompts have a hundred tokens more than training's rows."""
_TEXT = 4000


def make_exam(seed: int = SEED) -> Exam:
    """Make the exam, always the same one; another seed asks other cases."""
    rng = random.Random(seed)
    cases = [
        *(_recall(rng, number) for number in range(CASES)),
        *_distinct(lambda _: _short("copy", tasks.copy, rng, thinks=False)),
        *_distinct(lambda _: _short("reverse", tasks.reverse, rng, thinks=False)),
        *_distinct(lambda _: _short("arithmetic, thinking", tasks.arithmetic, rng, thinks=True)),
        *_distinct(lambda _: _later(rng)),
        *_distinct(lambda _: _short("arithmetic", tasks.arithmetic, rng, thinks=False)),
        *_distinct(lambda number: _tool_call(tasks.TOOLS[number % len(tasks.TOOLS)], rng)),
        *_distinct(lambda _: _short("capital", tasks.capital, rng, thinks=False)),
    ]
    return Exam(tuple(cases), " ".join(conversations.story(rng, _TEXT, exam=True)))


def _recall(rng: random.Random, number: int) -> Case:
    """Ask for one of a few facts; what is told grows from case to case, and every second fact stands first in it."""
    shortest, longest = _CHARACTERS
    told = shortest + (longest - shortest) * number / (CASES - 1)
    people = rng.sample(world.PEOPLE, rng.randint(2, 12))
    facts = [tasks.drawn_fact(person, rng, exam=True) for person in people]
    asked, *others = facts
    lines = [fact.statement for fact in others]
    lines += conversations.story(rng, max(0.0, told - sum(map(len, lines))), exam=True)
    rng.shuffle(lines)
    lines.insert(number % 2 * rng.randint(0, len(lines)), asked.statement)
    messages = (
        {"role": "user", "content": f"Remember this. {' '.join(lines)}"},
        {"role": "assistant", "content": "Yes."},
        {"role": "user", "content": asked.task.question},
    )
    return Case("recall", messages, asked.task.answer, needs=asked.statement)


def _distinct(make: Callable[[int], Case]) -> list[Case]:
    """Make cases, each another one; fewer where there are no more."""
    found: list[Case] = []
    for number in range(CASES):
        drawn = (make(number) for _ in range(_DRAWN))
        case = next((case for case in drawn if case not in found), None)
        found += [case] if case else []
    return found


def _short(skill: str, make: Callable[[random.Random], tasks.Task], rng: random.Random, *, thinks: bool) -> Case:
    task = tasks.drawn(make, rng, exam=True)
    messages = ({"role": "user", "content": task.question},)
    return Case(skill, messages, conversations.said(task.answer, task.reasoning, thinks), thinks=thinks)


def _later(rng: random.Random) -> Case:
    """Ask for a second sum, after a first one whose answer a client has sent back without its thoughts."""
    first, second = (tasks.drawn(tasks.arithmetic, rng, exam=True) for _ in range(2))
    messages = (
        {"role": "user", "content": first.question},
        {"role": "assistant", "content": first.answer},
        {"role": "user", "content": second.question},
    )
    answer = conversations.said(second.answer, second.reasoning, True)
    return Case("arithmetic, second turn", messages, answer, thinks=True)


def _tool_call(tool: tasks.Tool, rng: random.Random) -> Case:
    """Offer some functions, the right one among them."""
    task = tasks.drawn(partial(tasks.tool_call, tool=tool), rng, exam=True)
    others = [tool for tool in tasks.TOOLS if tool not in task.tools]
    tools: list[dict[str, Any]] = [*task.tools, *rng.sample(others, rng.randint(0, len(others)))]
    rng.shuffle(tools)
    return Case("tool call", ({"role": "user", "content": task.question},), task.answer, tools=tuple(tools))


def prompt(tokenizer: PreTrainedTokenizerFast, case: Case) -> list[int]:
    """Give the ids of a case's prompt."""
    text = conversations.render(tokenizer, case.messages, thinks=case.thinks, tools=case.tools, prompt=True)
    return list(tokenizer(text, add_special_tokens=False)["input_ids"])
