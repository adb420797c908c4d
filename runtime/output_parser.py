"""What a model writes is reasoning, content and tool calls; any cut of the stream gives the same parts as the whole.

::

    <think> reasoning </think> content <tool_call>{"name": …, "arguments": {…}}</tool_call> content
                                       <code> get_weather(city="Paris") </code>

`<think>` counts only as the first thing that is written. Line breaks beside a tag belong to it. A call that cannot be
read or names a tool that was not given is content, to the letter, and so is a tag that is never closed; a closing tag
inside a string of the call is part of that string.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass

from runtime.tool_calls import (
    Signatures,
    ToolCall,
    ends_in_json_string,
    ends_in_python_string,
    read_json_call,
    read_python_calls,
)

THINK, END_THINK = "<think>", "</think>"
CALL, END_CALL = "<tool_call>", "</tool_call>"
CODE, END_CODE = "<code>", "</code>"
TAGS = (THINK, END_THINK, CALL, END_CALL, CODE, END_CODE)
"""Tags that must reach the parser even where the tokenizer calls them special."""

_FIRST = re.compile(r"\s*(\S)")

MOST_CLOSINGS = 64
"""Closing tags inside one call's strings; past that it is no call. Keeps hostile text from costing its square."""


@dataclass(frozen=True)
class Reasoning:
    """A piece of what stands between `<think>` and `</think>`."""

    text: str


@dataclass(frozen=True)
class Content:
    """A piece of the answer."""

    text: str


Event = Reasoning | Content | ToolCall


@dataclass(frozen=True)
class Parsed:
    """A whole answer."""

    reasoning: str
    content: str
    tool_calls: tuple[ToolCall, ...]

    @classmethod
    def of(cls, events: Iterable[Event]) -> Parsed:
        """Join the pieces."""
        events = list(events)
        return cls(
            "".join(event.text for event in events if isinstance(event, Reasoning)),
            "".join(event.text for event in events if isinstance(event, Content)),
            tuple(event for event in events if isinstance(event, ToolCall)),
        )


class OutputParser:
    """Parses a stream piece by piece.

    Args:
        in_reasoning: the prompt has already opened `<think>`.
        after_reasoning: the prompt ends with `</think>`; line breaks that come first belong to it.
        json_calls: read `<tool_call>`; without it the tag is content.
        python_tools: tools that may be called between `<code>` tags; without any, `<code>` is content.
        names: tools that may be called; a call of another is content. Without any, every name is taken.
    """

    def __init__(
        self,
        *,
        in_reasoning: bool = False,
        after_reasoning: bool = False,
        json_calls: bool = True,
        python_tools: Signatures | None = None,
        names: Collection[str] = (),
    ) -> None:
        self._names = names
        self._step: Callable[[], bool] = self._reasoning if in_reasoning else self._start
        self._signatures = python_tools or {}
        self._tags = [*([CALL] if json_calls else []), *([CODE] if self._signatures else [])]
        self._events: list[Event] = []
        self._text = ""
        self._after_reasoning = after_reasoning
        self._strip = True  # whether line breaks that come now belong to the tag before them
        self._breaks = ""  # line breaks before the open tag of a call that may still turn out to be content
        self._tag = CALL
        self._searched, self._closings = 0, 0

    def feed(self, text: str) -> list[Event]:
        """Take more text and give the pieces that are now certain."""
        self._text += text
        while self._step():
            pass
        return self._take()

    def finish(self) -> list[Event]:
        """Give what was held back, once no more text will come."""
        while self._step == self._call:
            self._give_up()
            while self._step():
                pass
        if self._step == self._reasoning:
            self._events.append(Reasoning(self._text.rstrip("\n")))
        else:
            self._events.append(Content(self._text))
        self._text = ""
        return self._take()

    def _take(self) -> list[Event]:
        events, self._events = self._events, []
        return [event for event in events if isinstance(event, ToolCall) or event.text]

    def _start(self) -> bool:
        """Nothing but white space so far. Like every step, says whether the next one has something to decide."""
        text = self._text.lstrip()
        if text.startswith(THINK):
            self._step, self._text = self._reasoning, text[len(THINK) :]
            return True
        if THINK.startswith(text):
            return False
        self._step, self._strip = self._content, self._after_reasoning
        return True

    def _reasoning(self) -> bool:
        """Between `<think>` and `</think>`."""
        self._strip_breaks()
        head, tag, rest = self._text.partition(END_THINK)
        if tag:
            self._events.append(Reasoning(head.rstrip("\n")))
            self._step, self._text, self._strip = self._content, rest, True
            return True
        self._events.append(Reasoning(self._certain([END_THINK])))
        return False

    def _content(self) -> bool:
        """In the answer."""
        self._strip_breaks()
        found = min(((at, tag) for tag in self._tags if (at := self._text.find(tag)) >= 0), default=None)
        if found is None:
            self._events.append(Content(self._certain(self._tags)))
            return False
        at, self._tag = found
        head, self._text = self._text[:at], self._text[at + len(self._tag) :]
        content = head.rstrip("\n")
        self._events.append(Content(content))
        self._breaks = head[len(content) :]
        self._step, self._searched, self._closings = self._call, 0, 0
        return True

    def _call(self) -> bool:
        """After the open tag of a call."""
        first = _FIRST.match(self._text)
        if self._tag == CALL and first is not None and first.group(1) != "{":
            self._give_up()
            return True
        closing = END_CALL if self._tag == CALL else END_CODE
        while (at := self._text.find(closing, self._searched)) >= 0:
            if self._close(at, at + len(closing)):
                return True
        self._searched = max(self._searched, len(self._text) - len(closing) + 1)
        return False

    def _close(self, at: int, end: int) -> bool:
        """Decide what a closing tag at `at` closes: a call, text that is no call, or nothing, inside a string."""
        body = self._text[:at]
        calls, in_string = self._read(body)
        if calls:
            self._events += calls
            self._step, self._text, self._strip, self._breaks = self._content, self._text[end:], True, ""
            return True
        self._searched, self._closings = end, self._closings + 1
        if in_string and self._closings < MOST_CLOSINGS:
            return False
        self._give_up()
        return True

    def _read(self, body: str) -> tuple[list[ToolCall], bool]:
        """Read the calls of a body, and say whether it ends inside a string."""
        if self._tag == CALL:
            call = read_json_call(body)
            calls, in_string = [] if call is None else [call], call is None and ends_in_json_string(body)
        else:
            found = read_python_calls(body, self._signatures)
            calls, in_string = found or [], found is None and ends_in_python_string(body)
        known = not self._names or all(call.name in self._names for call in calls)
        return calls if known else [], in_string

    def _give_up(self) -> None:
        """Take the open tag for content, and look again at what follows it."""
        self._events.append(Content(self._breaks + self._tag))
        self._step, self._breaks = self._content, ""

    def _strip_breaks(self) -> None:
        if self._strip:
            self._text = self._text.lstrip("\n")
            self._strip = not self._text

    def _certain(self, tags: list[str]) -> str:
        """Take the text that no tag can claim any more: all but an unfinished tag and the line breaks before it."""
        cut = len(self._text)
        for tag in tags:
            for length in range(1, min(len(tag), len(self._text) + 1)):
                if self._text.endswith(tag[:length]):
                    cut = min(cut, len(self._text) - length)
        certain = self._text[:cut].rstrip("\n")
        self._text = self._text[len(certain) :]
        return certain
