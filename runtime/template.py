"""Prompts come from the checkpoint's chat template and from nothing else; what it cannot carry is an error.

Templates leave out in silence what they do not know: SmolLM3's writes no tool calls of earlier turns and no system
message after the first. So the prompt is searched for everything that went in, by its letters and by a mark. Whether
it has opened the model's thoughts is read off it too: only the template knows its rule (in SmolLM3's a flag in the
system message beats the keyword).
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from artifacts.errors import StageError, refuse
from runtime.lost import lost, lost_tools
from runtime.marks import Marks
from runtime.messages import Message
from runtime.output_parser import END_THINK, THINK
from runtime.template_variables import keywords_of
from runtime.tokenizer import Tokenizer
from runtime.tool_calls import ToolCall, write_json_call, write_python_calls
from runtime.tools import Tools


@dataclass(frozen=True)
class Prompt:
    """A rendered conversation that ends where the assistant's turn begins.

    Attributes:
        text: what the model reads.
        in_reasoning: the prompt has already opened `<think>`.
        after_reasoning: the prompt has closed it, and ends there.
    """

    text: str
    in_reasoning: bool = False
    after_reasoning: bool = False


class ChatTemplate:
    """The template of one tokenizer.

    Raises:
        StageError: the tokenizer has none.
    """

    def __init__(self, tokenizer: Tokenizer) -> None:
        if not tokenizer.chat_template:
            raise refuse(
                "this model has no chat template, so it cannot chat",
                expected="chat_template.jinja beside its tokenizer",
                found="none",
                remedy="generate from plain text (python -m runtime generate), or export a chat model",
            )
        self._tokenizer = tokenizer
        self._source = tokenizer.get_chat_template()

    def render(
        self,
        messages: Sequence[Message],
        *,
        thinking: bool | None = None,
        tools: Tools | None = None,
        keywords: Mapping[str, Any] | None = None,
    ) -> Prompt:
        """Render a conversation.

        Args:
            messages: see `read_messages`.
            thinking: the keyword `enable_thinking`; `None` leaves it to the template.
            tools: what the model may call.
            keywords: further keywords of the template.

        Raises:
            StageError: the template refuses the conversation, or leaves out something of it (everything is named).
        """
        tools = tools or Tools()
        known = tools.keywords() if "tools" in self.variables else tools.as_xml_tools().keywords()
        given = {**(keywords or {}), **known, **({} if thinking is None else {"enable_thinking": thinking})}
        self._judge_keywords(given)
        turns = [self._turn(message, tools) for message in messages]
        text = self._apply(turns, given, add_generation_prompt=True)
        marks = Marks()
        marked = self._apply(marks.turns(turns), marks.keywords(given), add_generation_prompt=True)
        problems = [*lost(text, marked, turns, marks), *lost_tools(text, marked, given, marks)]
        if problems:
            raise StageError(problems)
        opening = text[_common(text, self._apply(turns, given, add_generation_prompt=False)) :]
        return Prompt(text, opening.rfind(THINK) > opening.rfind(END_THINK), opening.rstrip().endswith(END_THINK))

    @cached_property
    def variables(self) -> frozenset[str]:
        """Keywords that the template has a use for."""
        return keywords_of(self._source)

    @cached_property
    def carries_tool_calls(self) -> bool:
        """Whether the template itself writes the tool calls of earlier turns; tried with a small conversation."""
        call = {"name": "sentinel_call", "arguments": {"sentinel_name": "sentinel_value"}}
        calls = [{"type": "function", "function": call}]
        return self._carries({"tool_calls": calls}, ["sentinel_call", "sentinel_name", "sentinel_value"])

    @cached_property
    def carries_reasoning(self) -> bool:
        """Whether the template itself writes what the model thought in earlier turns; tried likewise."""
        return self._carries({"reasoning_content": "sentinel_thought"}, ["sentinel_thought"])

    def _carries(self, more: Mapping[str, Any], sentinels: Sequence[str]) -> bool:
        turns = [{"role": "user", "content": "x"}, {"role": "assistant", "content": "", **more}]
        try:
            text = self._apply(turns, {}, add_generation_prompt=False)
        except StageError:
            return False
        return all(sentinel in text for sentinel in sentinels)

    def _turn(self, message: Message, tools: Tools) -> dict[str, Any]:
        """Give a message as the template takes it, with all that it does not know written into its content."""
        turn: dict[str, Any] = {"role": message.role, "content": message.content}
        if message.tool:
            # A template may write it or not: it is the name of the call before, which is in the prompt.
            turn["name"] = message.tool
        if message.reasoning and self.carries_reasoning:
            turn["reasoning_content"] = message.reasoning
        elif message.reasoning:
            turn["content"] = f"{THINK}\n{message.reasoning}\n{END_THINK}\n\n{turn['content']}"
        if message.tool_calls and self.carries_tool_calls:
            turn["tool_calls"] = [_as_sent(call) for call in message.tool_calls]
        elif message.tool_calls:
            turn["content"] = "\n".join(filter(None, [turn["content"], _written(message.tool_calls, tools)]))
        return turn

    def _apply(self, turns: list[dict[str, Any]], keywords: Mapping[str, Any], **more: bool) -> str:
        try:
            return self._tokenizer.apply_chat_template(turns, tokenize=False, **keywords, **more)
        except Exception as error:  # a template may fail in any way: its own refusal, or an operation on what it got
            raise refuse(
                "the chat template refuses this conversation",
                expected="turns in the order and of the kinds that it knows",
                found=str(error)[:300],
                remedy="see chat_template.jinja of the model",
            ) from error

    def _judge_keywords(self, given: Mapping[str, Any]) -> None:
        unknown = sorted(given.keys() - self.variables)
        if unknown:
            known = sorted({"enable_thinking", "tools", "xml_tools", "python_tools"} & self.variables)
            raise refuse(
                f"the chat template has no use for {', '.join(unknown)}",
                expected=f"{known}",
                found=f"{unknown}",
                remedy="leave it out, or use a model whose template knows it",
            )


def _written(calls: Sequence[ToolCall], tools: Tools) -> str:
    """Write calls as the model writes them: as Python where they are calls of Python tools."""
    if all(call.name in tools.signatures for call in calls):
        return write_python_calls(calls)
    return "\n".join(map(write_json_call, calls))


def _as_sent(call: ToolCall) -> dict[str, Any]:
    return {"type": "function", "function": {"name": call.name, "arguments": json.loads(call.arguments)}}


def _common(one: str, other: str) -> int:
    """Give the length of what two texts begin with alike."""
    # Without the generation prompt the text is, in every template that is one, the beginning of the whole.
    return len(other) if one.startswith(other) else 0
