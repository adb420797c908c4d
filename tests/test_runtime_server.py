"""The real `openai` client talks to the server: chat, completions, streams, tools, choices, and who gets what."""

from __future__ import annotations

import asyncio
import copy
import time
from collections.abc import Iterator
from typing import Any
from unittest.mock import Mock

import httpx
import pytest

from runtime.model import Model, RunOptions
from runtime.serve_options import ServeOptions
from runtime.settings import Settings
from runtime.template import ChatTemplate
from tests.running_server import Running, scripted, serving
from tests.small_model import write_small_model

openai = pytest.importorskip("openai", reason="needs the openai client (dev extra)")

CONTEXT = 700
TOOL = {
    "type": "function",
    "function": {"name": "get_weather", "parameters": {"type": "object", "properties": {"city": {"type": "string"}}}},
}
CALL = '<tool_call>{"name": "get_weather", "arguments": {"city": "Paris"}}</tool_call>'
HELLO = [{"role": "user", "content": "Hello"}]
PYTHON = {"python_tools": ["def get_weather(city): ..."]}
NAMED = {"type": "function", "function": {"name": "get_weather"}}


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Model]:
    folder = write_small_model(tmp_path_factory.mktemp("out") / "small")
    with Model(folder.root, RunOptions(linear=True, context=CONTEXT)) as model:
        yield model


@pytest.fixture(scope="module")
def server(model: Model) -> Iterator[Running]:
    with serving(model) as running:
        yield running


@pytest.fixture(scope="module")
def client(server: Running) -> Any:
    return openai.OpenAI(base_url=f"{server.url}/v1", api_key="none", max_retries=0)


def say(monkeypatch: pytest.MonkeyPatch, model: Model, *answers: str) -> None:
    monkeypatch.setattr("runtime.server.service.Continuation", scripted(model, answers))


def alone(model: Model, text: str, count: int) -> str:
    return model.generator().text(text, Settings(max_tokens=count))


def test_models(client: Any) -> None:
    assert [found.id for found in client.models.list()] == ["small"]
    assert client.models.retrieve("small").id == "small"


def test_a_completion_is_what_generate_gives(client: Any, model: Model) -> None:
    found = client.completions.create(model="small", prompt="Tell me a story", max_tokens=20)
    assert found.choices[0].text == alone(model, "Tell me a story", 20)
    assert (found.choices[0].finish_reason, found.usage.completion_tokens) == ("length", 20)
    assert found.usage.prompt_tokens == len(model.tokenizer.encode("Tell me a story"))


def test_a_streamed_completion_is_the_same(client: Any, model: Model) -> None:
    stream = client.completions.create(
        model="small", prompt="Tell me", max_tokens=20, stream=True, stream_options={"include_usage": True}
    )
    chunks = list(stream)
    assert "".join(chunk.choices[0].text for chunk in chunks if chunk.choices) == alone(model, "Tell me", 20)
    assert chunks[-1].usage.completion_tokens == 20
    assert chunks[-2].choices[0].finish_reason == "length"


def test_ids_may_be_the_prompt(client: Any, model: Model) -> None:
    ids = model.tokenizer.encode("Tell me")
    assert client.completions.create(model="small", prompt=ids, max_tokens=5).choices[0].text == alone(
        model, "Tell me", 5
    )


def test_a_chat_has_reasoning_content_and_calls(client: Any, model: Model, monkeypatch: pytest.MonkeyPatch) -> None:
    say(monkeypatch, model, f"<think>\nhm, é😀\n</think>\n\nI look.\n{CALL}")
    found = client.chat.completions.create(model="small", messages=HELLO, tools=[TOOL]).choices[0]
    assert (found.message.reasoning_content, found.message.content) == ("hm, é😀", "I look.")
    assert [(call.function.name, call.function.arguments) for call in found.message.tool_calls] == [
        ("get_weather", '{"city": "Paris"}')
    ]
    assert found.finish_reason == "tool_calls"


