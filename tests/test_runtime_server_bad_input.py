"""Whatever comes in, the answer is right or a 4xx with a reason; never a 500, and never another request's text."""

from __future__ import annotations

import json
import re
import socket
from collections.abc import Iterator
from typing import Any
from urllib.parse import urlsplit

import httpx
import pytest

from runtime.model import Model, RunOptions
from runtime.settings import Settings
from tests.running_server import Running, scripted, serving
from tests.small_model import write_small_model

CONTEXT = 300
HELLO = {"role": "user", "content": "Hello"}
JSON = {"Content-Type": "application/json"}


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Model]:
    folder = write_small_model(tmp_path_factory.mktemp("out") / "small")
    with Model(folder.root, RunOptions(linear=True, context=CONTEXT)) as model:
        yield model


@pytest.fixture(scope="module")
def server(model: Model) -> Iterator[Running]:
    with serving(model) as running:
        yield running
        # After everything below, a plain request still gets what it should.
        body = {"model": "small", "prompt": "Tell me", "max_tokens": 8}
        found = httpx.post(f"{running.url}/v1/completions", json=body).json()
        assert found["choices"][0]["text"] == model.generator().text("Tell me", Settings(max_tokens=8))
        assert running.service.scheduler.live == 0


def post(server: Running, path: str = "chat/completions", **body: Any) -> httpx.Response:
    return httpx.post(f"{server.url}/v1/{path}", json={"model": "small", **body}, timeout=60)


def reason(response: httpx.Response) -> str:
    return str(response.json()["error"]["message"])


