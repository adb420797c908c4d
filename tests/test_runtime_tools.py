"""A tool has a name and a schema, or it is refused before the model hears of it."""

from __future__ import annotations

from typing import Any

import pytest

from artifacts.errors import StageError
from runtime.tools import Tools

SCHEMA = {"type": "object", "properties": {"city": {"type": "string"}, "unit": {"type": ["string", "null"]}}}
WEATHER = {"name": "get_weather", "description": "Tells the weather", "parameters": SCHEMA}


def deep(levels: int) -> dict[str, Any]:
    schema: dict[str, Any] = {"type": "string"}
    for _ in range(levels):
        schema = {"type": "array", "items": schema}
    return {"name": "f", "parameters": {"type": "object", "properties": {"a": schema}}}


def test_names_of_every_form() -> None:
    tools = Tools(
        [{"type": "function", "function": WEATHER}],
        [{"name": "g"}],
        ["def h(a, *, b: int = 1): ...", {**WEATHER, "name": "w"}],
    )
    assert tools.names == ["get_weather", "g", "h", "w"]
    assert tools.signatures == {"h": ["a", "b"], "w": ["city", "unit"]}
    assert set(tools.keywords()) == {"tools", "xml_tools", "python_tools"}


@pytest.mark.parametrize(
    ("tool", "reason"),
    [
        (3, "is no function"),
        ({"type": "retrieval"}, "is no function"),
        ({}, "has no name"),
        ({"function": []}, "has no name"),
        ({"name": "a b"}, "has no name"),
        ({"name": "f", "description": 3}, "description that is no text"),
        ({"name": "f", "parameters": True}, "no JSON schema"),
        ({"name": "f", "parameters": 0}, "no JSON schema"),
        ({"name": "f", "parameters": {"type": "string"}}, "no JSON schema"),
        ({"name": "f", "parameters": {"type": "thing"}}, "no JSON schema"),
        ({"name": "f", "parameters": {"properties": []}}, "no JSON schema"),
        ({"name": "f", "parameters": {"properties": {"a": 3}}}, "no JSON schema"),
        ({"name": "f", "parameters": {"required": "a"}}, "no JSON schema"),
        (deep(100), "inside each other"),
    ],
)
def test_what_is_no_tool_is_refused(tool: object, reason: str) -> None:
    with pytest.raises(StageError, match=reason):
        Tools([tool])


def test_a_line_of_python_that_defines_nothing_is_refused() -> None:
    with pytest.raises(StageError, match="defines no function"):
        Tools(python_tools=["x = 1"])


@pytest.mark.parametrize(
    "schema",
    [
        *({"anyOf": 3}, {"anyOf": []}, {"oneOf": [3]}, {"properties": {"a": {"enum": "x"}}}, {"items": 3}, {"not": 3}),
        *({"type": []}, {"type": ["thing"]}, {"type": 3}, {"title": 3}, {"minLength": -1}, {"minLength": 1.5}),
        *({"maximum": "3"}, {"minimum": True}, {"multipleOf": 0}, {"uniqueItems": "yes"}, {"$defs": {"a": "b"}}),
        *({"additionalProperties": "no"}, {"prefixItems": {}}, {"dependentRequired": {"a": "b"}}, {"$ref": 3}),
        *({"items": [{"type": "string"}, 3]}, {"patternProperties": []}, {"description": None}, {"maximum": 1e999}),
    ],
)
def test_what_is_no_schema_is_refused_wherever_it_lies(schema: dict[str, Any]) -> None:
    for parameters in ({"type": "object", "properties": {"a": schema}}, {"$defs": {"a": {"anyOf": [{}, schema]}}}):
        with pytest.raises(StageError, match="no JSON schema"):
            Tools([{"name": "f", "parameters": parameters}])


@pytest.mark.parametrize(
    "schema",
    [
        *(
            {},
            {"anyOf": [{"type": "string"}, {"type": "null"}]},
            {"enum": ["a", 1, None]},
            {"items": True},
            {"const": 3},
        ),
        *({"type": ["string", "null"], "maxLength": 3.0, "pattern": "^a"}, {"$ref": "#/$defs/a", "default": None}),
        *({"additionalProperties": False, "patternProperties": {"^a": {"minimum": -1.5}}}, {"colour": "red"}),
        *({"items": [{"type": "string"}], "additionalItems": False}, {"properties": {"enum": {"type": "string"}}}),
    ],
)
def test_a_schema_is_taken(schema: dict[str, Any]) -> None:
    tools = Tools([{"name": "f", "parameters": {"type": "object", "properties": {"a": schema}}}])
    assert tools.keywords()["tools"][0]["parameters"]["properties"]["a"] == schema


def test_what_a_client_left_empty_counts_as_absent() -> None:
    empty = {"name": "f", "description": None, "parameters": None}
    assert Tools([{"type": "function", "function": empty}]).keywords() == {
        "tools": [{"type": "function", "function": {"name": "f"}}]
    }
    assert Tools(python_tools=[empty]).signatures == {"f": []}


@pytest.mark.parametrize(
    "tools",
    [
        {"tools": [WEATHER, WEATHER]},
        {"tools": [WEATHER], "xml_tools": [WEATHER]},
        {"tools": [WEATHER], "python_tools": ["def get_weather(city): ..."]},
        {"python_tools": ["def f(a): ...\ndef f(b): ..."]},
    ],
)
def test_two_tools_of_one_name_are_refused(tools: dict[str, Any]) -> None:
    with pytest.raises(StageError, match=r"tools share a name[\s\S]*found: +2 tools called"):
        Tools(**tools)


@pytest.mark.parametrize(
    ("source", "signatures"),
    [
        ("def f(a: dict[str, int], b: str): ...", {"f": ["a", "b"]}),
        ("def f(a=(1, 2), b='x, y) z'):\n    return a", {"f": ["a", "b"]}),
        ("# def h(a)\ndef f(a, *args, b=1, **more) -> str: whatever is said here", {"f": ["a", "b"]}),
        (
            "async def f(a, /, b):\n    pass\n\n  def g(\n    c: int,  # how many\n  ): pass",
            {"f": ["a", "b"], "g": ["c"]},
        ),
    ],
)
def test_parameters_of_python_are_read_as_python(source: str, signatures: dict[str, list[str]]) -> None:
    assert Tools(python_tools=[source]).signatures == signatures


def test_python_that_never_closes_its_brackets_is_no_tool() -> None:
    with pytest.raises(StageError, match="defines no function"):
        Tools(python_tools=["def f(a, (b): ..."])