def test_a_streamed_chat_is_the_same(client: Any, model: Model, monkeypatch: pytest.MonkeyPatch) -> None:
    say(monkeypatch, model, f"<think>\nhm, é😀\n</think>\n\nI look.\n{CALL}\n{CALL}")
    chunks = list(client.chat.completions.create(model="small", messages=HELLO, tools=[TOOL], stream=True))
    deltas = [chunk.choices[0].delta for chunk in chunks]
    assert deltas[0].role == "assistant"
    assert "".join(getattr(delta, "reasoning_content", None) or "" for delta in deltas) == "hm, é😀"
    assert "".join(delta.content or "" for delta in deltas) == "I look."
    calls = [call for delta in deltas for call in delta.tool_calls or []]
    assert [(call.index, call.function.name) for call in calls] == [(0, "get_weather"), (1, "get_weather")]
    assert len({call.id for call in calls}) == 2
    assert chunks[-1].choices[0].finish_reason == "tool_calls"


def test_a_whole_turn_with_tools_can_be_sent_back(client: Any, model: Model, monkeypatch: pytest.MonkeyPatch) -> None:
    say(monkeypatch, model, CALL, "It is sunny.")
    messages: list[Any] = list(HELLO)
    message = client.chat.completions.create(model="small", messages=messages, tools=[TOOL]).choices[0].message
    messages += [message, {"role": "tool", "tool_call_id": message.tool_calls[0].id, "content": "sunny"}]
    answer = client.chat.completions.create(model="small", messages=messages, tools=[TOOL])
    assert answer.choices[0].message.content == "It is sunny."


def test_python_tools_and_template_keywords(client: Any, model: Model, monkeypatch: pytest.MonkeyPatch) -> None:
    say(monkeypatch, model, "<code>get_weather('Paris')</code>")
    keywords = {"python_tools": ["def get_weather(city): ..."], "enable_thinking": False}
    found = client.chat.completions.create(
        model="small", messages=HELLO, extra_body={"chat_template_kwargs": keywords}
    ).choices[0]
    assert found.message.tool_calls[0].function.arguments == '{"city": "Paris"}'


def test_without_choice_of_a_tool_nothing_is_a_call(client: Any, model: Model, monkeypatch: pytest.MonkeyPatch) -> None:
    say(monkeypatch, model, CALL)
    found = client.chat.completions.create(model="small", messages=HELLO, tools=[TOOL], tool_choice="none").choices[0]
    assert (found.message.content, found.message.tool_calls, found.finish_reason) == (CALL, None, "stop")


@pytest.mark.parametrize(
    ("choice", "rest"),
    [
        ("required", ' {"city": "Paris"}}</tool_call>'),
        (NAMED, ' {"city": "Paris"}}</tool_call>'),
    ],
)
def test_a_call_can_be_insisted_on(
    client: Any, model: Model, monkeypatch: pytest.MonkeyPatch, choice: Any, rest: str
) -> None:
    say(monkeypatch, model, rest)
    found = client.chat.completions.create(model="small", messages=HELLO, tools=[TOOL], tool_choice=choice).choices[0]
    assert found.message.tool_calls[0].function.arguments == '{"city": "Paris"}'


@pytest.mark.parametrize(("choice", "rest"), [("required", "'Paris')</code>"), (NAMED, "'Paris')</code>")])
def test_a_call_of_a_python_tool_can_be_insisted_on(
    client: Any, model: Model, monkeypatch: pytest.MonkeyPatch, choice: Any, rest: str
) -> None:
    say(monkeypatch, model, rest)
    found = client.chat.completions.create(
        model="small", messages=HELLO, tool_choice=choice, extra_body={"chat_template_kwargs": PYTHON}
    ).choices[0]
    assert found.message.tool_calls[0].function.arguments == '{"city": "Paris"}'


TWO_TOOLS = [TOOL, {"type": "function", "function": {"name": "get_time"}}]
NO_END = "and so on, for ever, " * 20


