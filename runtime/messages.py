"""A conversation in the one shape that templates take: known roles, content as one string, arguments as objects.

It comes as clients of the chat-completions API send it. What has no place in that shape is refused, so that nothing
of a message is lost in silence.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from artifacts.errors import Problem, StageError
from runtime.tool_calls import ToolCall

ROLES = {"system": "system", "developer": "system", "user": "user", "assistant": "assistant", "tool": "tool"}
"""Roles that a client may use, and what templates call them."""

KEYS = {
    "user": {"role", "content"},
    "system": {"role", "content"},
    "assistant": {"role", "content", "tool_calls", "reasoning_content"},
    "tool": {"role", "content", "tool_call_id", "name"},
}
MEND = "correct the message, or leave it out"


@dataclass(frozen=True)
class Message:
    """One turn.

    Attributes:
        role: `system`, `user`, `assistant` or `tool`.
        content: its text; parts are joined.
        tool_calls: calls that the assistant made in this turn.
        call_ids: their ids, in the same order.
        reasoning: what the assistant thought in this turn.
        answers: for a tool's turn, the id of the call that it answers.
        tool: for a tool's turn, the name of the tool, where the client said it.
    """

    role: str
    content: str
    tool_calls: tuple[ToolCall, ...] = ()
    call_ids: tuple[str, ...] = ()
    reasoning: str = ""
    answers: str | None = None
    tool: str = ""


def read_messages(raw: object) -> list[Message]:
    """Read a conversation as a client sends it; answers of tools are put in the order of their calls.

    Raises:
        StageError: with everything that is wrong with it.
    """
    if not isinstance(raw, Sequence) or isinstance(raw, str) or not raw:
        raise StageError(Problem("messages is no list of messages", "at least one", repr(raw)[:100], MEND))
    messages, problems = [], []
    for number, item in enumerate(raw):
        try:
            messages.append(_read_message(item))
        except StageError as error:
            problems += [replace(problem, what=f"messages[{number}]: {problem.what}") for problem in error.problems]
    problems += list(_judge_answers(messages))
    if problems:
        raise StageError(problems)
    return _in_order_of_calls(messages)


def _read_message(raw: object) -> Message:
    name = raw.get("role") if isinstance(raw, Mapping) else None
    if not isinstance(raw, Mapping) or not isinstance(name, str) or name not in ROLES:
        raise StageError(Problem("the role is not known", ", ".join(ROLES), repr(name)[:100], MEND))
    role = ROLES[name]
    # Clients send back what they got, with `null` for everything that was not there.
    given = {key: value for key, value in raw.items() if value not in (None, [], "")}
    lost = sorted(given.keys() - KEYS[role])
    if lost:
        raise StageError(Problem(f"a {role} message cannot carry {lost}", f"{sorted(KEYS[role])}", f"{lost}", MEND))
    calls = given.get("tool_calls", [])
    if not isinstance(calls, list):
        raise StageError(Problem("tool_calls is no list", "a list of calls", repr(calls)[:100], MEND))
    answers = given.get("tool_call_id")
    return Message(
        role,
        _read_content(given.get("content", "")),
        tuple(map(_read_call, calls)),
        tuple(map(_read_id, calls)),
        _encodable(given.get("reasoning_content", ""), "reasoning_content"),
        None if answers is None else _encodable(answers, "tool_call_id"),
        _encodable(given.get("name", ""), "name"),
    )


def _read_content(content: object) -> str:
    """Join the parts of a content; only text can be carried."""
    if isinstance(content, str):
        return _encodable(content, "content")
    if not isinstance(content, list):
        raise StageError(Problem("content is no text", "a string or a list of parts", repr(content)[:100], MEND))
    texts = []
    for part in content:
        if not isinstance(part, Mapping) or part.get("type") != "text" or set(part) - {"type", "text"}:
            found = repr(part.get("type")) if isinstance(part, Mapping) else type(part).__name__
            raise StageError(Problem("a part of the content is no text", '{"type": "text", "text": …}', found, MEND))
        texts.append(_encodable(part.get("text"), "a part of the content"))
    return "".join(texts)


def _encodable(text: object, what: str) -> str:
    """Insist on text that UTF-8 can carry: JSON can spell half a character, a tokenizer cannot read it."""
    if not isinstance(text, str):
        raise StageError(Problem(f"{what} is no text", "a string", repr(text)[:100], MEND))
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise StageError(Problem(f"{what} is no valid Unicode", "whole characters", str(error)[:200], MEND)) from None
    return text


def _read_call(raw: object) -> ToolCall:
    given: Mapping[str, Any] = raw if isinstance(raw, Mapping) else {}
    function = given.get("function")
    if not isinstance(function, Mapping) or not isinstance(function.get("name"), str) or not function["name"]:
        expected = '{"type": "function", "function": {"name": …, "arguments": …}}'
        raise StageError(Problem("a tool call has no function name", expected, repr(raw)[:200], MEND))
    if given.get("type") not in ("function", None):
        raise StageError(Problem("a tool call is no function's", '"type": "function"', repr(given["type"])[:100], MEND))
    arguments = function.get("arguments", {})
    try:
        value = json.loads(arguments or "{}") if isinstance(arguments, str) else arguments
        text = json.dumps(value, ensure_ascii=False, allow_nan=False)
    except (ValueError, RecursionError) as error:
        raise StageError(Problem("a tool call's arguments are no JSON", "a JSON object", str(error), MEND)) from None
    if not isinstance(value, dict):
        raise StageError(Problem("a tool call's arguments are no object", "a JSON object", repr(value)[:100], MEND))
    return ToolCall(
        _encodable(function["name"], "a tool's name"),
        _encodable(text, "a tool call's arguments"),
    )


def _read_id(raw: Mapping[str, object]) -> str:
    """Give a call's id; "" where it has none, or `null` for it."""
    identity = raw.get("id")
    return "" if identity is None else _encodable(identity, "a tool call's id")


