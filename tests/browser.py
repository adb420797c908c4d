"""A real browser, and what a person does with it at the page that the server has."""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
DRIVER = shutil.which("chromedriver")


@contextmanager
def open_browser(profile: Path) -> Iterator[Any]:
    """Give a headless Chromium that keeps its profile in a folder."""
    from selenium import webdriver

    options = webdriver.ChromeOptions()
    options.binary_location = str(CHROMIUM)
    quiet = ("disable-gpu", "disable-background-networking", "disable-component-update", "disable-sync", "no-first-run")
    for argument in ("headless=new", "no-sandbox", "disable-dev-shm-usage", *quiet, f"user-data-dir={profile}"):
        options.add_argument(f"--{argument}")
    options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
    with webdriver.Chrome(options=options, service=webdriver.ChromeService(DRIVER)) as driver:
        yield driver


def complaints(browser: Any) -> list[str]:
    """Take what the browser itself complained of since it was asked last."""
    return [entry["message"] for entry in browser.get_log("browser") if entry["level"] == "SEVERE"]


def find(page: Any, css: str) -> list[Any]:
    """Give the elements that a selector finds."""
    return list(page.find_elements("css selector", css))


def until(what: Callable[[], Any], seconds: float = 20) -> Any:
    """Wait until something comes to be, and give it."""
    end = time.monotonic() + seconds
    while not (found := what()):
        assert time.monotonic() < end, "it never came to be"
        time.sleep(0.02)
    return found


def ask(page: Any, text: str) -> None:
    """Write a message and send it."""
    find(page, "#text")[0].send_keys(text + "\n")


def idle(page: Any) -> bool:
    """Whether no answer is being written."""
    return not find(page, "#stop")[0].is_displayed()
