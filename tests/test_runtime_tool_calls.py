"""What is wholly a call is one, what is not is none, and written calls are read again."""

from __future__ import annotations

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from runtime.tool_calls import ToolCall, read_json_call, read_python_calls, write_json_call, write_python_calls

TOOLS = {"get_weather": ["city", "unit"], "web.search": ["query"]}
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=6,
)


def test_arguments_may_be_an_object_or_its_text() -> None:
    whole = ToolCall("f", '{"a": 1}')
    assert read_json_call('{"name": "f", "arguments": {"a": 1}}') == whole
    assert read_json_call('{"name": "f", "arguments": "{\\"a\\": 1}"}') == whole
    assert read_json_call('{"name": "f"}') == ToolCall("f", "{}")


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{",
        "[]",
        '{"name": 3}',
        '{"name": ""}',
        '{"name": "f", "arguments": [1]}',
        '{"name": "f", "arguments": {"a": NaN}}',
        '{"name": "f", "arguments": {"a": "\\ud800"}}',
        '{"name": "f", "parameters": {}}',
        '{"name": "f", "arguments": ' + "[" * 100000,
        '{"name": "f"} and more',
    ],
)
def test_what_is_no_call_is_none(text: str) -> None:
    assert read_json_call(text) is None


@settings(deadline=None)
@given(st.text(min_size=1), st.dictionaries(st.text(), JSON, max_size=4))
def test_written_json_is_read_again(name: str, arguments: dict[str, object]) -> None:
    call = ToolCall(name, json.dumps(arguments, ensure_ascii=False))
    body = write_json_call(call).removeprefix("<tool_call>").removesuffix("</tool_call>")
    assert read_json_call(body) == call


def test_python_calls_get_their_parameters_names() -> None:
    text = 'get_weather("Paris", unit="C")\nweb.search(query="a\\n</code>")\n'
    assert read_python_calls(text, TOOLS) == [
        ToolCall("get_weather", '{"city": "Paris", "unit": "C"}'),
        ToolCall("web.search", '{"query": "a\\n</code>"}'),
    ]


@pytest.mark.parametrize(
    "text",
    [
        "",
        "x = get_weather('Paris')",
        "get_weather(city)",
        "unknown(1)",
        "get_weather(*['Paris'])",
        "get_weather(**{})",
        "get_weather('a', city='b')",
        "get_weather(1, 2, 3)",
        "get_weather(city={1, 2})",
        "get_weather(city=b'x')",
        "get_weather(city=1e999)",
        "get_weather(",
        "get_weather(" + "(" * 5000,
        "import os",
        "\x00",
    ],
)
def test_python_that_is_more_than_calls_is_none(text: str) -> None:
    assert read_python_calls(text, TOOLS) is None


def test_written_python_is_read_again() -> None:
    calls = [ToolCall("get_weather", '{"city": "Zürich", "unit": null}'), ToolCall("web.search", '{"query": "\'\\""}')]
    body = write_python_calls(calls).removeprefix("<code>").removesuffix("</code>")
    assert read_python_calls(body, TOOLS) == calls
