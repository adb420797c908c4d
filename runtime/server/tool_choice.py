"""What the tools of a request and its `tool_choice` come to: what the model is told, and how a call begins."""

from __future__ import annotations

from typing import Any

from runtime.output_parser import CALL, CODE
from runtime.server.errors import ApiError
from runtime.server.requests import ChatRequest, NamedTool
from runtime.tools import Tools


def told_tools(request: ChatRequest, keywords: dict[str, Any]) -> Tools:
    """Take the tools out of a request; with `tool_choice` "none" the model is not told of any.

    Args:
        request: the request.
        keywords: its `chat_template_kwargs`; the tools among them are taken out.

    Raises:
        ApiError: `tools` are given twice.
        StageError: something is no tool.
    """
    keyword, xml, python = (keywords.pop(name, None) or [] for name in ("tools", "xml_tools", "python_tools"))
    if request.tools and keyword:
        raise ApiError(400, "tools are given twice: as a field, and in chat_template_kwargs", param="tools")
    tools = Tools(request.tools or keyword, xml, python)
    return Tools() if request.tool_choice == "none" else tools


def callable_names(request: ChatRequest, tools: Tools) -> list[str]:
    """Give the tools that the answer may call: the one that was named, or all."""
    choice = request.tool_choice
    return [choice.function.name] if isinstance(choice, NamedTool) else tools.names


def forced_call(request: ChatRequest, tools: Tools) -> str:
    """Give the beginning of a call, where the request insists on one: up to the name, and with it where it is certain.

    It begins as JSON or as Python, in whichever form the tool was given; JSON where there are tools of both.

    Raises:
        ApiError: there is no such tool.
    """
    choice = request.tool_choice
    if choice in (None, "auto", "none"):
        return ""
    names, by_json = tools.names, Tools(tools.tools, tools.xml_tools).names
    if not names:
        raise ApiError(400, "tool_choice wants a call, but there are no tools", param="tool_choice")
    if isinstance(choice, NamedTool):
        name = choice.function.name
        if name not in names:
            raise ApiError(400, f"tool_choice: no tool is called {name!r}", param="tool_choice")
        return _opening(name, name in by_json)
    return _opening(names[0] if len(names) == 1 else None, bool(by_json))


def _opening(name: str | None, as_json: bool) -> str:
    """Begin a call of one tool, or of any; it ends where a token does, for no model has seen half a token there.

    A colon is one's end; the space after it begins the next, as in ` "` and ` {"`.
    """
    if as_json:
        return f'{CALL}\n{{"name":' + ("" if name is None else f' "{name}", "arguments":')
    return f"{CODE}\n" + ("" if name is None else f"{name}(")
