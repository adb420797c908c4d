"""What went into a prompt must be found in it: whatever a template left out is named.

The prompt is searched for every message in order: for thoughts and content letter by letter, as they are or as JSON or
Python spell them; for the name and the arguments of every tool call, in whatever layout the template has for them.
Letters alone prove little where they are few, so each must be at its place with a mark, too (see `runtime.marks`).
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from artifacts.errors import Problem
from runtime.marks import TOOL_KEYWORDS, Marks, pieces
from runtime.tools import names_of

MEND = {
    "": "give what the template knows: one system message at the head, and roles that it writes",
    "the reasoning of ": "leave reasoning_content out of the message",
    "a tool call of ": "leave the call and its answer out, or use a model whose template writes it",
}
"""What a message has, as a refusal calls it, and what to do where the template leaves it out."""


def lost(text: str, marked: str, turns: Sequence[Mapping[str, Any]], marks: Marks) -> Iterator[Problem]:
    """Yield every message of which something is not in the prompt, in the order of the messages.

    Args:
        text: the prompt.
        marked: the same of `marks.turns(turns)`.
        turns: the messages as the template got them.
        marks: the marks.
    """
    position = seen = 0
    for number, turn in enumerate(turns):
        for what, wanted, mark in _parts(number, turn, marks):
            end, missing = _find(text, wanted, position)
            at = marked.find(mark, seen)
            if missing is None and at < 0:
                missing = wanted if isinstance(wanted, str) else wanted["name"]
            if missing is not None:
                yield Problem(
                    f"the chat template leaves out {what}messages[{number}] ({turn['role']})",
                    "every message in the prompt, in order",
                    f"not in it: {missing[:100]!r}",
                    MEND[what],
                )
                break
            position, seen = end, at


def lost_tools(text: str, marked: str, keywords: Mapping[str, Any], marks: Marks) -> Iterator[Problem]:
    """Yield every tool of the template's keywords that is not in the prompt."""
    for keyword in TOOL_KEYWORDS:
        for place, tool in enumerate(keywords.get(keyword, ())):
            names = names_of(tool)
            if marks.tool(keyword, place) not in marked or not all(name in text for name in names):
                yield Problem(
                    "the chat template leaves out a tool",
                    ", ".join(names),
                    "not in the prompt",
                    "give it by another keyword",
                )


def _parts(number: int, turn: Mapping[str, Any], marks: Marks) -> Iterator[tuple[str, str | Mapping[str, Any], str]]:
    """Yield what of a message must be in the prompt, in order: texts and whole calls, each with its mark."""
    thoughts = turn.get("reasoning_content", "").strip()
    if thoughts:
        yield "the reasoning of ", thoughts, marks.reasoning(number)
    told = pieces(turn)
    for piece in told:
        yield "", piece, marks.content(number) if any(told) else ""
    for place, call in enumerate(turn.get("tool_calls", ())):
        yield "a tool call of ", call["function"], marks.call(number, place)


def _find(text: str, wanted: str | Mapping[str, Any], start: int) -> tuple[int, str | None]:
    """Give where a text or a call ends in the prompt, or what of it is missing there."""
    if isinstance(wanted, str):
        end = _end(text, _spellings(wanted), start)
        return end, wanted if end < 0 else None
    end, missing = _find(text, wanted["name"], start)
    whole = {json.dumps(wanted["arguments"], ensure_ascii=escaped) for escaped in (False, True)}
    if missing is not None or _end(text, whole, start) >= 0:
        return end, missing
    # Not as one JSON text, so name by name and value by value, whose order and place the template may choose.
    leaves = (leaf for leaf in _leaves(wanted["arguments"]) if _end(text, leaf, start) < 0)
    return end, next((min(leaf) for leaf in leaves), None)


def _end(text: str, spellings: Iterable[str], start: int) -> int:
    """Give where the first of some spellings ends; -1 if there is none."""
    found = [(at, at + len(form)) for form in spellings if (at := text.find(form, start)) >= 0]
    return min(found)[1] if found else -1


def _spellings(piece: str) -> set[str]:
    """Give the ways in which a template may write a text: as it is, or inside JSON or Python."""
    inside = (json.dumps(piece), json.dumps(piece, ensure_ascii=False), repr(piece))
    return {piece, *(spelling[1:-1] for spelling in inside)}


def _leaves(arguments: Mapping[str, Any]) -> Iterator[set[str]]:
    """Yield the spellings of every name and every value in a call's arguments, however deep it lies."""
    left: list[Any] = [arguments]
    while left:
        value = left.pop()
        if isinstance(value, dict):
            left += [*value.keys(), *value.values()]
        elif isinstance(value, list):
            left += value
        elif isinstance(value, str):
            yield _spellings(value)
        else:
            yield {json.dumps(value), str(value)}