def _judge_answers(messages: Sequence[Message]) -> Iterator[Problem]:
    """Yield every answer of a tool that belongs to no call, is its second, or names another tool than its call does.

    An answer without an id belongs to the call at its own place: the first to the first, and so on.
    """
    known: dict[str, str] = {}
    answered = set[str]()
    names: list[str] = []
    place = 0
    for message in messages:
        if message.role != "tool":
            names = [call.name for call in message.tool_calls]
            place = 0
            known.update(zip(message.call_ids, names, strict=True))
            answered -= {*message.call_ids}
            continue
        here = names[place : place + 1]
        place += 1
        if message.answers is not None:
            if message.answers not in known:
                yield Problem(
                    "a tool's answer belongs to no call", f"one of {sorted(known)}", repr(message.answers), MEND
                )
                continue
            if message.answers in answered:
                yield Problem("a call is answered twice", "one answer for each", repr(message.answers), MEND)
            answered.add(message.answers)
            here = [known[message.answers]]
        if message.tool and here != [message.tool]:
            expected = f"name {here[0]!r}, as it was called" if here else "a call before it"
            yield Problem("a tool's answer names a tool that its call does not", expected, repr(message.tool), MEND)


def _in_order_of_calls(messages: list[Message]) -> list[Message]:
    """Sort neighbouring answers by their calls: templates show no ids, so their order is all that tells them apart."""
    ordered: list[Message] = []
    calls: tuple[str, ...] = ()
    run: list[Message] = []
    for message in [*messages, None]:
        if message is not None and message.role == "tool":
            run.append(message)
            continue
        places = [calls.index(one.answers) if one.answers in calls else place for place, one in enumerate(run)]
        ordered += [one for _, one in sorted(zip(places, run, strict=True), key=lambda pair: pair[0])]
        run = []
        if message is not None:
            calls = message.call_ids
            ordered.append(message)
    return ordered
