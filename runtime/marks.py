"""A second rendering with a mark at the end of everything that a template is given shows what reaches the prompt.

A short message, such as "user", would be found by its letters in the template's own markup; its mark would not.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any
from uuid import uuid4

SYSTEM_FLAGS = ("/no_think", "/think", "/system_override")
"""Words that a template takes out of a system message, because they are meant for it and not for the model."""

TOOL_KEYWORDS = ("tools", "xml_tools", "python_tools")


@dataclass(frozen=True)
class Marks:
    """Marks of one conversation; no text can hold one by chance."""

    key: str = field(default_factory=lambda: uuid4().hex)

    def reasoning(self, number: int) -> str:
        """Give the mark of a message's thoughts."""
        return f"{self.key}r{number}r"

    def content(self, number: int) -> str:
        """Give the mark of a message's content."""
        return f"{self.key}c{number}c"

    def call(self, number: int, place: int) -> str:
        """Give the mark of a message's tool call."""
        return f"{self.key}f{number}f{place}f"

    def tool(self, keyword: str, place: int) -> str:
        """Give the mark of a tool."""
        return f"{self.key}{keyword}{place}t"

    def turns(self, turns: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
        """Give the same messages with a mark at the end of each text; what says nothing is left as it is."""
        return [self._turn(number, turn) for number, turn in enumerate(turns)]

    def keywords(self, keywords: Mapping[str, Any]) -> dict[str, Any]:
        """Give the template's keywords with a mark in every tool."""
        marked = {
            name: [_marked_tool(tool, self.tool(name, place)) for place, tool in enumerate(keywords[name])]
            for name in TOOL_KEYWORDS
            if name in keywords
        }
        return {**keywords, **marked}

    def _turn(self, number: int, turn: Mapping[str, Any]) -> dict[str, Any]:
        marked = dict(turn)
        if turn.get("reasoning_content", "").strip():
            marked["reasoning_content"] += self.reasoning(number)
        if "".join(pieces(turn)):
            marked["content"] += self.content(number)
        if "tool_calls" in turn:
            marked["tool_calls"] = [
                {**call, "function": _named(call["function"], self.call(number, place))}
                for place, call in enumerate(turn["tool_calls"])
            ]
        return marked


def pieces(turn: Mapping[str, Any]) -> list[str]:
    """Give what of a message's content is meant for the model: all of it but the flags in a system message."""
    found = [turn["content"]]
    if turn["role"] == "system":
        for flag in SYSTEM_FLAGS:
            found = [part for piece in found for part in piece.split(flag)]
    return [piece.strip() for piece in found]


def _marked_tool(tool: Any, mark: str) -> Any:
    if isinstance(tool, str):
        return f"{tool}  # {mark}"
    return {**tool, "function": _named(tool["function"], mark)} if "function" in tool else _named(tool, mark)


def _named(function: Mapping[str, Any], mark: str) -> dict[str, Any]:
    return {**function, "name": function["name"] + mark}