@pytest.mark.parametrize(
    ("choice", "rest"),
    [
        ("required", ' "get_weather", "arguments": {"city": "Paris"}}</tool_call>'),
        (NAMED, ' {"city": "Paris"}}</tool_call>'),
    ],
)
@pytest.mark.parametrize("stream", [False, True])
def test_an_answer_ends_with_the_call_that_was_insisted_on(
    client: Any, server: Running, model: Model, monkeypatch: pytest.MonkeyPatch, choice: Any, rest: str, stream: bool
) -> None:
    say(monkeypatch, model, rest + NO_END, rest + NO_END)
    given = {"model": "small", "messages": HELLO, "tools": TWO_TOOLS, "tool_choice": choice, "n": 2}
    if stream:
        chunks = list(client.chat.completions.create(**given, stream=True))
        finish = [chunk.choices[0].finish_reason for chunk in chunks if chunk.choices[0].finish_reason]
        calls = [call for chunk in chunks for call in chunk.choices[0].delta.tool_calls or []]
        content = "".join(chunk.choices[0].delta.content or "" for chunk in chunks)
    else:
        found = client.chat.completions.create(**given)
        finish = [one.finish_reason for one in found.choices]
        calls = [call for one in found.choices for call in one.message.tool_calls]
        content = "".join(one.message.content or "" for one in found.choices)
        assert found.usage.completion_tokens < 2 * len(model.tokenizer.encode(rest + NO_END)) - 100
    assert (finish, content) == (["tool_calls"] * 2, "")
    assert [call.function.arguments for call in calls] == ['{"city": "Paris"}'] * 2
    wait_until(lambda: server.service.scheduler.live == 0)


@pytest.mark.parametrize("choice", ["auto", "required"])
def test_a_call_of_a_tool_that_was_not_given_is_content(
    client: Any, model: Model, monkeypatch: pytest.MonkeyPatch, choice: str
) -> None:
    rest = ' "rob_bank", "arguments": {}}</tool_call>'
    opening = '<tool_call>\n{"name":'
    say(monkeypatch, model, rest if choice == "required" else opening + rest)
    found = client.chat.completions.create(model="small", messages=HELLO, tools=TWO_TOOLS, tool_choice=choice)
    answer = found.choices[0]
    assert (answer.message.content, answer.message.tool_calls, answer.finish_reason) == (opening + rest, None, "stop")


def test_a_call_that_is_insisted_on_is_no_thought(
    client: Any, server: Running, model: Model, monkeypatch: pytest.MonkeyPatch
) -> None:
    tokenizer = copy.copy(model.tokenizer)
    tokenizer.chat_template = str(tokenizer.chat_template) + "{% if add_generation_prompt %}<think>\n{% endif %}"
    monkeypatch.setattr(server.service, "_template", ChatTemplate(tokenizer))
    encode = Mock(side_effect=server.service._encode)
    monkeypatch.setattr(server.service, "_encode", encode)
    say(monkeypatch, model, "why\n</think>\n\nNo.", '{"city": "Paris"}}</tool_call>')
    free = client.chat.completions.create(model="small", messages=HELLO, tools=[TOOL]).choices[0].message
    assert (free.reasoning_content, free.content) == ("why", "No.")
    found = client.chat.completions.create(model="small", messages=HELLO, tools=[TOOL], tool_choice=NAMED).choices[0]
    assert found.message.tool_calls[0].function.arguments == '{"city": "Paris"}'
    assert '<think>\n\n</think>\n\n<tool_call>\n{"name": "get_weather"' in encode.call_args.args[0]


@pytest.mark.parametrize("choice", ["none", "auto"])
def test_tools_may_come_as_a_keyword_of_the_template(
    client: Any, server: Running, model: Model, monkeypatch: pytest.MonkeyPatch, choice: str
) -> None:
    encode = Mock(side_effect=server.service._encode)
    monkeypatch.setattr(server.service, "_encode", encode)
    say(monkeypatch, model, CALL)
    found = client.chat.completions.create(
        model="small", messages=HELLO, tool_choice=choice, extra_body={"chat_template_kwargs": {"tools": [TOOL]}}
    ).choices[0]
    assert bool(found.message.tool_calls) is (choice == "auto")
    assert ("get_weather" in encode.call_args.args[0]) is (choice == "auto")