@pytest.mark.parametrize(
    ("body", "why"),
    [
        ({"messages": [{"role": "wizard", "content": "x"}]}, "role is not known"),
        ({"messages": []}, "no list of messages"),
        ({"messages": "hello"}, "messages: Input should be a valid list"),
        ({}, "messages: Field required"),
        ({"messages": [HELLO], "max_tokens": 0}, "max_tokens: .*greater than or equal to 1"),
        ({"messages": [HELLO], "max_tokens": -5}, "max_tokens: .*greater than or equal to 1"),
        ({"messages": [HELLO], "max_completion_tokens": 0}, "max_completion_tokens"),
        ({"messages": [HELLO], "max_tokens": "5"}, "max_tokens: .*valid integer"),
        ({"messages": [HELLO], "stop": ["x"] * 10_000}, "at most 16 strings .* not 10000"),
        ({"messages": [HELLO], "stop": ["x" * 10_000]}, "at most 256 characters"),
        ({"messages": [HELLO], "stop": [""]}, "stop string is empty"),
        ({"messages": [HELLO], "temperature": -1}, "temperature is out of range"),
        ({"messages": [HELLO], "temperature": -1, "top_p": 7}, "(?s)temperature.*top_p"),
        ({"messages": [HELLO], "temperature": 1e308}, "(?s)temperature is out of range.*>= 0 and <= 100"),
        ({"messages": [HELLO], "repetition_penalty": 1e-300}, "(?s)repetition_penalty is out.*>= 0.01 and <= 100"),
        ({"messages": [HELLO], "repetition_penalty": 1e-39}, "(?s)repetition_penalty is out.*>= 0.01 and <= 100"),
        ({"messages": [HELLO], "n": 0}, "n: "),
        ({"messages": [HELLO], "n": 1000}, "n: "),
        ({"messages": [HELLO], "top_logprobs": 1000, "logprobs": True}, "top_logprobs"),
        ({"messages": [HELLO], "top_logprobs": 3}, "top_logprobs: .*needs logprobs to be true"),
        ({"messages": [HELLO], "top_logprobs": 3, "logprobs": False}, "top_logprobs: .*needs logprobs to be true"),
        ({"messages": [HELLO], "presence_penalty": 1}, "presence_penalty"),
        ({"messages": [HELLO], "logit_bias": {"5": 1}}, "logit_bias"),
        ({"messages": [HELLO], "response_format": {"type": "json_object"}}, "response_format"),
        ({"messages": [HELLO], "colour": "red"}, "colour: Extra inputs"),
        ({"messages": [HELLO], "tools": [{"type": "function", "function": {"name": "f", "parameters": 3}}]}, "no JSON"),
        ({"messages": [HELLO], "tools": [{"name": "f", "parameters": {"type": "thing"}}]}, "no JSON schema"),
        ({"messages": [HELLO], "tools": ["f"]}, "is no function"),
        ({"messages": [HELLO], "tool_choice": "required"}, "there are no tools"),
        (
            {
                "messages": [HELLO],
                "tools": [{"name": "f"}],
                "tool_choice": {"type": "function", "function": {"name": "g"}},
            },
            "no tool is called 'g'",
        ),
        (
            {
                "messages": [HELLO],
                "chat_template_kwargs": {"python_tools": ["def f(a): ..."]},
                "tool_choice": {"type": "function", "function": {"name": "g"}},
            },
            "no tool is called 'g'",
        ),
        (
            {"messages": [HELLO], "tools": [{"name": "f"}], "chat_template_kwargs": {"tools": [{"name": "g"}]}},
            "given twice",
        ),
        ({"messages": [HELLO], "chat_template_kwargs": {"tools": [{"name": "f", "parameters": 3}]}}, "no JSON schema"),
        ({"messages": [HELLO], "chat_template_kwargs": {"tools": 3}}, "tools is no list"),
        ({"messages": [{"role": "system", "content": "One."}] * 2 + [HELLO]}, r"leaves out messages\[1\]"),
        ({"messages": [HELLO], "chat_template_kwargs": {"enable_thinking": "yes"}}, "true or false"),
        ({"messages": [HELLO], "chat_template_kwargs": {"colour": 1}}, "no use for colour"),
        ({"messages": [HELLO], "chat_template_kwargs": {"xml_tools": 3}}, "xml_tools is no list"),
        ({"messages": [HELLO], "chat_template_kwargs": {"messages": []}}, "no use for messages"),
        ({"messages": [HELLO], "chat_template_kwargs": {"message": "x", "role": 1}}, "no use for message, role"),
        ({"messages": [HELLO], "chat_template_kwargs": {"add_generation_prompt": False}}, "no use for add_generation"),
        ({"messages": [HELLO], "chat_template_kwargs": {"tokenize": True}}, "no use for tokenize"),
        ({"messages": [HELLO, {"role": "tool", "tool_call_id": [1], "content": "x"}]}, "tool_call_id is no text"),
        ({"messages": [{"role": "user", "content": [{"type": "image_url"}]}]}, "part of the content is no text"),
    ],
)
def test_a_bad_chat_is_refused_with_a_reason(server: Running, body: dict[str, Any], why: str) -> None:
    response = post(server, **body)
    assert response.status_code == 400, response.text
    assert re.search(why, reason(response)), reason(response)


@pytest.mark.parametrize(
    ("body", "why"),
    [
        ({"prompt": ""}, "the prompt is empty"),
        ({"prompt": []}, "the prompt is empty"),
        ({"prompt": [-1]}, "ids must be 0 to 511"),
        ({"prompt": [512]}, "ids must be 0 to 511"),
        ({"prompt": 3}, "prompt"),
        ({"prompt": ["one", "two"]}, "prompt"),
        ({"prompt": "x", "echo": True}, "echo"),
        ({"prompt": "x " * 4000}, r"(?s)too long.*at most 299 tokens.*found: +\d{4} tokens"),
        ({"prompt": [7] * 300}, r"(?s)at most 299 tokens.*300 tokens"),
    ],
)
def test_a_bad_prompt_is_refused_with_a_reason(server: Running, body: dict[str, Any], why: str) -> None:
    response = post(server, "completions", **body)
    assert response.status_code == 400, response.text
    assert re.search(why, reason(response)), reason(response)


