"""A conversation is read whole or refused with everything that is wrong with it."""

from __future__ import annotations

import math
from typing import Any

import pytest

from artifacts.errors import StageError
from runtime.messages import Message, read_messages
from runtime.tool_calls import ToolCall


def user(content: object) -> dict[str, Any]:
    return {"role": "user", "content": content}


def called(*ids: str | None) -> dict[str, Any]:
    calls = [{"id": i, "type": "function", "function": {"name": "f", "arguments": '{"a": 1}'}} for i in ids]
    return {"role": "assistant", "content": None, "tool_calls": calls}


def answer(call_id: str, content: str = "x") -> dict[str, Any]:
    return {"role": "tool", "tool_call_id": call_id, "content": content}


def test_parts_are_joined() -> None:
    parts = [{"type": "text", "text": "one "}, {"type": "text", "text": "two"}]
    assert read_messages([user(parts)]) == [Message("user", "one two")]


def test_what_a_client_got_can_be_sent_back() -> None:
    sent = {**called("1"), "refusal": None, "annotations": [], "audio": None, "reasoning_content": "why"}
    found = read_messages([user("x"), sent])[1]
    assert found == Message("assistant", "", (ToolCall("f", '{"a": 1}'),), ("1",), "why")


def test_a_developer_speaks_as_the_system() -> None:
    assert read_messages([{"role": "developer", "content": "x"}])[0].role == "system"


def test_answers_stand_in_the_order_of_their_calls() -> None:
    messages = read_messages([user("x"), called("1", "2"), answer("2", "second"), answer("1", "first")])
    assert [message.content for message in messages[2:]] == ["first", "second"]


def test_answers_without_ids_belong_to_the_calls_at_their_places() -> None:
    messages = read_messages([user("x"), called("1", "2"), {"role": "tool", "content": "first"}, answer("2", "second")])
    assert [message.content for message in messages[2:]] == ["first", "second"]


@pytest.mark.parametrize("extra", [{"tool_call_id": "1"}, {}])
def test_an_answer_may_say_the_name_of_its_call_and_no_other(extra: dict[str, Any]) -> None:
    messages = [user("x"), called("1"), {"role": "tool", "content": "x", "name": "f", **extra}]
    assert read_messages(messages)[2].tool == "f"
    messages[2]["name"] = "g"
    with pytest.raises(StageError, match=r"names a tool that its call does not\s+expected: +name 'f'[\s\S]*'g'"):
        read_messages(messages)


def test_a_name_that_no_call_could_have_said_is_refused() -> None:
    named = {"role": "tool", "content": "x", "name": "f"}
    for before in ([], [called("1"), answer("1")], [called("1"), user("y")]):
        with pytest.raises(StageError, match=r"expected: +a call before it"):
            read_messages([user("x"), *before, named])


@pytest.mark.parametrize(
    ("message", "reason"),
    [
        ({"role": "wizard", "content": "x"}, "role is not known"),
        ({"role": ["user"], "content": "x"}, "role is not known"),
        ("hello", "role is not known"),
        (user(3), "content is no text"),
        (user([{"type": "image_url", "image_url": {"url": "x"}}]), "part of the content is no text"),
        (user([{"type": "text", "text": 3}]), "part of the content is no text"),
        (user("\ud800"), "no valid Unicode"),
        ({**user("x"), "name": "Eve"}, r"cannot carry \['name'\]"),
        ({**user("x"), "tool_calls": [1]}, r"cannot carry \['tool_calls'\]"),
        ({"role": "assistant", "tool_calls": {"a": 1}}, "tool_calls is no list"),
        ({"role": "assistant", "tool_calls": [{"function": {}}]}, "no function name"),
        ({"role": "assistant", "tool_calls": [{"function": {"name": "f", "arguments": "{"}}]}, "no JSON"),
        ({"role": "assistant", "tool_calls": [{"function": {"name": "f", "arguments": "[1]"}}]}, "no object"),
        ({"role": "assistant", "tool_calls": [{"function": {"name": "f", "arguments": '{"a": NaN}'}}]}, "no JSON"),
        ({"role": "assistant", "tool_calls": [{"function": {"name": "f", "arguments": '{"a": 1e999}'}}]}, "no JSON"),
        ({"role": "assistant", "tool_calls": [{"function": {"name": "f", "arguments": {"a": [math.nan]}}}]}, "no JSON"),
        ({"role": "assistant", "tool_calls": [{"type": "banana", "function": {"name": "f"}}]}, "no function's"),
        ({"role": "assistant", "tool_calls": [{"id": 3, "function": {"name": "f"}}]}, "a tool call's id is no text"),
        (answer("nobody"), "belongs to no call"),
        ({**answer("1"), "tool_call_id": ["1"]}, "tool_call_id is no text"),
        ({**answer("1"), "name": 3}, "name is no text"),
        ({"role": "assistant", "reasoning_content": 3}, "reasoning_content is no text"),
    ],
)
def test_what_cannot_be_carried_is_refused(message: object, reason: str) -> None:
    with pytest.raises(StageError, match=reason):
        read_messages([user("x"), message])


def test_a_call_without_an_id_has_none_that_an_answer_could_name() -> None:
    with pytest.raises(StageError, match="belongs to no call"):
        read_messages([user("x"), called(None), answer("None")])


def test_a_call_is_answered_once_and_again_when_it_is_called_again() -> None:
    turn = [called("1"), answer("1")]
    assert len(read_messages([user("x"), *turn, *turn])) == 5
    with pytest.raises(StageError, match="a call is answered twice"):
        read_messages([user("x"), *turn, answer("1")])


@pytest.mark.parametrize("raw", [[], None, "hello", {"role": "user"}])
def test_no_conversation_is_refused(raw: object) -> None:
    with pytest.raises(StageError, match="messages"):
        read_messages(raw)


def test_every_fault_is_named_with_its_place() -> None:
    with pytest.raises(StageError) as error:
        read_messages([user(3), user("x"), {"role": "wizard"}])
    assert [problem.what[:11] for problem in error.value.problems] == ["messages[0]", "messages[2]"]
