"""The options of the runtime's commands, and what they mean as settings."""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

from artifacts.errors import refuse
from runtime.model import RunOptions
from runtime.settings import Defaults, Settings
from runtime.tools import Tools

SAMPLING = {
    "temperature": (float, "0 takes the most likely token"),
    "top-k": (int, "keep the K most likely tokens"),
    "top-p": (float, "keep the most likely tokens that sum to P"),
    "min-p": (float, "keep tokens at least P times as likely as the most likely one"),
    "repetition-penalty": (float, "above 1 makes tokens seen before less likely"),
    "seed": (int, "the same seed gives the same text"),
}


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


def _add_model(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("model", type=Path, metavar="OUT/<model>", help="the model's folder")
    parser.add_argument("--context", type=int, metavar="TOKENS", help="most tokens of prompt and text (default: 4096)")
    parser.add_argument("--linear", action="store_true", help="use the linear cache instead of the one that grows")
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
    return RunOptions(given.linear, given.context, given.provider)


def settings(given: argparse.Namespace, defaults: Defaults) -> Settings:
    """Give the checkpoint's settings with what the command line changes.

    Raises:
        StageError: a value is out of range.
    """
    changes: dict[str, Any] = {name.replace("-", "_"): getattr(given, name.replace("-", "_")) for name in SAMPLING}
    base = defaults.settings.with_sampling(**changes)
    return Settings(base.sampling, given.max_tokens or base.max_tokens, tuple(given.stop))


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
