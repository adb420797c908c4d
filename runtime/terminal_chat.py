"""Talk to the model at the terminal; answers stream, thoughts are dim, and a line that begins with / is a command.

::

    /think /no_think   let it think from now on, or not      /system TEXT   another system prompt, from the beginning
    /reset             begin anew                            /history       what was said
    /tool RESULT       answer the last call (once for each)  /exit          leave (or end of input)
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterable, Iterator, Sequence

from rich.console import Console

from artifacts.command import DONE, piped_lines, stderr, stdout
from artifacts.errors import StageError
from runtime import options
from runtime.conversation import Conversation
from runtime.model import Model
from runtime.output_parser import Event, Reasoning
from runtime.terminal_generate import loaded
from runtime.tool_calls import ToolCall


def chat(given: argparse.Namespace) -> int:
    """Talk to the model; Ctrl-C stops an answer or drops a line, /exit or the end of input leaves."""
    model = Model(given.model, options.run_options(given))
    settings, tools = options.settings(given, model.defaults), options.tools(given)
    with loaded(model):
        conversation = Conversation(model.generator(), model.tokenizer, settings, tools)
        conversation.system, conversation.thinking = given.system, given.think
        conversation.check()
        Terminal(conversation, stdout()).talk(_lines())
    return DONE


class Terminal:
    """A conversation in lines of text.

    Args:
        conversation: the conversation.
        console: where answers go.
    """

    def __init__(self, conversation: Conversation, console: Console) -> None:
        self._conversation, self._console = conversation, console
        self._pending: Sequence[ToolCall] = ()
        self._results: list[str] = []

    def talk(self, lines: Iterable[str]) -> None:
        """Answer line by line until one says /exit or there are no more."""
        for line in lines:
            text = line.strip()
            if text == "/exit":
                return
            try:
                if text.startswith("/"):
                    self._command(text)
                elif text:
                    self._show(self._conversation.say(text))
            except StageError as error:
                stderr().print(str(error), style="red", markup=False)

    def _command(self, text: str) -> None:
        name, _, rest = text.partition(" ")
        conversation = self._conversation
        if name in ("/think", "/no_think"):
            self._set(thinking=name == "/think", system=conversation.system)
        elif name == "/system":
            self._set(thinking=conversation.thinking, system=rest.strip())
            conversation.reset()
        elif name == "/reset":
            conversation.reset()
        elif name == "/history":
            if conversation.system:
                self._console.print("[bold]system:[/]", end=" ")
                self._console.print(conversation.system, markup=False)
            for turn in conversation.turns:
                calls = "".join(f"\n  {call.name}({call.arguments})" for call in turn.tool_calls)
                self._console.print(f"[bold]{turn.role}:[/]", end=" ")
                self._console.print(turn.content + calls, markup=False)
        elif name == "/tool":
            self._tool(rest)
        else:
            self._console.print(f"there is no {name}", markup=False)
            self._console.print(__doc__.split("::")[1].strip("\n"), markup=False)

    def _set(self, *, thinking: bool | None, system: str) -> None:
        """Change what the template is told, unless it cannot carry that: then every later turn would fail."""
        conversation = self._conversation
        before = conversation.thinking, conversation.system
        conversation.thinking, conversation.system = thinking, system
        try:
            conversation.check()
        except StageError:
            conversation.thinking, conversation.system = before
            raise

    def _tool(self, result: str) -> None:
        """Take the result of one call; answer when there is one for each."""
        pending = self._conversation.pending
        # Results that were given for calls of a turn that is over, or forgotten, are not results of these.
        if pending is not self._pending:
            self._pending, self._results = pending, []
        self._results.append(result)
        if len(self._results) >= len(pending):
            results, self._results = self._results, []
            self._show(self._conversation.reply_of_tools(results))

    def _show(self, events: Iterator[Event]) -> None:
        """Print an answer as it comes; Ctrl-C ends it."""
        try:
            thought = False
            for event in events:
                if thought and not isinstance(event, Reasoning):
                    self._console.print()
                thought = isinstance(event, Reasoning)
                if isinstance(event, ToolCall):
                    self._console.print(f"→ {event.name}({event.arguments})", style="cyan", markup=False)
                else:
                    style = "dim" if isinstance(event, Reasoning) else ""
                    self._console.print(event.text, end="", style=style, markup=False, soft_wrap=True)
                    self._console.file.flush()
        except KeyboardInterrupt:
            self._console.print(" (stopped)", style="dim", end="")
        self._console.print()
        stderr().print(f"[dim]{self._conversation.speed}[/]")


def _lines() -> Iterator[str]:
    """Yield what the user types; at a terminal, with editing and the history of the arrow keys."""
    if sys.stdin is None or not sys.stdin.isatty():
        yield from piped_lines()
        return
    import readline  # noqa: F401  # importing it is what gives input() its editing

    while True:
        try:
            yield input("> ")
        except EOFError:
            return
        except KeyboardInterrupt:
            # At the prompt it takes back what was typed, as a shell does.
            print()
