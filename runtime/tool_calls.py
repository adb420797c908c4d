"""A tool call as models write it: JSON between `<tool_call>` tags, or Python calls between `<code>` tags.

Reading is strict: what is not wholly a call is no call, and its text stays text. Writing is the inverse, for earlier
turns of a conversation.
"""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NoReturn

Signatures = Mapping[str, Sequence[str]]
"""Parameter names, in order, of every tool that may be called from Python."""

_STRING_JSON = re.compile(r'"(?:[^"\\]|\\.)*"', re.DOTALL)
_STRING_PYTHON = re.compile(
    r'"""(?:\\.|[^\\])*?"""'
    r"|'''(?:\\.|[^\\])*?'''"
    r'|"(?:\\.|[^"\\\n])*"'
    r"|'(?:\\.|[^'\\\n])*'"
    r"|#[^\n]*",
    re.DOTALL,
)


@dataclass(frozen=True)
class ToolCall:
    """One call: the tool's name and its arguments as the text of a JSON object."""

    name: str
    arguments: str


def read_json_call(text: str) -> ToolCall | None:
    """Read `{"name": …, "arguments": {…}}`; `None` if it is anything else.

    Raw line breaks inside strings are taken, because models write them; NaN and lone surrogates are not JSON text.
    """
    try:
        raw = json.loads(text, strict=False, parse_constant=_no_constant)
        if not isinstance(raw, dict) or set(raw) - {"name", "arguments", "id", "type"}:
            return None
        arguments = raw.get("arguments", {})
        if isinstance(arguments, str):
            arguments = json.loads(arguments, strict=False, parse_constant=_no_constant)
        return _call(raw.get("name"), arguments)
    except (ValueError, RecursionError):
        return None


def read_python_calls(text: str, signatures: Signatures) -> list[ToolCall] | None:
    """Read lines such as `get_weather(city="Paris")`; `None` if any statement is not a call of a known tool.

    Arguments must be literals; positional ones get their names from the tool's signature.
    """
    try:
        statements = ast.parse(text.strip()).body
        calls = [_read_statement(statement, signatures) for statement in statements]
    except (SyntaxError, ValueError, TypeError, RecursionError, MemoryError):
        return None
    return calls or None


def ends_in_json_string(text: str) -> bool:
    """Whether the text stops inside a JSON string, so that a closing tag there is not one."""
    return '"' in _STRING_JSON.sub("", text)


def ends_in_python_string(text: str) -> bool:
    """Whether the text stops inside a Python string, so that a closing tag there is not one."""
    rest = _STRING_PYTHON.sub("", text)
    return '"' in rest or "'" in rest


def write_json_call(call: ToolCall) -> str:
    """Write a call between its tags, as the model is told to write it."""
    name = json.dumps(call.name, ensure_ascii=False)
    return f'<tool_call>\n{{"name": {name}, "arguments": {call.arguments}}}\n</tool_call>'


def write_python_calls(calls: Sequence[ToolCall]) -> str:
    """Write calls as lines of Python between `<code>` tags."""
    lines = []
    for call in calls:
        arguments = ", ".join(f"{name}={value!r}" for name, value in json.loads(call.arguments).items())
        lines.append(f"{call.name}({arguments})\n")
    return f"<code>\n{''.join(lines)}</code>"


def _read_statement(statement: ast.stmt, signatures: Signatures) -> ToolCall:
    """Read one statement.

    Raises:
        ValueError: it is no call of a known tool with literal arguments.
    """
    if not isinstance(statement, ast.Expr) or not isinstance(statement.value, ast.Call):
        raise ValueError("not a call")
    node = statement.value
    name = ast.unparse(node.func)
    if name not in signatures or len(node.args) > len(signatures[name]):
        raise ValueError("no known tool, or too many arguments")
    arguments = dict(zip(signatures[name], map(ast.literal_eval, node.args), strict=False))
    for keyword in node.keywords:
        if keyword.arg is None or keyword.arg in arguments:
            raise ValueError("an argument without a name, or given twice")
        arguments[keyword.arg] = ast.literal_eval(keyword.value)
    call = _call(name, arguments)
    if call is None:
        raise ValueError("arguments that JSON cannot carry")
    return call


def _call(name: object, arguments: Any) -> ToolCall | None:
    """Make a call of a name and an object of arguments, if they are that and can be written as UTF-8."""
    if not isinstance(name, str) or not name or not isinstance(arguments, dict):
        return None
    text = json.dumps(arguments, ensure_ascii=False, allow_nan=False)
    try:
        (name + text).encode()
    except UnicodeEncodeError:
        return None
    return ToolCall(name, text)


def _no_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not JSON")
