"""The options of the runtime's commands, and what they mean as settings."""

from __future__ import annotations

import argparse
import json
import os
import re
from pathlib import Path
from typing import Any

from artifacts.errors import Problem, StageError, refuse
from runtime.model import RunOptions
from runtime.serve_options import ServeOptions
from runtime.settings import Defaults, Settings
from runtime.tools import Tools

API_KEY = "SMOLLM3_API_KEY"
"""Environment variable that may hold the key: a command line can be read by other users of the machine."""

PEERS = ("transformers", "onnxruntime-genai")

SAMPLING = {
    "temperature": (float, "0 takes the most likely token; to 100"),
    "top-k": (int, "keep the K most likely tokens"),
    "top-p": (float, "keep the most likely tokens that sum to P"),
    "min-p": (float, "keep tokens at least P times as likely as the most likely one"),
    "repetition-penalty": (float, "0.01 to 100; above 1 makes tokens seen before less likely"),
    "seed": (int, "the same seed gives the same text"),
}

SERVING = {"port": (0, 65535), "slots": (1, None), "max_queue": (0, None), "chunk": (1, None)}
"""Least and most that the options of `serve` take; `None` sets no limit."""


def add_generate(parser: argparse.ArgumentParser) -> None:
    """Add the options of `generate`."""
    _add_model(parser)
    parser.add_argument("prompt", help="the text to continue; - reads it from stdin")
    _add_settings(parser)


def add_chat(parser: argparse.ArgumentParser) -> None:
    """Add the options of `chat`."""
    _add_model(parser)
    _add_settings(parser)
    think = parser.add_mutually_exclusive_group()
    think.add_argument("--think", action="store_true", default=None, help="let the model think")
    think.add_argument("--no-think", action="store_false", dest="think", help="do not; default: as the template says")
    parser.add_argument("--system", default="", metavar="TEXT", help="the system prompt")
    for name in ("tools", "xml-tools", "python-tools"):
        parser.add_argument(f"--{name}", type=Path, metavar="FILE", help=f"a JSON list for the template's {name}")


def add_bench(parser: argparse.ArgumentParser) -> None:
    """Add the options of `bench`."""
    _add_model(parser)
    parser.add_argument(
        "--prompts", type=_count, nargs="+", default=[128, 512, 1024], metavar="TOKENS", help="of the prompts"
    )
    parser.add_argument("--batches", type=_count, nargs="+", default=[1, 4, 8], metavar="N", help="texts at once")
    parser.add_argument("--new", type=_several, default=32, metavar="TOKENS", help="that each text gets (default: 32)")
    parser.add_argument(
        "--against", nargs="+", default=[], choices=PEERS, help="compare with these, on the same weights"
    )
    parser.add_argument("--streams", type=_count, default=0, metavar="N", help="clients of the server at once")
    parser.add_argument("--write", type=Path, metavar="FILE", help="put the tables into this document")


def _count(text: str, least: int = 1) -> int:
    if not (text.isascii() and text.isdecimal() and int(text) >= least):
        raise argparse.ArgumentTypeError(f"expected a number of {least} or more, found {text!r}")
    return int(text)


def _several(text: str) -> int:
    """Read a number of tokens between which time is measured."""
    return _count(text, 2)


def add_serve(parser: argparse.ArgumentParser) -> None:
    """Add the options of `serve`."""
    _add_model(parser, choose_form=False)
    parser.add_argument("--host", default="127.0.0.1", help="address to listen at (default: 127.0.0.1, this machine)")
    parser.add_argument("--port", type=int, default=8000, help="port to listen at (default: 8000)")
    parser.add_argument("--slots", type=int, default=8, metavar="N", help="texts that run at once (default: 8)")
    parser.add_argument("--max-queue", type=int, default=64, metavar="N", help="texts that may wait (default: 64)")
    parser.add_argument("--chunk", type=int, default=256, metavar="TOKENS", help="of a prompt, between two steps (256)")
    parser.add_argument("--api-key", metavar="KEY", help=f"what clients must show (default: ${API_KEY}, or none)")


def _add_model(parser: argparse.ArgumentParser, *, choose_form: bool = True) -> None:
    parser.add_argument("model", type=Path, metavar="OUT/<model>", help="the model's folder")
    parser.add_argument("--context", type=int, metavar="TOKENS", help="most tokens of prompt and text (default: 4096)")
    if choose_form:
        parser.add_argument(
            "--concatenated",
            action="store_true",
            help="use the graph of the concatenated cache; on a CPU both run alike",
        )
    parser.add_argument("--plan", metavar="TARGET", help="run the plan in build/TARGET with TensorRT")
    parser.add_argument("--provider", choices=("cpu", "cuda"), default="cpu", help="where ONNX Runtime computes")


def _add_settings(parser: argparse.ArgumentParser) -> None:
    for name, (kind, text) in SAMPLING.items():
        parser.add_argument(f"--{name}", type=kind, metavar=name[0].upper(), help=f"{text} (default: the checkpoint's)")
    parser.add_argument("--max-tokens", type=int, metavar="N", help="most new tokens (default: what the context holds)")
    parser.add_argument(
        "--stop", action="append", default=[], metavar="TEXT", help="end before this text; may be repeated"
    )


def run_options(given: argparse.Namespace) -> RunOptions:
    """Give how to run the model."""
    return RunOptions(not getattr(given, "concatenated", False), given.context, given.provider, given.plan)


def serve_options(given: argparse.Namespace) -> ServeOptions:
    """Give how to serve the model.

    Raises:
        StageError: a number is out of range (all of them).
    """
    problems = []
    for name, (least, most) in SERVING.items():
        value = getattr(given, name)
        if value < least or (most is not None and value > most):
            allowed = f"{least} or more" if most is None else f"{least} to {most}"
            problems.append(Problem(f"--{name.replace('_', '-')} is out of range", allowed, str(value)))
    key = os.environ.get(API_KEY) or None if given.api_key is None else given.api_key
    if key is not None and not re.fullmatch(r"[!-~]+", key):
        expected = "letters, digits and signs of ASCII, without spaces, as a header carries them"
        found = "a key that is empty" if not key else "a key with others"
        problems.append(Problem("--api-key cannot be used", expected, found, "leave it out, or give another"))
    if problems:
        raise StageError(problems)
    return ServeOptions(given.slots, given.max_queue, given.chunk, key, given.host)


def settings(given: argparse.Namespace, defaults: Defaults) -> Settings:
    """Give the checkpoint's settings with what the command line changes.

    Raises:
        StageError: a value is out of range.
    """
    changes: dict[str, Any] = {name.replace("-", "_"): getattr(given, name.replace("-", "_")) for name in SAMPLING}
    base = defaults.settings.with_sampling(**changes)
    most = base.max_tokens if given.max_tokens is None else given.max_tokens
    return Settings(base.sampling, most, tuple(given.stop))


def tools(given: argparse.Namespace) -> Tools:
    """Read the files of tools.

    Raises:
        StageError: a file is no JSON list of tools.
    """
    return Tools(_list(given.tools), _list(given.xml_tools), _list(given.python_tools))


def _list(path: Path | None) -> list[Any]:
    if path is None:
        return []
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise refuse(f"{path} cannot be read as JSON", found=str(error), remedy="give a JSON list of tools") from None
    if not isinstance(found, list):
        raise refuse(f"{path} is no list", expected="a JSON list of tools", found=type(found).__name__)
    return found
