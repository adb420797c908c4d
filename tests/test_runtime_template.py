"""A prompt holds everything that went in, as the checkpoint's template writes it, or there is no prompt."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from artifacts.errors import StageError
from runtime.messages import read_messages
from runtime.output_parser import OutputParser, Parsed
from runtime.template import ChatTemplate, Prompt
from runtime.tokenizer import Tokenizer
from runtime.tools import Tools
from tests.chat_model import chat_tokenizer

WEATHER = {"name": "get_weather", "description": "Tells", "parameters": {"properties": {"city": {"type": "string"}}}}
CHATML = (
    "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)


def template(source: str | None = "own") -> ChatTemplate:
    tokenizer: Tokenizer = chat_tokenizer()
    if source != "own":
        tokenizer = copy.copy(tokenizer)
        tokenizer.chat_template = source
    return ChatTemplate(tokenizer)


def render(messages: list[dict[str, Any]], source: str = "own", **options: Any) -> Prompt:
    return template(source).render(read_messages(messages), **options)


def user(content: object = "Hello") -> dict[str, Any]:
    return {"role": "user", "content": content}


def system(content: str) -> dict[str, Any]:
    return {"role": "system", "content": content}


def called(arguments: str = '{"city": "Paris"}', count: int = 1) -> dict[str, Any]:
    calls = [{"id": str(n), "function": {"name": "get_weather", "arguments": arguments}} for n in range(1, count + 1)]
    return {"role": "assistant", "content": "Let me see.", "tool_calls": calls}


def test_without_a_template_there_is_no_chat() -> None:
    with pytest.raises(StageError, match="no chat template"):
        template(None)


def test_a_prompt_is_the_templates_own() -> None:
    messages = [system("Be brief."), user(), {"role": "assistant", "content": "Hi."}, user("More")]
    expected = chat_tokenizer().apply_chat_template(messages, tokenize=False, add_generation_prompt=True)
    assert render(messages).text == expected


@pytest.mark.parametrize(
    ("flag", "keyword", "thinks"),
    [
        ("", None, True),
        ("", True, True),
        ("", False, False),
        ("/no_think", None, False),
        ("/no_think", True, False),
        ("/think", False, True),
        ("/think /no_think", True, False),
    ],
)
def test_thinking_follows_the_templates_rule(flag: str, keyword: bool | None, thinks: bool) -> None:
    prompt = render([system(f"Be brief. {flag}"), user()], thinking=keyword)
    assert prompt.text.endswith("<|im_start|>assistant\n" if thinks else "<think>\n\n</think>\n")
    assert (prompt.in_reasoning, prompt.after_reasoning) == (False, not thinks)


def test_a_template_that_opens_the_thoughts_itself() -> None:
    source = CHATML.replace("assistant\n{% endif", "assistant\n{% if enable_thinking %}<think>\n{% endif %}{% endif")
    assert render([user()], source, thinking=True) == Prompt(
        "<|im_start|>user\nHello<|im_end|>\n<|im_start|>assistant\n<think>\n", in_reasoning=True
    )


def test_a_template_without_thinking_refuses_the_keyword() -> None:
    with pytest.raises(StageError, match="no use for enable_thinking"):
        render([user()], CHATML, thinking=True)


def test_parts_reach_a_template_that_knows_only_strings() -> None:
    assert "one two" in render([user([{"type": "text", "text": "one "}, {"type": "text", "text": "two"}])]).text


@pytest.mark.parametrize(
    ("tools", "form"),
    [
        (Tools(tools=[{"type": "function", "function": WEATHER}]), "<tool_call>"),
        (Tools(xml_tools=[WEATHER]), "<tool_call>"),
        (Tools(python_tools=[WEATHER]), "<code>"),
        (Tools(python_tools=["def get_weather(city): ..."]), "<code>"),
    ],
)
def test_earlier_calls_are_written_as_the_model_wrote_them(tools: Tools, form: str) -> None:
    messages = [user(), called(), {"role": "tool", "tool_call_id": "1", "content": "sunny"}]
    text = render(messages, tools=tools).text
    turn = text[text.index("Let me see.") : text.index("<|im_end|>", text.index("Let me see."))]
    assert form in turn
    assert text.index("sunny") > text.index(turn)
    parser = OutputParser(python_tools=tools.signatures)
    parsed = Parsed.of([*parser.feed(turn), *parser.finish()])
    assert (parsed.content, len(parsed.tool_calls)) == ("Let me see.", 1)


def test_a_template_that_writes_calls_itself_is_left_to_it() -> None:
    source = CHATML.replace(
        "{{ m.content }}",
        "{{ m.content }}{% for call in m.tool_calls %}"
        "CALL {{ call.function.name }} {{ call.function.arguments | tojson }}{% endfor %}",
    )
    assert 'CALL get_weather {"city": "Paris"}' in render([user(), called()], source).text


CALLS = "{% for c in m.tool_calls %}CALL {{ c.function.name }} {{ c.function.arguments | tojson }}{% endfor %}"
DEEP = '{"city": {"name": "Saint-L\\u00f4 \\"old\\"", "near": [1.5, true, null, "L\'Ile"]}}'


def calling(calls: str) -> str:
    return CHATML.replace("{{ m.content }}", "{{ m.content }}" + calls)


@pytest.mark.parametrize(
    "layout",
    [
        "{{ c.function.arguments | tojson }}",
        "{{ c.function.arguments | tojson(indent=2) }}",
        "{{ c.function.arguments | string }}",
        "{% for k, v in c.function.arguments | dictsort %}<{{ k }}>{{ v | tojson }}</{{ k }}>{% endfor %}",
    ],
)
def test_calls_are_found_in_whatever_layout_a_template_has(layout: str) -> None:
    source = calling(CALLS.replace("{{ c.function.arguments | tojson }}", layout))
    assert "CALL get_weather" in render([user(), called(DEEP, 2), user("More")], source).text


@pytest.mark.parametrize(
    "calls",
    [
        CALLS.replace("in m.tool_calls", "in (m.tool_calls or [])[:1]"),
        CALLS.replace("c.function.name", "'sentinel_call'"),
        CALLS.replace("c.function.arguments | tojson", "'sentinel_name sentinel_value'"),
        "{% for c in m.tool_calls %}{{ c.function.name }}{% for k, v in c.function.arguments.items() %}"
        "{% if v is string %} {{ k }} {{ v }}{% endif %}{% endfor %}{% endfor %}",
    ],
)
def test_a_call_that_the_template_leaves_out_is_an_error(calls: str) -> None:
    turn = called('{"city": "Paris", "days": 3}', 2)
    with pytest.raises(StageError, match=r"leaves out a tool call of messages\[1\] \(assistant\)"):
        render([user(), turn, user("More")], calling(calls))


def test_the_name_of_a_tool_reaches_a_template_that_has_a_place_for_it() -> None:
    messages = [user(), called(), {"role": "tool", "name": "get_weather", "content": "sunny"}]
    assert (
        "tool\nsunny by get_weather"
        in render(messages, CHATML.replace(".content }}", ".content }} by {{ m.name }}")).text
    )
    assert "sunny" in render(messages).text


THOUGHT = {"role": "assistant", "content": "Four.", "reasoning_content": "two and two"}
KNOWS = "{% if m.reasoning_content %}({{ m.reasoning_content }}) {% endif %}{{ m.content }}"


@pytest.mark.parametrize(
    ("source", "written"),
    [
        ("own", "<think>\ntwo and two\n</think>\n\nFour."),
        ("{# knows no reasoning_content #}" + CHATML, "<think>\ntwo and two\n</think>\n\nFour."),
        (CHATML.replace("{{ m.content }}", KNOWS), "(two and two) Four."),
    ],
)
def test_earlier_thoughts_are_written(source: str, written: str) -> None:
    assert written in render([user(), THOUGHT, user()], source).text


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (KNOWS.replace("content %}", "content and loop.last %}"), r"leaves out the reasoning of messages\[1\]"),
        ("{{ m.content.split('</think>')[-1] }}", r"leaves out messages\[1\]"),
    ],
)
def test_thoughts_that_the_template_leaves_out_are_an_error(content: str, reason: str) -> None:
    with pytest.raises(StageError, match=reason):
        render([user(), THOUGHT, user()], CHATML.replace("{{ m.content }}", content))


@pytest.mark.parametrize(
    "messages",
    [
        [system("One."), system("Two."), user()],
        [user("Hello"), system("Late."), user("Hi")],
    ],
)
def test_what_the_template_leaves_out_is_an_error(messages: list[dict[str, Any]]) -> None:
    with pytest.raises(StageError, match=r"leaves out messages\[1\] \(system\)"):
        render(messages)


@pytest.mark.parametrize("content", ["user", "im_start", "end", "Mode", "Hello", "Be brief."])
def test_what_is_left_out_is_not_found_in_the_markup_or_in_another_message(content: str) -> None:
    with pytest.raises(StageError, match=r"leaves out messages\[1\] \(system\)"):
        render([system("Be brief."), system(content), user("Hello")])


@pytest.mark.parametrize("content", ["user", "im_start", "end", "Hello", "", "\n", "/think", "/no_think x"])
def test_what_is_in_the_markup_is_a_message_like_any_other(content: str) -> None:
    messages = [system(content), user("user"), {"role": "assistant", "content": content}, user("user")]
    text = render(messages).text
    assert text == chat_tokenizer().apply_chat_template(messages, tokenize=False, add_generation_prompt=True)


def test_short_thoughts_that_are_left_out_are_not_found_in_the_markup() -> None:
    source = CHATML.replace("{{ m.content }}", KNOWS.replace("content %}", "content and loop.last %}"))
    with pytest.raises(StageError, match=r"leaves out the reasoning of messages\[1\]"):
        render([user(), {**THOUGHT, "reasoning_content": "user"}, user()], source)


def test_a_call_that_is_left_out_is_not_found_in_the_markup() -> None:
    call = {"role": "assistant", "content": "x", "tool_calls": [{"function": {"name": "user", "arguments": "{}"}}] * 2}
    with pytest.raises(StageError, match=r"leaves out a tool call of messages\[1\]"):
        render([user(), call, user()], calling(CALLS.replace("in m.tool_calls", "in (m.tool_calls or [])[:1]")))


@pytest.mark.parametrize("tools", [Tools(tools=[{"name": "user"}]), Tools(python_tools=["def user(a): ..."])])
def test_a_tool_that_is_left_out_is_not_found_in_the_markup(tools: Tools) -> None:
    with pytest.raises(StageError, match="leaves out a tool"):
        render([system("Just this. /system_override"), user()], tools=tools)
    assert "user" in render([user()], tools=tools).text


def test_a_tool_that_the_template_leaves_out_is_an_error() -> None:
    with pytest.raises(StageError, match="no use for xml_tools"):
        render([user()], CHATML, tools=Tools(tools=[WEATHER]))
    with pytest.raises(StageError, match="leaves out a tool"):
        render([system("Just this. /system_override"), user()], tools=Tools(tools=[WEATHER]))


def test_a_template_that_knows_only_xml_tools_gets_those() -> None:
    source = "{{ xml_tools | tojson }}" + CHATML
    tools = Tools(tools=[{"type": "function", "function": WEATHER}])
    assert render([user()], source, tools=tools).text.startswith('[{"name": "get_weather"')


def test_a_templates_own_refusal_is_told() -> None:
    with pytest.raises(StageError, match="roles must alternate"):
        render([user()], "{{ raise_exception('roles must alternate') }}")


def test_text_that_a_template_writes_as_json_is_found() -> None:
    source = CHATML.replace("{{ m.content }}", "{{ m.content | tojson }}")
    assert '\\"' in render([user('He said "é".')], source).text


def test_an_unknown_keyword_is_refused() -> None:
    with pytest.raises(StageError, match="no use for colour"):
        render([user()], keywords={"colour": "red"})


@pytest.mark.parametrize("name", ["message", "role", "content", "mode", "messages", "add_generation_prompt", "tojson"])
def test_a_name_that_is_not_a_callers_to_give_is_refused(name: str) -> None:
    with pytest.raises(StageError, match=f"no use for {name}"):
        render([user()], keywords={name: False})


@pytest.mark.parametrize(
    "use",
    [
        "{% if colour is not defined %}{% set colour = 'red' %}{% endif %}{{ colour }}",
        "{% for m in messages %}{% if m.role == 'user' %}{{ colour }}{% break %}{% endif %}{% endfor %}",
        "{% generation %}{{ colour }}{% endgeneration %}",
    ],
)
def test_a_keyword_is_found_wherever_it_is_used(use: str) -> None:
    assert "blue" in render([user()], use + CHATML, keywords={"colour": "blue"}).text


def test_a_template_that_is_none_is_refused() -> None:
    with pytest.raises(StageError, match=r"cannot be read[\s\S]*line 1"):
        render([user()], "{% if %}")
