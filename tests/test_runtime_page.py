"""A real browser talks to the model: text streams, thoughts are folded, an answer can be stopped."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any
from unittest.mock import Mock

import pytest

from runtime.continuation import Continuation, Piece
from runtime.messages import read_messages
from runtime.model import Model, RunOptions
from runtime.sampling import Logits
from runtime.serve_options import ServeOptions
from tests.browser import CHROMIUM, DRIVER, ask, complaints, find, idle, open_browser, until
from tests.running_server import Running, scripted, serving
from tests.small_model import write_small_model

pytest.importorskip("selenium.webdriver", reason="needs selenium (dev extra)")
pytestmark = pytest.mark.skipif(not (CHROMIUM and DRIVER), reason="needs chromium and chromedriver on the PATH")


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Model]:
    folder = write_small_model(tmp_path_factory.mktemp("out") / "small")
    with Model(folder.root, RunOptions(linear=True, context=4000)) as model:
        yield model


@pytest.fixture(scope="module")
def server(model: Model) -> Iterator[Running]:
    with serving(model, ServeOptions(slots=2)) as running:
        yield running


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    with open_browser(tmp_path_factory.mktemp("profile")) as driver:
        yield driver


@pytest.fixture
def page(browser: Any, server: Running) -> Iterator[Any]:
    browser.get(server.url)
    yield browser
    assert complaints(browser) == []


def test_an_answer_with_thoughts_that_are_folded(page: Any, model: Model, monkeypatch: pytest.MonkeyPatch) -> None:
    answers = ["<think>\nfirst I think\n</think>\n\nHello <b>you</b>. 😀", "And more."]
    monkeypatch.setattr("runtime.server.service.Continuation", scripted(model, answers))
    ask(page, "Hello")
    until(lambda: find(page, ".answer") and "😀" in find(page, ".answer")[0].text)
    assert find(page, ".answer")[0].text == "Hello <b>you</b>. 😀"
    details = find(page, "details")[0]
    assert not details.get_attribute("open")
    assert not find(page, ".thoughts")[0].is_displayed()
    find(page, "summary")[0].click()
    assert find(page, ".thoughts")[0].text == "first I think"
    until(lambda: idle(page))
    assert "tokens/s" in find(page, ".speed")[0].text
    ask(page, "More")
    until(lambda: len(find(page, ".answer")) == 2 and find(page, ".answer")[1].text == "And more.")
    assert [turn.text for turn in find(page, ".user")] == ["Hello", "More"]


class Slow(Continuation):
    """Takes its time, so that there is some in which to press a button."""

    def take(self, logits: Logits) -> Piece:
        time.sleep(0.02)
        return super().take(logits)


def test_text_comes_while_it_is_made_and_can_be_stopped(
    page: Any, server: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("runtime.server.service.Continuation", Slow)
    ask(page, "Tell me a story")
    growing = until(lambda: find(page, ".answer") and find(page, ".answer")[0].text)
    until(lambda: len(find(page, ".answer")[0].text) > len(growing))
    assert server.service.scheduler.live == 1
    find(page, "#stop")[0].click()
    until(lambda: idle(page))
    assert "(stopped)" in find(page, ".speed")[0].text
    until(lambda: server.service.scheduler.live == 0)
    find(page, "#reset")[0].click()
    assert find(page, ".turn") == []


def test_a_new_conversation_holds_nothing_of_an_answer_that_was_cut_off(
    page: Any, server: Running, model: Model, monkeypatch: pytest.MonkeyPatch
) -> None:
    encode = Mock(side_effect=server.service._encode)
    monkeypatch.setattr(server.service, "_encode", encode)
    monkeypatch.setattr("runtime.server.service.Continuation", Slow)
    ask(page, "Tell me a story")
    until(lambda: find(page, ".answer") and find(page, ".answer")[0].text)
    find(page, "#reset")[0].click()
    until(lambda: idle(page))
    assert find(page, ".turn") == []
    monkeypatch.setattr("runtime.server.service.Continuation", scripted(model, ["Yes.", "Again."]))
    ask(page, "Hello")
    until(lambda: find(page, ".answer") and find(page, ".answer")[0].text == "Yes.")
    alone = server.service._template.render(read_messages([{"role": "user", "content": "Hello"}])).text
    assert encode.call_args.args[0] == alone
    until(lambda: idle(page))
    ask(page, "More")
    until(lambda: len(find(page, ".answer")) == 2 and find(page, ".answer")[1].text == "Again.")
    assert encode.call_args.args[0].startswith(alone + "Yes.")


def test_thinking_and_system_reach_the_model(
    page: Any, server: Running, model: Model, monkeypatch: pytest.MonkeyPatch
) -> None:
    encode = Mock(side_effect=server.service._encode)
    monkeypatch.setattr(server.service, "_encode", encode)
    monkeypatch.setattr("runtime.server.service.Continuation", scripted(model, ["Yes."]))
    find(page, "#system")[0].send_keys("Be a pirate.")
    find(page, "#thinking option[value=false]")[0].click()
    ask(page, "Hello")
    until(lambda: find(page, ".answer") and find(page, ".answer")[0].text == "Yes.")
    prompt = encode.call_args.args[0]
    assert "Be a pirate." in prompt
    assert prompt.endswith("<think>\n\n</think>\n")


def test_an_error_is_told(page: Any) -> None:
    page.execute_script("document.getElementById('text').value = 'too long '.repeat(5000)")
    ask(page, "")
    found = until(lambda: find(page, ".error"))
    assert "too long for the context" in found[0].text
    (line,) = complaints(page)
    assert "400 (Bad Request)" in line


def test_a_key_is_asked_for_where_one_is_wanted(browser: Any, model: Model, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("runtime.server.service.Continuation", scripted(model, ["Welcome."]))
    with serving(model, ServeOptions(slots=1, api_key="secret")) as running:
        browser.get(running.url)
        assert not find(browser, "#key")[0].is_displayed()
        ask(browser, "Hello")
        until(lambda: find(browser, ".error"))
        assert find(browser, "#text")[0].get_attribute("value") == "Hello"
        assert browser.switch_to.active_element.get_attribute("id") == "key"
        find(browser, "#key")[0].send_keys("secret")
        ask(browser, "")
        until(lambda: any(answer.text == "Welcome." for answer in find(browser, ".answer")))
