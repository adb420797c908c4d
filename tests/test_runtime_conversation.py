"""Many turns through the template and back, and the terminal that shows them."""

from __future__ import annotations

import copy
import io
import json
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
from rich.console import Console

from artifacts.errors import StageError
from runtime.__main__ import main
from runtime.continuation import Piece
from runtime.conversation import Conversation
from runtime.output_parser import Parsed
from runtime.settings import Settings
from runtime.terminal_chat import Terminal
from runtime.tool_calls import ToolCall
from runtime.tools import Tools
from tests.chat_model import chat_tokenizer
from tests.small_model import write_small_model

WEATHER = {"name": "get_weather", "parameters": {"properties": {"city": {"type": "string"}}}}
CALL = '<tool_call>{"name": "get_weather", "arguments": {"city": "Paris"}}</tool_call>'


class Script:
    """Stands in for the model: gives prepared answers, and keeps the prompts."""

    def __init__(self, *answers: str) -> None:
        self.answers = list(answers)
        self.prompts: list[str] = []
        self.kept = 0

    def stream(self, prompt: Sequence[int], settings: Settings | None = None) -> Iterator[Piece]:
        self.prompts.append(chat_tokenizer().decode(list(prompt), skip_special_tokens=False))
        answer = self.answers.pop(0)
        for character in answer:
            yield Piece(0, character)


def talk(*answers: str, tools: Tools | None = None) -> tuple[Script, Conversation]:
    script = Script(*answers)
    return script, Conversation(script, chat_tokenizer(), Settings(), tools)  # type: ignore[arg-type]  # stands in


def said(conversation: Conversation, text: str) -> Parsed:
    return Parsed.of(conversation.say(text))


def test_each_turn_sees_all_turns_before_it() -> None:
    script, conversation = talk("<think>\nhm\n</think>\nOne.", "Two.")
    assert said(conversation, "First?") == Parsed("hm", "One.", ())
    assert said(conversation, "Second?") == Parsed("", "Two.", ())
    positions = [script.prompts[1].index(text) for text in ("First?", "hm", "One.", "Second?")]
    assert positions == sorted(positions)


def test_thinking_and_the_system_prompt_reach_the_template() -> None:
    script, conversation = talk("a", "b", "c")
    conversation.system = "Speak like a pirate."
    conversation.thinking = False
    said(conversation, "x")
    assert "Speak like a pirate." in script.prompts[0]
    assert script.prompts[0].endswith("<think>\n\n</think>\n")
    conversation.thinking = True
    said(conversation, "y")
    assert script.prompts[1].endswith("assistant\n")
    conversation.reset()
    said(conversation, "z")
    assert "x" not in script.prompts[2].split("pirate.")[1]


def test_a_call_and_its_result() -> None:
    script, conversation = talk(f"I look.\n{CALL}", "It is sunny.", tools=Tools(xml_tools=[WEATHER]))
    assert said(conversation, "Weather?").tool_calls == (ToolCall("get_weather", '{"city": "Paris"}'),)
    assert Parsed.of(conversation.reply_of_tools(["sunny"])).content == "It is sunny."
    assert script.prompts[1].index("get_weather", script.prompts[1].index("I look.")) < script.prompts[1].index("sunny")
    with pytest.raises(StageError, match="wants one result"):
        conversation.reply_of_tools(["more"])


def test_an_answer_that_was_stopped_is_kept_as_far_as_it_went() -> None:
    _, conversation = talk("One two three.")
    stream = conversation.say("x")
    next(stream)
    stream.close()  # type: ignore[attr-defined]  # it is a generator
    assert [turn.role for turn in conversation.turns] == ["user", "assistant"]
    assert conversation.turns[1].content == "O"


def test_a_turn_that_cannot_be_rendered_is_not_kept() -> None:
    _, conversation = talk("a")
    conversation._tokenizer = chat_tokenizer()
    conversation._tools = Tools(tools=[WEATHER])
    conversation.system = "Only this. /system_override"
    with pytest.raises(StageError, match="leaves out a tool"):
        said(conversation, "x")
    assert conversation.turns == []


def terminal(conversation: Conversation, *lines: str) -> str:
    out = io.StringIO()
    Terminal(conversation, Console(file=out, width=120)).talk(lines)
    return out.getvalue()


