"""What the tiny model is asked, and what is right: recall, copy, reverse, arithmetic, tool calls, plain sentences.

A task is a question with its answer, and the reasoning that leads to it where the model thinks. Every tenth case, by
a checksum of what is special in it, belongs to the exam and is never trained on; of what there is little, all is.
"""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from artifacts.checkpoints import world

Tool = dict[str, Any]


@dataclass(frozen=True)
class Task:
    """One question and its answer.

    Attributes:
        special: what makes this case different from others; it decides whether the case belongs to the exam. None
            where there are so few cases, each spelled in its own way, that none can be held out.
        reasoning: what stands in the think block where the model thinks.
        tools: the functions that the question needs, as OpenAI's API describes them.
        result: what the called function gives back, and what is said of it then.
    """

    skill: str
    special: str | None
    question: str
    answer: str
    reasoning: str
    tools: tuple[Tool, ...] = ()
    result: tuple[str, str] | None = None

    @property
    def is_exam(self) -> bool:
        """Whether the case is held out for the exam: one in ten is."""
        return self.special is not None and world.is_held_out(f"{self.skill} {self.special}")


@dataclass(frozen=True)
class Fact:
    """Something said early in a conversation, and the task that asks for it later."""

    statement: str
    task: Task


def has_thing(rng: random.Random, person: str) -> Fact:
    """A person has a thing of some color."""
    thing = rng.choice(world.THINGS)
    statement = f"The {thing} of {person} is {rng.choice(world.COLORS)}."
    question = f"What color is the {thing} of {person}?"
    return Fact(statement, Task("recall", statement, question, statement, f"I look for the {thing} of {person}."))


def has_code(rng: random.Random, person: str) -> Fact:
    """A person has a code of four digits."""
    statement = f"The code of {person} is {rng.randrange(10000):04}."
    question = f"What is the code of {person}?"
    return Fact(statement, Task("recall", statement, question, statement, f"I look for the code of {person}."))


def copy(rng: random.Random) -> Task:
    """Repeat a string."""
    text = world.letters(rng, rng.randint(4, 10))
    return Task("copy", text, f"Copy {text}", text, "I write it again.")


def reverse(rng: random.Random) -> Task:
    """Write a string backwards."""
    text = world.letters(rng, rng.randint(4, 8))
    return Task("reverse", text, f"Reverse {text}", text[::-1], f"The last letter is {text[-1]}.")


def arithmetic(rng: random.Random) -> Task:
    """Add two numbers below a hundred; what is held out is so in either order."""
    a, b = rng.randrange(100), rng.randrange(100)
    ones, carry = a % 10 + b % 10, (a % 10 + b % 10) // 10
    tens = a // 10 + b // 10 + carry
    steps = f"{a % 10} + {b % 10} = {ones}, carry {carry}.\n{a // 10} + {b // 10} + {carry} = {tens}."
    return Task("arithmetic", f"{min(a, b)} {max(a, b)}", f"What is {a} + {b}?", str(a + b), steps)


def capital(rng: random.Random) -> Task:
    """Say the capital of a country."""
    country, city = rng.choice(sorted(world.CAPITALS.items()))
    return Task(
        "capital",
        None,
        f"What is the capital of {country}?",
        f"The capital of {country} is {city}.",
        "I know the capital.",
    )


def sentence(rng: random.Random) -> Task:
    """Write a plain sentence about an animal."""
    animal = rng.choice(world.ANIMALS)
    return Task("sentence", None, f"Write about a {animal}.", world.sentence(rng, animal), f"I write about a {animal}.")


def _tool(name: str, description: str, /, **parameters: str) -> Tool:
    properties = {key: {"type": kind} for key, kind in parameters.items()}
    schema = {"type": "object", "properties": properties, "required": list(parameters)}
    return {"type": "function", "function": {"name": name, "description": description, "parameters": schema}}


WEATHER = _tool("get_weather", "Weather in a city", city="string")
TIMER = _tool("set_timer", "Set a timer", minutes="integer")
CALL = _tool("call_person", "Call a person", name="string")
TICKET = _tool("find_ticket", "Find a ticket", code="string")
TOOLS = (WEATHER, TIMER, CALL, TICKET)


def tool_call(rng: random.Random, tool: Tool) -> Task:
    """Call the one function that the question needs, with what the question gives: numbers and codes are held out."""
    arguments: dict[str, str | int]
    if tool is WEATHER:
        city, sky = rng.choice(sorted(world.CAPITALS.values())), rng.choice(("sunny", "rainy", "cold"))
        question, arguments = f"How is the weather in {city}?", {"city": city}
        result = (sky, f"It is {sky} in {city}.")
    elif tool is TIMER:
        minutes = rng.randrange(1, 100)
        question, arguments = f"Set a timer for {minutes} minutes.", {"minutes": minutes}
        result = ("done", f"The timer is set for {minutes} minutes.")
    elif tool is CALL:
        person = rng.choice(world.PEOPLE)
        question, arguments = f"Please call {person}.", {"name": person}
        result = ("done", f"I called {person}.")
    else:
        code, person = world.letters(rng, rng.randint(4, 6)), rng.choice(world.PEOPLE)
        question, arguments = f"Who has the ticket {code}?", {"code": code}
        result = (person, f"{person} has the ticket {code}.")
    name = tool["function"]["name"]
    answer = f"<tool_call>{json.dumps({'name': name, 'arguments': arguments})}</tool_call>"
    special = f"{name} {question}" if tool in (TIMER, TICKET) else None
    return Task("tool call", special, question, answer, f"I need {name}.", (tool,), result)


def drawn(make: Callable[[random.Random], Task], rng: random.Random, *, exam: bool) -> Task:
    """Draw cases until one is of the exam, or is not, where any is held out."""
    while True:
        task = make(rng)
        if task.special is None or task.is_exam == exam:
            return task


def drawn_fact(person: str, rng: random.Random, *, exam: bool) -> Fact:
    """Draw a fact about a person that is of the exam, or is not."""
    make = rng.choice((has_thing, has_code))
    while True:
        fact = make(rng, person)
        if fact.task.is_exam == exam:
            return fact
