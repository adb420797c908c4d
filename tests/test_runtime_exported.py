"""The openai client and a browser talk to the model that `make export surgery` made of trained weights.

Slow: needs MADE_MODEL, the folder OUT/<model> of a trained checkpoint that knows what the capital of France is.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from runtime.model import Model, RunOptions
from runtime.serve_options import ServeOptions
from tests.browser import CHROMIUM, DRIVER, ask, complaints, find, idle, open_browser, until
from tests.running_server import Running, serving

openai = pytest.importorskip("openai", reason="needs the openai client (dev extra)")
pytest.importorskip("selenium.webdriver", reason="needs selenium (dev extra)")

MADE = os.environ.get("MADE_MODEL", "")
QUESTION = "What is the capital of France?"
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not MADE, reason="needs MADE_MODEL, the folder of a trained model"),
]


@pytest.fixture(scope="module")
def server() -> Iterator[Running]:
    with Model(Path(MADE), RunOptions(linear=True, context=1024)) as model, serving(model, ServeOptions(slots=2)) as it:
        yield it


@pytest.fixture(scope="module")
def client(server: Running) -> Any:
    return openai.OpenAI(base_url=f"{server.url}/v1", api_key="none", max_retries=0)


def test_a_chat_streams_the_answer(client: Any, server: Running) -> None:
    name = client.models.list().data[0].id
    messages = [{"role": "user", "content": QUESTION}]
    whole = client.chat.completions.create(model=name, messages=messages, temperature=0, max_tokens=32)
    assert "Paris" in whole.choices[0].message.content
    stream = client.chat.completions.create(model=name, messages=messages, temperature=0, max_tokens=32, stream=True)
    pieces = [part.choices[0].delta.content or "" for part in stream if part.choices]
    assert len(pieces) > 3
    assert "".join(pieces) == whole.choices[0].message.content


def test_two_at_once_get_what_each_would_get_alone(client: Any) -> None:
    from concurrent.futures import ThreadPoolExecutor

    name = client.models.list().data[0].id
    prompts = ["The capital of France is", "Water is made of"]

    def complete(prompt: str) -> str:
        return str(client.completions.create(model=name, prompt=prompt, temperature=0, max_tokens=16).choices[0].text)

    alone = [complete(prompt) for prompt in prompts]
    with ThreadPoolExecutor(2) as together:
        assert list(together.map(complete, prompts)) == alone


@pytest.mark.skipif(not (CHROMIUM and DRIVER), reason="needs chromium and chromedriver on the PATH")
def test_a_person_asks_in_a_browser(server: Running, tmp_path: Path) -> None:
    with open_browser(tmp_path) as page:
        page.get(server.url)
        ask(page, QUESTION)
        until(lambda: find(page, ".answer") and "Paris" in find(page, ".answer")[0].text, seconds=60)
        until(lambda: idle(page), seconds=120)
        assert complaints(page) == []