@pytest.mark.parametrize(
    ("body", "status", "why"),
    [
        (b"{", 400, "no JSON"),
        (b"", 400, "no JSON"),
        (b"[1, 2]", 400, "body: "),
        (b'{"model": "small", "prompt": "\xff\xfe"}', 400, "no"),
        (b'{"model": "small", "prompt": "\\ud800"}', 400, "no valid Unicode"),
        (b'{"model": "\\ud800", "prompt": "x"}', 400, "no valid Unicode"),
        (b"[" * 100_000, 400, "nested too deeply"),
        (b'{"model": "small", "prompt": ' + b"9" * 5000 + b"}", 400, "no JSON"),
        (b'{"model": "small", "prompt": "' + b"x" * 10_000_000 + b'"}', 413, "at most 2097152 bytes"),
        (b'{"model": "other", "prompt": "x"}', 404, "there is no model 'other'"),
    ],
)
def test_a_bad_body_is_refused_with_a_reason(server: Running, body: bytes, status: int, why: str) -> None:
    response = httpx.post(f"{server.url}/v1/completions", content=body, headers=JSON, timeout=60)
    assert response.status_code == status, response.text
    assert why in reason(response)


def test_a_large_body_without_a_length_is_refused(server: Running) -> None:
    def pieces() -> Iterator[bytes]:
        for _ in range(100):
            yield b" " * 100_000

    response = httpx.post(f"{server.url}/v1/completions", content=pieces(), headers=JSON, timeout=60)
    assert response.status_code == 413


def test_another_kind_of_body_is_refused(server: Running) -> None:
    response = httpx.post(f"{server.url}/v1/completions", data={"prompt": "x"})
    assert (response.status_code, reason(response)) == (415, "the body must be application/json")
    # A kind of body has no case, and may have parameters.
    headers = {"Content-Type": "Application/JSON; charset=utf-8"}
    body = '{"model": "small", "prompt": "x", "max_tokens": 1}'
    assert httpx.post(f"{server.url}/v1/completions", content=body, headers=headers, timeout=60).status_code == 200


def test_paths_and_methods_that_are_not_there(server: Running) -> None:
    assert httpx.get(f"{server.url}/v1/nothing").status_code == 404
    assert httpx.get(f"{server.url}/v1/completions").status_code == 405
    assert "error" in httpx.get(f"{server.url}/v1/models/other").json()
    text = httpx.get(f"{server.url}/metrics").text
    assert "/v1/nothing" not in text


def test_what_is_no_http_gets_no_answer_and_harms_nobody(server: Running) -> None:
    parts = urlsplit(server.url)
    with socket.create_connection((parts.hostname, parts.port)) as connection:
        connection.sendall(b"\x00\xff not http\r\n\r\n")
        assert b"200" not in connection.recv(100)
    assert httpx.get(f"{server.url}/health").status_code == 200


def test_a_prompt_of_only_padding_is_answered(server: Running) -> None:
    response = post(server, "completions", prompt=[501] * 20, max_tokens=3)
    assert response.status_code == 200
    assert response.json()["usage"]["prompt_tokens"] == 20


CALL = '<tool_call>{"name": "f", "arguments": {"text": "a </tool_call> b"}}</tool_call>'


@pytest.mark.parametrize(
    ("answer", "content", "calls"),
    [
        (CALL, None, 1),
        ('<tool_call>{"name": "f", "arguments": {', '<tool_call>{"name": "f", "arguments": {', 0),
        ("<tool_call>{nonsense}</tool_call>", "<tool_call>{nonsense}</tool_call>", 0),
        ("<think>for ever", "", 0),
        ("</think></tool_call>", "</think></tool_call>", 0),
    ],
)
def test_whatever_the_model_writes_is_an_answer(
    server: Running, model: Model, monkeypatch: pytest.MonkeyPatch, answer: str, content: str | None, calls: int
) -> None:
    monkeypatch.setattr("runtime.server.service.Continuation", scripted(model, [answer]))
    response = post(server, messages=[HELLO], tools=[{"type": "function", "function": {"name": "f"}}])
    message = response.json()["choices"][0]["message"]
    assert (response.status_code, message["content"], len(message.get("tool_calls", []))) == (200, content, calls)
    if calls:
        assert json.loads(message["tool_calls"][0]["function"]["arguments"]) == {"text": "a </tool_call> b"}