def test_the_terminal_shows_answers_and_obeys_commands(capsys: pytest.CaptureFixture[str]) -> None:
    script, conversation = talk("[b]One[/b].", "Two.", f"{CALL}", "Sunny.", tools=Tools(tools=[WEATHER]))
    shown = terminal(
        conversation, "First?", "", "/no_think", "/history", "/reset", "Second?", "/system Be brief.", "Third?",
        "/tool sunny", "/nonsense", "/exit", "never",
    )  # fmt: skip
    assert shown.startswith("[b]One[/b].\nuser: First?\nassistant: [b]One[/b].\nTwo.\n")
    assert '→ get_weather({"city": "Paris"})' in shown
    assert "Sunny." in shown
    assert "/think /no_think" in shown
    assert len(script.prompts) == 4
    assert script.prompts[1].endswith("<think>\n\n</think>\n")
    assert "First?" not in script.prompts[1]
    assert "Be brief." in script.prompts[2]
    assert "a second" not in shown
    assert "tokens in" in capsys.readouterr().err


CHATML = (
    "{% for m in messages %}{% if m.role != 'system' %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endif %}"
    "{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)


def forgetful(*answers: str) -> Conversation:
    """Give a conversation whose template knows neither thinking nor a system message."""
    tokenizer = copy.copy(chat_tokenizer())
    tokenizer.chat_template = CHATML
    return Conversation(Script(*answers), tokenizer, Settings())  # type: ignore[arg-type]  # stands in


@pytest.mark.parametrize(
    ("command", "reason"), [("/think", "no use for enable_thinking"), ("/system Be brief.", "leaves out messages")]
)
def test_what_the_template_cannot_carry_is_not_kept(
    command: str, reason: str, capsys: pytest.CaptureFixture[str]
) -> None:
    shown = terminal(forgetful("One.", "Two."), "First?", command, "Second?", "/history")
    assert reason in capsys.readouterr().err
    assert "user: First?\nassistant: One.\nuser: Second?\nassistant: Two.\n" in shown


@pytest.mark.parametrize("between", ["/reset", "/system Be brief.", "Never mind."])
def test_results_of_tools_do_not_outlive_the_calls_that_they_are_for(between: str) -> None:
    answers = [CALL + CALL, *(["Well."] if between[0] != "/" else []), CALL + CALL, "Sunny and rainy."]
    script, conversation = talk(*answers, tools=Tools(tools=[WEATHER]))
    shown = terminal(conversation, "Weather?", "/tool old", between, "Weather?", "/tool sunny", "/tool rainy")
    assert "Sunny and rainy." in shown
    assert "old" not in script.prompts[-1]


def test_what_an_error_quotes_is_no_markup(capsys: pytest.CaptureFixture[str]) -> None:
    assert "One." in terminal(forgetful("One."), "/system [/x] [bold]brief[/bold]", "First?")
    assert "not in it: '[/x] [bold]brief[/bold]'" in capsys.readouterr().err


def test_an_error_does_not_end_the_talk(capsys: pytest.CaptureFixture[str]) -> None:
    _, conversation = talk("One.")
    assert "One." in terminal(conversation, "/tool x", "First?")
    assert "wants one result" in capsys.readouterr().err


def test_the_command_talks_to_a_model(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = write_small_model(tmp_path / "small")
    tools = tmp_path / "tools.json"
    tools.write_text(json.dumps([WEATHER]))
    monkeypatch.setattr("sys.stdin", io.StringIO("Hello\n/history\n"))
    arguments = [
        "chat",
        str(folder.root),
        "--max-tokens",
        "5",
        "--no-think",
        "--system",
        "Hi.",
        "--xml-tools",
        str(tools),
    ]
    assert main(arguments) == 0
    assert "user: Hello\nassistant: " in capsys.readouterr().out


def test_a_chat_without_a_template_is_refused(tmp_path: Path) -> None:
    folder = write_small_model(tmp_path / "small", template=False)
    with pytest.raises(StageError, match="no chat template"):
        main(["chat", str(folder.root)])


def test_a_file_of_tools_that_is_none_is_refused(tmp_path: Path) -> None:
    folder, tools = write_small_model(tmp_path / "small"), tmp_path / "tools.json"
    for text, reason in (("{", "cannot be read as JSON"), ("{}", "is no list"), ("[3]", "is no function")):
        tools.write_text(text)
        with pytest.raises(StageError, match=reason):
            main(["chat", str(folder.root), "--tools", str(tools)])
