"""A conversation of many turns: what was said goes through the template, what comes back is parsed and kept."""

from __future__ import annotations

from collections.abc import Iterator

from artifacts.errors import refuse
from runtime.generate import Generator
from runtime.messages import Message
from runtime.output_parser import Event, OutputParser, Parsed
from runtime.settings import Settings
from runtime.speed import Speed
from runtime.template import ChatTemplate, Prompt
from runtime.tokenizer import Tokenizer
from runtime.tool_calls import ToolCall
from runtime.tools import Tools


class Conversation:
    """Turns with one model.

    Args:
        generator: what continues the prompts.
        tokenizer: the checkpoint's tokenizer, with a chat template.
        settings: how to choose tokens and when to stop.
        tools: what the model may call.
    """

    def __init__(
        self, generator: Generator, tokenizer: Tokenizer, settings: Settings, tools: Tools | None = None
    ) -> None:
        self._generator, self._tokenizer, self._settings = generator, tokenizer, settings
        self._template = ChatTemplate(tokenizer)
        self._tools = tools or Tools()
        self.thinking: bool | None = None
        """What to tell the template of thinking; `None` leaves it to the template."""
        self.system = ""
        self.turns: list[Message] = []
        self.speed = Speed(0)
        """How fast the last answer was."""

    def say(self, text: str) -> Iterator[Event]:
        """Say something and give the parts of the answer as they come.

        Raises:
            StageError: the template cannot carry the conversation, or it is too long; the turn is then not kept.
        """
        return self._answer([*self.turns, Message("user", text)])

    @property
    def pending(self) -> tuple[ToolCall, ...]:
        """Calls of the last answer, which wait for their results."""
        return self.turns[-1].tool_calls if self.turns else ()

    def check(self) -> None:
        """Insist that the template can carry what was set, before anything is said.

        Raises:
            StageError: it has no use for one of the keywords, or leaves the system prompt or a tool out.
        """
        self._prompt([Message("user", "?")])

    def reply_of_tools(self, results: list[str]) -> Iterator[Event]:
        """Give the results of the tools that the last answer called, in the order of its calls.

        Raises:
            StageError: it called another number of tools.
        """
        if len(results) != len(self.pending) or not results:
            wanted = f"{len(self.pending)} results"
            raise refuse("every call of the last answer wants one result", expected=wanted, found=f"{len(results)}")
        return self._answer([*self.turns, *(Message("tool", result) for result in results)])

    def reset(self) -> None:
        """Forget what was said; the system prompt stays."""
        self.turns = []

    def _prompt(self, turns: list[Message]) -> Prompt:
        """Render turns with the system prompt before them."""
        system = [Message("system", self.system)] if self.system else []
        return self._template.render([*system, *turns], thinking=self.thinking, tools=self._tools)

    def _answer(self, turns: list[Message]) -> Iterator[Event]:
        """Stream the answer; what there was of it is kept even if the listener goes away."""
        prompt = self._prompt(turns)
        parser = OutputParser(
            in_reasoning=prompt.in_reasoning,
            after_reasoning=prompt.after_reasoning,
            python_tools=self._tools.signatures,
            names=self._tools.names,
        )
        ids = self._tokenizer.encode(prompt.text, add_special_tokens=False)
        events: list[Event] = []
        self.speed = Speed(len(ids))
        try:
            for piece in self.speed.watch(self._generator.stream(ids, self._settings)):
                found = parser.feed(piece.text)
                events += found
                yield from found
            rest = parser.finish()
            events += rest
            yield from rest
        finally:
            self.speed.kept = self._generator.kept
            if self.speed.times:
                parsed = Parsed.of([*events, *parser.finish()])
                answer = Message("assistant", parsed.content, parsed.tool_calls, reasoning=parsed.reasoning)
                self.turns = [*turns, answer]
