"""Tools that a model may call, in the three ways that SmolLM3's template takes them."""

from __future__ import annotations

import ast
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from artifacts.errors import Problem, StageError
from runtime.schema import schema_fault
from runtime.tool_calls import Signatures

MEND = "give each tool a name and a JSON schema of its parameters"
MAY_BE_NULL = ("description", "parameters")
LONGEST_HEADER = 4096
"""Characters of a Python function's name and parameters."""


@dataclass(frozen=True)
class Tools:
    """What the model is told that it may call.

    Attributes:
        tools: as the chat-completions API has them, `{"type": "function", "function": {…}}`, or the function alone.
        xml_tools: the same under the template's own keyword.
        python_tools: functions to be called from Python: schemas, or source lines such as `def f(a, b): …`.
    """

    tools: Sequence[Any] = ()
    xml_tools: Sequence[Any] = ()
    python_tools: Sequence[Any] = ()

    def __post_init__(self) -> None:
        problems = list(self._judge()) or list(self._judge_names())
        if problems:
            raise StageError(problems)

    def keywords(self) -> dict[str, list[Any]]:
        """Give the template's keywords for the tools that there are."""
        given = {"tools": self.tools, "xml_tools": self.xml_tools, "python_tools": self.python_tools}
        return {name: list(map(_without_nulls, tools)) for name, tools in given.items() if tools}

    def as_xml_tools(self) -> Tools:
        """Give the same tools without the keyword `tools`, which earlier templates of SmolLM3 do not know."""
        unwrapped = [_function(tool) for tool in self.tools]
        return Tools((), [*unwrapped, *self.xml_tools], self.python_tools)

    @property
    def names(self) -> list[str]:
        """Names of all tools, in order."""
        return [name for tool in (*self.tools, *self.xml_tools, *self.python_tools) for name in names_of(tool)]

    @property
    def signatures(self) -> Signatures:
        """Parameter names of the tools that may be called from Python."""
        found: dict[str, list[str]] = {}
        for tool in self.python_tools:
            if isinstance(tool, str):
                found.update(_definitions(tool))
            else:
                function = _function(tool)
                found[function["name"]] = list((function.get("parameters") or {}).get("properties", {}))
        return found

    def _judge(self) -> Iterator[Problem]:
        for field in ("tools", "xml_tools", "python_tools"):
            tools = getattr(self, field)
            if not isinstance(tools, Sequence) or isinstance(tools, str):
                yield Problem(f"{field} is no list", "a list of tools", repr(tools)[:100], MEND)
                continue
            for number, tool in enumerate(tools):
                where = f"{field}[{number}]"
                if isinstance(tool, str) and field == "python_tools":
                    if not _definitions(tool):
                        yield Problem(f"{where} defines no function", "def name(parameters)", repr(tool)[:100], MEND)
                else:
                    yield from _judge_tool(where, tool)

    def _judge_names(self) -> Iterator[Problem]:
        for name, count in Counter(self.names).items():
            if count > 1:
                found = f"{count} tools called {name!r}"
                yield Problem("tools share a name", "a name for each, whatever the keyword", found, MEND)


def names_of(tool: Any) -> list[str]:
    """Give the name of a tool, or the names of all functions that a text of Python defines."""
    return [_function(tool)["name"]] if isinstance(tool, Mapping) else [name for name, _ in _definitions(tool)]


def _judge_tool(where: str, tool: object) -> Iterator[Problem]:
    """Yield what is wrong with one tool given as a schema."""
    if not isinstance(tool, Mapping) or tool.get("type", "function") != "function":
        yield Problem(f"{where} is no function", '{"type": "function", "function": {…}}', repr(tool)[:100], MEND)
        return
    function = _function(tool)
    name = function.get("name") if isinstance(function, Mapping) else None
    if not isinstance(name, str) or not re.fullmatch(r"[\w.-]{1,64}", name):
        yield Problem(f"{where} has no name", "1 to 64 letters, digits, '_', '-', '.'", repr(name)[:100], MEND)
        return
    if not isinstance(function.get("description") or "", str):
        yield Problem(f"{where} has a description that is no text", "a string", repr(function["description"]), MEND)
    schema = function.get("parameters")
    schema = {} if schema is None else schema
    reason = schema_fault(schema)
    if not reason and schema and schema.get("type", "object") != "object":
        reason = f"type {schema['type']!r} at the top, where arguments are an object"
    if reason:
        yield Problem(f"{where} ({name}) has parameters that are no JSON schema", "an object schema", reason, MEND)


def _without_nulls(tool: Any) -> Any:
    """Give a tool without the fields that a client left empty: `null` says no more than nothing."""
    if not isinstance(tool, Mapping):
        return tool
    if "function" in tool:
        return {**tool, "function": _without_nulls(tool["function"])}
    return {name: value for name, value in tool.items() if value is not None or name not in MAY_BE_NULL}


def _function(tool: Mapping[str, Any]) -> Any:
    """Give the function of a tool, whether it is wrapped or stands alone."""
    return tool.get("function", tool)


def _definitions(source: str) -> list[tuple[str, list[str]]]:
    """Give name and parameter names of the functions that a text of Python defines; bodies need not be Python."""
    begun = re.finditer(r"^[ \t]*(?:async[ \t]+)?(def\s)", source, re.MULTILINE)
    found = (_header(source[match.start(1) :]) for match in begun)
    return [
        (header.name, [each.arg for each in (*header.args.posonlyargs, *header.args.args, *header.args.kwonlyargs)])
        for header in found
        if header
    ]


def _header(source: str) -> ast.FunctionDef | None:
    """Read what stands between `def` and the bracket that closes its parameters: the first that makes it Python."""
    for bracket in re.finditer(r"\)", source[:LONGEST_HEADER]):
        try:
            (found,) = ast.parse(f"{source[: bracket.end()]}: ...").body
        except (SyntaxError, ValueError):
            continue
        return found if isinstance(found, ast.FunctionDef) else None
    return None
