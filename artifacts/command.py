"""How every command line of ours behaves: results on stdout, progress on stderr, exit code 0, 1 or 2.

0: done. 1: the verdict is no. 2: could not do it; one message says what, expected, found and what to do.
"""

from __future__ import annotations

import argparse
import io
import os
import sys
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from typing import Any, NoReturn

from rich.console import Console

from artifacts.errors import Problem, StageError, refuse
from artifacts.writing import is_refusal_of_the_disk

DONE, VERDICT_NO, COULD_NOT = 0, 1, 2


class Parser(argparse.ArgumentParser):
    """An argument parser with no abbreviations, defaults shown, and refusals in the house's form."""

    def __init__(self, **options: object) -> None:
        settings: dict[str, object] = {
            "allow_abbrev": False,
            "formatter_class": argparse.RawDescriptionHelpFormatter,
            **options,
        }
        super().__init__(**settings)  # type: ignore[arg-type]  # argparse's own keywords, passed through
        self._given: tuple[str, ...] = ()

    def parse_known_args(  # type: ignore[override]  # argparse's overloads, which all come to this
        self, args: Sequence[str] | None = None, namespace: Any = None
    ) -> tuple[Any, list[str]]:
        """Parse, and keep what was given: argparse forgets unknown flags where an argument is missing as well.

        Raises:
            StageError: what is no UTF-8; neither a manifest nor a tokenizer could take it.
        """
        self._given = tuple(sys.argv[1:] if args is None else args)
        broken = [word for word in self._given if not _is_utf8(word)]
        if broken:
            what, remedy = "an argument is no text", "give it in UTF-8; rename a file whose name is none"
            raise StageError([Problem(what, "valid UTF-8", repr(os.fsencode(word))[1:], remedy) for word in broken])
        return super().parse_known_args(args, namespace)

    def error(self, message: str) -> NoReturn:
        """Refuse the command line with exit code 2; flags that are unknown are named first."""
        flags = [word.partition("=")[0] for word in self._given if word.startswith("--") and word != "--"]
        unknown = [flag for flag in flags if flag not in self._option_string_actions]
        if unknown and not message.startswith("unrecognized"):
            message = f"unrecognized arguments: {' '.join(unknown)}; {message}"
        self.exit(COULD_NOT, f"error: {message}\n  do:       {self.prog} --help\n")


def piped_lines() -> Iterator[str]:
    """Give the lines of stdin; none where it is closed.

    Raises:
        StageError: it is no UTF-8.
    """
    try:
        for line in sys.stdin or ():
            line.encode()  # in a C locale Python reads any byte, and this is where it would show
            yield line
    except UnicodeError as error:
        raise refuse("stdin is no text", expected="valid UTF-8", found=str(error), remedy="convert it first") from None


def _is_utf8(word: str) -> bool:
    try:
        word.encode()
    except UnicodeEncodeError:
        return False
    return True


def stderr() -> Console:
    """The console for progress; results never go there."""
    return Console(stderr=True, highlight=False)


def stdout() -> Console:
    """The console for results; as wide as the terminal, and 120 columns where there is none."""
    width = None if sys.stdout is not None and sys.stdout.isatty() else 120
    return Console(highlight=False, width=width, soft_wrap=False)


def run(main: Callable[[Sequence[str]], int], arguments: Sequence[str] | None = None) -> NoReturn:
    """Run a command's `main` and end the process with its exit code; a `StageError` is printed and ends it with 2."""
    if isinstance(sys.stdout, io.TextIOWrapper):
        # A path may have letters that a terminal of another encoding lacks.
        sys.stdout.reconfigure(errors="backslashreplace")
    try:
        code = main(sys.argv[1:] if arguments is None else arguments)
        if sys.stdout is not None:
            sys.stdout.flush()
    except StageError as error:
        code = _refused("\n".join(f"error: {problem}" for problem in error.problems))
    except KeyboardInterrupt:
        code = _refused("error: interrupted; nothing half-written was left")
    except BrokenPipeError:
        code = _refused()
    except Exception as error:
        if is_refusal_of_the_disk(error):
            code = _refused(f"error: what was to be written could not be: {error}\n  do:       free space, or give OUT")
        else:
            # Exit code 1 is a verdict: whatever was not foreseen must not look like one.
            unforeseen = f"error: {type(error).__name__}, which this project should have foreseen: {error}"
            remedy = "  do:       report it with the lines above; nothing half-written was left"
            code = _refused(f"{traceback.format_exc()}{unforeseen}\n{remedy}")
    sys.exit(code)


def _refused(text: str = "") -> int:
    """Say why there is no result, and leave nothing in stdout that could still fail when the process ends."""
    with suppress(OSError):
        print(text, end="\n" if text else "", file=sys.stderr, flush=True)
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except OSError:
            os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())
        except AttributeError:
            pass  # it was closed before the process began
    return COULD_NOT
