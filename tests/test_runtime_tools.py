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
        [{"type": "function", "function": WEATHER}], [{"name": "g"}], ["def h(a, *, b: int = 1): ...", WEATHER]
    )
    assert tools.names == ["get_weather", "g", "h", "get_weather"]
    assert tools.signatures == {"h": ["a", "b"], "get_weather": ["city", "unit"]}
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
        ({"name": "f", "parameters": None}, "no JSON schema"),
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
