"""What README.md and the pages under docs/ say can be typed and followed: targets, modules, flags, files."""

from __future__ import annotations

import io
import re
from collections.abc import Iterator
from contextlib import redirect_stdout
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
README = PAGES[0].read_text(encoding="utf-8")
MAKEFILE = (ROOT / "Makefile").read_text(encoding="utf-8")
COMMANDS = (
    "export",
    "surgery",
    "build",
    "validate.debugging",
    "validate",
    "artifacts.checkpoints",
    "artifacts",
    "runtime",
)
"""Modules that a person runs; what they take, their `--help` says."""
HANDED_TO = {name.upper(): name for name in COMMANDS} | {
    "DEBUG": "validate.debugging",
    "TEST": "pytest",
    "TINY": "artifacts.checkpoints",
}
ANY = "any command"
FLAG = r"(?<![\w-])--[A-Za-z][\w-]+"
ELSEWHERE = {"--no-reduce-inputs"}
"""Flags of other tools that stand alone in our pages."""


def code(page: str) -> Iterator[str]:
    """Give what a page sets as code: lines of its blocks, and words between backticks."""
    for block in re.findall(r"```\w*\n(.*?)```", page, re.DOTALL):
        yield from block.splitlines()
    yield from re.findall(r"`([^`\n]+)`", re.sub(r"```.*?```", "", page, flags=re.DOTALL))


def targets(page: str) -> set[str]:
    """Give every target of every `make …` that a page shows, words before the first that is none."""
    found = set[str]()
    for line in code(page):
        for words in re.findall(r"\bmake ((?:[a-z-]+\b(?!=) ?)+)", line.partition("#")[0]):
            found.update(words.split())
    return found


def variables(page: str) -> set[str]:
    """Give what is handed to Make by name; what stands before `make` is the environment's."""
    asked = [line.partition("make ")[2] for line in code(page)]
    return {name for words in asked for name in re.findall(r"\b([A-Z_]+)=", words)}


def links(page: str) -> set[str]:
    found = re.findall(r"\]\(([^)#]+)(?:#[^)]*)?\)", page)
    return {link for link in found if "://" not in link}


def flags(page: str) -> set[tuple[str, str]]:
    """Give every flag that a page shows of a command of ours, with the command; alone, the command is any."""
    found = set[tuple[str, str]]()
    for line in code(page):
        shown = re.findall(rf"python -m ({'|'.join(COMMANDS)})\b([^`]*)", line)
        shown += [(HANDED_TO[name], words) for name, words in re.findall(r'\b([A-Z]+)_ARGS="([^"]*)"', line)]
        shown += [(ANY, line)] if line.startswith("--") else []
        found.update((command, flag) for command, words in shown for flag in re.findall(FLAG, words))
    return found


@pytest.fixture(scope="module")
def taken() -> dict[str, set[str]]:
    """The flags that each command of ours takes, in one of its parts."""
    found = {name: set[str]() for name in (*COMMANDS, "pytest", ANY)}
    parts = [["runtime", part] for part in ("generate", "chat", "serve", "bench")]
    for module, *words in [*([name] for name in COMMANDS), *parts]:
        shown = io.StringIO()
        with redirect_stdout(shown), pytest.raises(SystemExit):
            import_module(f"{module}.__main__").main([*words, "--help"])
        found[module].update(re.findall(FLAG, shown.getvalue()))
        found[ANY] |= found[module]
    return found


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_what_a_page_tells_to_make_can_be_made(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    known = set(re.search(r"^\.PHONY: (.*)$", MAKEFILE, re.MULTILINE).group(1).split())  # type: ignore[union-attr]
    assert targets(text) <= known
    assert variables(text) <= {*re.findall(r"^([A-Z_]+)\s*\??=", MAKEFILE, re.MULTILINE)}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_what_a_page_links_to_is_there(page: Path) -> None:
    missing = {link for link in links(page.read_text(encoding="utf-8")) if not (page.parent / link).exists()}
    assert not missing


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_flags_and_modules_of_a_page_are_ours(page: Path, taken: dict[str, set[str]]) -> None:
    text = page.read_text(encoding="utf-8")
    assert not {(command, flag) for command, flag in flags(text) if flag not in taken[command] | ELSEWHERE}
    modules = {name for line in code(text) for name in re.findall(r"python -m ([a-z_.]+)", line)}
    assert not {name for name in modules if find_spec(name) is None}


def test_the_readme_shows_every_stage_and_the_two_commands_first() -> None:
    assert {"export", "surgery", "build", "validate", "debug", "doctor", "test", "chat", "serve"} <= targets(README)
    first = README.partition("```sh\n")[2].splitlines()
    assert first[0].startswith("make export build validate ")
    assert first[1].startswith("make test ")


def test_the_folders_that_the_readme_draws_are_there() -> None:
    drawn = README.partition("## The files\n\n```\n")[2].partition("```")[0]
    names = re.findall(r"([a-z]+)/ ", drawn)
    assert len(names) == 10
    assert all((ROOT / name).is_dir() for name in names if name not in ("out", "checkpoints"))


def test_a_page_that_tells_what_is_not_there_is_seen() -> None:
    page = "Say `make bulid FOO=1`.\n```sh\nmake export valdate  # make nothing\n```\n[x](gone.md)"
    assert targets(page) == {"bulid", "export", "valdate"}
    assert variables(page) == {"FOO"}
    assert links(page) == {"gone.md"}
    shown = flags('`make build BUILD_ARGS="--no-such 1"`\n`python -m surgery x --gone`, `--alone`')
    assert shown == {("build", "--no-such"), ("surgery", "--gone"), (ANY, "--alone")}
