"""Any cut of any text gives the same parts as the whole, and nothing that was written is lost."""

from __future__ import annotations

import time
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from runtime.output_parser import CALL, CODE, END_CALL, END_CODE, END_THINK, THINK, OutputParser, Parsed
from runtime.tool_calls import ToolCall

TOOLS = {"f": ["a"]}
GOOD = '<tool_call>{"name": "f", "arguments": {"a": 1}}</tool_call>'
PARTS = [
    *(THINK, END_THINK, CALL, END_CALL, CODE, END_CODE, "\n", "\n\n", " ", "text", '"', "'", "\\", "{", "}"),
    *(GOOD, "<code>f(1)</code>", "<code>\nf(a='</code>')\n</code>", "<", "</", "tool_call>", "é", "{}"),
    '<tool_call>{"name": "f", "arguments": {"a": "</tool_call>"}}</tool_call>',
    '<tool_call>{"name": "f", "arguments": {"a": "\\"</tool_call>\\\\"}}</tool_call>',
]
TEXTS = st.lists(st.sampled_from(PARTS), max_size=12).map("".join) | st.text(max_size=30)
OPTIONS: list[dict[str, Any]] = [
    {},
    {"in_reasoning": True},
    {"after_reasoning": True},
    {"python_tools": TOOLS},
    {"json_calls": False},
    {"names": ["g"]},
]


def parse(pieces: list[str], **options: Any) -> Parsed:
    parser = OutputParser(**options)
    return Parsed.of([*(event for piece in pieces for event in parser.feed(piece)), *parser.finish()])


@settings(max_examples=200, deadline=None)
@given(TEXTS, st.lists(st.integers(0, 400), max_size=12), st.sampled_from(OPTIONS))
def test_any_cut_is_the_whole(text: str, places: list[int], options: dict[str, Any]) -> None:
    edges = [0, *sorted(place % (len(text) + 1) for place in places), len(text)]
    cut = [text[a:b] for a, b in pairwise(edges)]
    assert parse(cut, **options) == parse([text], **options) == parse(list(text), **options)


@settings(deadline=None)
@given(st.text())
def test_text_without_tags_is_content_to_the_letter(text: str) -> None:
    assert parse(list(text), python_tools=TOOLS) == Parsed("", text, ())


@settings(max_examples=300, deadline=None)
@given(TEXTS)
def test_nothing_but_line_breaks_and_tags_of_what_was_read_is_lost(text: str) -> None:
    parsed = parse([text], python_tools=TOOLS)
    rest = "".join(parsed.content.split()) + "".join(parsed.reasoning.split())
    whole = "".join(text.split())
    if not parsed.tool_calls:
        lost = len(whole) - len(rest)
        assert lost in (0, len(THINK), len(THINK + END_THINK))


def test_the_three_parts() -> None:
    text = f"<think>\nfirst\n\nthen\n</think>\n\nI will look.\n{GOOD}\n"
    assert parse(list(text)) == Parsed("first\n\nthen", "I will look.", (ToolCall("f", '{"a": 1}'),))


def test_a_call_of_a_tool_that_was_not_given_is_content_and_the_next_one_is_read() -> None:
    other = GOOD.replace('"f"', '"g"')
    parsed = parse(list(f"{GOOD} then {other}"), names=["g"])
    assert (parsed.content, parsed.tool_calls) == (f"{GOOD} then ", (ToolCall("g", '{"a": 1}'),))
    assert parse(["<code>f(1)</code>"], python_tools=TOOLS, names=["g"]) == Parsed("", "<code>f(1)</code>", ())


def test_two_calls_and_text_between() -> None:
    parsed = parse([f"a {GOOD}\n{GOOD}\nb"])
    assert (parsed.content, len(parsed.tool_calls)) == ("a b", 2)


def test_a_closing_tag_inside_a_string_of_a_call_is_part_of_it() -> None:
    body = '{"name": "f", "arguments": {"a": "</tool_call> \\" </tool_call>"}}'
    assert parse(list(f"{CALL}{body}{END_CALL}done")).tool_calls[0].arguments == body[body.index("{", 1) : -1]


@pytest.mark.parametrize(
    "text",
    [
        f"{CALL}not json{END_CALL} after",
        f'before\n\n{CALL}{{"name": "f", }}{END_CALL}\nafter',
        f'{CALL}{{"name": "f"',
        f'{CALL}{{"name": "f{END_CALL} and so on',
        f"{CODE}for x in y: pass{END_CODE}",
        f"{CODE}f('{END_CODE}",
        f"{END_CALL}{END_THINK}{END_CODE}",
        "<thin",
        " \n ",
        "text <think>later</think>",
    ],
)
def test_what_cannot_be_read_is_content_to_the_letter(text: str) -> None:
    assert parse(list(text), python_tools=TOOLS) == Parsed("", text, ())


def test_a_call_after_a_broken_one_is_still_read() -> None:
    parsed = parse([f"{CALL}broken{END_CALL}{GOOD}"])
    assert (parsed.content, len(parsed.tool_calls)) == (f"{CALL}broken{END_CALL}", 1)
    assert len(parse([f'{CALL}{{"broken {GOOD}']).tool_calls) == 1


def test_a_call_in_the_thoughts_is_a_thought() -> None:
    assert parse([f"{THINK}{GOOD}{END_THINK}x"]) == Parsed(GOOD, "x", ())


def test_thoughts_that_never_end_are_thoughts() -> None:
    assert parse(list("<think>\nand so on\n")) == Parsed("and so on", "", ())


def test_a_prompt_that_opened_the_thoughts() -> None:
    assert parse(["\nso</think>yes"], in_reasoning=True) == Parsed("so", "yes", ())


@pytest.mark.parametrize("cut", [["\n\nyes\n"], ["\n", "\nyes", "\n"]])
def test_line_breaks_after_the_prompts_own_closing_tag_belong_to_it(cut: list[str]) -> None:
    assert parse(cut, after_reasoning=True) == Parsed("", "yes\n", ())
    assert parse(cut) == Parsed("", "\n\nyes\n", ())
    assert parse(["\n<think>so</think>\nyes"], after_reasoning=True) == Parsed("so", "yes", ())


def test_code_is_content_where_no_python_tools_are() -> None:
    assert parse(["<code>f(1)</code>"]) == Parsed("", "<code>f(1)</code>", ())
    assert parse(["<code>f(1)</code>"], python_tools=TOOLS).tool_calls == (ToolCall("f", '{"a": 1}'),)


def test_content_is_streamed_as_it_comes() -> None:
    parser = OutputParser()
    assert [len(parser.feed(piece)) for piece in ("Hel", "lo", " wor")] == [1, 1, 1]


@pytest.mark.parametrize("unit", [CALL + '{"', CALL + '{"a' + END_CALL, CALL, END_CALL, CODE + "'" + END_CODE])
def test_hostile_text_costs_no_more_than_its_length_allows(unit: str) -> None:
    parser = OutputParser(python_tools=TOOLS)
    began = time.perf_counter()
    for _ in range(4000):
        parser.feed(unit)
    parser.finish()
    # Measured 0.02 to 0.6 s for 4,000 units; a parser that costs the square of the text takes minutes.
    assert time.perf_counter() - began < 10