def test_choices_differ_and_a_seed_repeats_them(client: Any) -> None:
    def texts() -> list[str]:
        found = client.completions.create(model="small", prompt="Tell", max_tokens=8, n=3, temperature=1.5, seed=4)
        return [choice.text for choice in found.choices]

    assert texts() == texts()
    assert len(set(texts())) == 3


def test_stop_strings_end_the_text_before_them(client: Any, model: Model) -> None:
    whole = alone(model, "Tell me a story", 30)
    stop = whole[6:9]
    found = client.completions.create(model="small", prompt="Tell me a story", max_tokens=30, stop=[stop]).choices[0]
    assert (found.text, found.finish_reason) == (whole[: whole.index(stop)], "stop")


def test_probabilities_of_tokens(client: Any, model: Model) -> None:
    found = client.completions.create(model="small", prompt="Tell", max_tokens=4, logprobs=2).choices[0].logprobs
    assert [len(entry) for entry in found.top_logprobs] == [2] * 4
    assert all(
        max(top.values()) == pytest.approx(p) for top, p in zip(found.top_logprobs, found.token_logprobs, strict=True)
    )
    chat = client.chat.completions.create(
        model="small", messages=HELLO, max_tokens=4, logprobs=True, top_logprobs=3, stream=True
    )
    told = [chunk.choices[0].logprobs for chunk in chat if chunk.choices[0].logprobs]
    assert [len(entry.content[0].top_logprobs) for entry in told] == [3] * 4


def test_many_at_once_get_what_each_gets_alone(server: Running, model: Model) -> None:
    """Ten clients on four slots and a queue of eight."""
    prompts = [f"Story {number}: " + "the weather in Paris. " * number for number in range(10)]

    async def ask() -> list[Any]:
        async with openai.AsyncOpenAI(base_url=f"{server.url}/v1", api_key="none", max_retries=0) as client:
            wanted = (client.completions.create(model="small", prompt=text, max_tokens=15) for text in prompts)
            return list(await asyncio.gather(*wanted))

    for prompt, found in zip(prompts, asyncio.run(ask()), strict=True):
        assert found.choices[0].text == alone(model, prompt, 15)


def wait_until(what: Any) -> None:
    end = time.monotonic() + 10
    while not what():
        assert time.monotonic() < end, "it never came to be"
        time.sleep(0.01)


def test_a_client_that_goes_away_frees_its_slot(server: Running, client: Any) -> None:
    for _ in range(3):
        stream = client.completions.create(model="small", prompt="Tell", max_tokens=600, stream=True)
        next(iter(stream))
        assert server.service.scheduler.live == 1
        stream.close()
        wait_until(lambda: server.service.scheduler.live == 0)
    with pytest.raises(httpx.ReadTimeout):
        httpx.post(
            f"{server.url}/v1/completions",
            json={"model": "small", "prompt": "Tell", "max_tokens": 650},
            timeout=0.05,
        )
    wait_until(lambda: server.service.scheduler.live == 0)


def test_a_full_queue_says_when_to_try_again(model: Model) -> None:
    with serving(model, ServeOptions(slots=1, max_queue=1)) as running:
        client = openai.OpenAI(base_url=f"{running.url}/v1", api_key="none", max_retries=0)
        streams = [
            client.completions.create(model="small", prompt="Tell", max_tokens=600, stream=True) for _ in range(2)
        ]
        with pytest.raises(openai.RateLimitError, match="too many texts are waiting: 1 of at most 1") as error:
            client.completions.create(model="small", prompt="Tell", max_tokens=5)
        assert error.value.response.headers["retry-after"] == "2"
        assert (error.value.type, error.value.code) == ("requests", "rate_limit_exceeded")
        for stream in streams:
            stream.close()


def test_more_texts_than_may_ever_be_there_are_not_told_to_try_again(model: Model) -> None:
    with serving(model, ServeOptions(slots=1, max_queue=1)) as running:
        client = openai.OpenAI(base_url=f"{running.url}/v1", api_key="none", max_retries=0)
        with pytest.raises(openai.BadRequestError, match="n: 3 texts can never run or wait at once here, at most 2"):
            client.completions.create(model="small", prompt="Tell", max_tokens=2, n=3)
        assert len(client.completions.create(model="small", prompt="Tell", max_tokens=2, n=2).choices) == 2


def test_a_key_is_wanted_where_there_is_one(model: Model) -> None:
    with serving(model, ServeOptions(slots=1, api_key="secret")) as running:
        for key, good in (("wrong", False), ("secret", True)):
            client = openai.OpenAI(base_url=f"{running.url}/v1", api_key=key, max_retries=0)
            if good:
                assert client.models.list().data
            else:
                with pytest.raises(openai.AuthenticationError, match="wants its API key") as error:
                    client.models.list()
                assert (error.value.type, error.value.code) == ("invalid_request_error", "invalid_api_key")
        assert httpx.get(f"{running.url}/health").status_code == 200
        assert httpx.get(f"{running.url}/").status_code == 200
        assert httpx.get(f"{running.url}/metrics").status_code == 401
        for header, status in (("bearer secret", 200), ("secret", 401), ("Basic secret", 401), ("Bearer secret2", 401)):
            assert httpx.get(f"{running.url}/metrics", headers={"Authorization": header}).status_code == status


@pytest.mark.parametrize(
    ("host", "status"),
    [
        *(("127.0.0.1", 200), ("localhost:8000", 200), ("LOCALHOST", 200), ("[::1]:8000", 200)),
        *(("evil.example", 421), ("evil.example:8000", 421), ("localhost.evil.example", 421), ("[::1", 421), ("", 421)),
    ],
)
@pytest.mark.parametrize("path", ["/", "/v1/models"])
def test_a_name_that_another_site_gave_this_machine_is_refused(
    server: Running, host: str, status: int, path: str
) -> None:
    response = httpx.get(server.url + path, headers={"Host": host})
    assert response.status_code == status, response.text
    if status == 421:
        assert "answers to 127.0.0.1, ::1, localhost" in response.json()["error"]["message"]


@pytest.mark.parametrize(("host", "own"), [("0.0.0.0", False), ("192.168.1.5", False), ("127.0.0.2", True)])
def test_a_server_for_other_machines_answers_to_any_name(model: Model, host: str, own: bool) -> None:
    with serving(model, ServeOptions(slots=1, host=host)) as running:
        found = httpx.get(f"{running.url}/health", headers={"Host": "box.local"})
        assert found.status_code == (421 if own else 200)
        assert httpx.get(f"{running.url}/health", headers={"Host": f"{host}:80"}).status_code == 200


def test_health_metrics_and_page(server: Running) -> None:
    assert httpx.get(f"{server.url}/health").json() == {"status": "ok"}
    text = httpx.get(f"{server.url}/metrics").text
    for name in (
        'requests_total{path="/v1/completions",status="200"}',
        "generated_tokens_total",
        "time_to_first_token_seconds_count",
        "time_per_token_seconds_count",
        "queue 0.0",
        "slots_live 0.0",
        "slots 4.0",
        "cache_fill_ratio 0.0",
    ):
        assert f"smollm3_{name}" in text
    page = httpx.get(f"{server.url}/")
    assert "small" in page.text
    assert "default-src 'none'" in page.headers["content-security-policy"]


def test_a_model_that_breaks_down_is_a_503_and_the_server_lives(
    server: Running, client: Any, model: Model, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(server.service.scheduler._cache, "extend", lambda row, tokens: 1 / 0)
        with pytest.raises(openai.InternalServerError, match="the model failed"):
            client.completions.create(model="small", prompt="Tell", max_tokens=5)
        with pytest.raises(openai.APIError, match="the model failed"):
            list(client.completions.create(model="small", prompt="Tell", max_tokens=5, stream=True))
        patch.setattr(server.service.scheduler._cache, "reset", lambda: 1 / 0)
        with pytest.raises(openai.InternalServerError, match="the model failed"):
            client.completions.create(model="small", prompt="Tell", max_tokens=5)
    found = client.completions.create(model="small", prompt="Tell", max_tokens=5).choices[0].text
    assert found == alone(model, "Tell", 5)
