"""Config, generation config, tokenizer and chat template go along with the graphs, byte for byte."""

from __future__ import annotations

import json
import shutil
from collections.abc import Container
from pathlib import Path
from typing import Any

from artifacts.checkpoint import COMPANIONS, Checkpoint
from artifacts.errors import Problem, StageError
from artifacts.writing import Writing


def check(checkpoint: Checkpoint) -> None:
    """Insist that what is called JSON can be read as JSON; what it says is its readers' business.

    Raises:
        StageError: every file that is none.
    """
    problems = []
    for path in checkpoint.companions():
        if path.suffix == ".json":
            try:
                json.loads(path.read_bytes())
            except (ValueError, RecursionError) as error:
                found = f"{path.stat().st_size} bytes: {error}"
                remedy = "get the file again and compare it with the publisher's, or remove it"
                problems.append(Problem(f"{path} is no JSON", "a JSON file", found, remedy))
    if problems:
        raise StageError(problems)


def copy(checkpoint: Checkpoint, writing: Writing) -> list[str]:
    """Copy the checkpoint's own files; a random model has none, so its config is written as its preset has it.

    Returns:
        Names of the files.
    """
    if checkpoint.folder is None:
        files = {"config.json": checkpoint.raw_config, "generation_config.json": _generation(checkpoint.raw_config)}
        for name, content in files.items():
            writing.path(name).write_text(json.dumps(content, indent=2) + "\n", encoding="utf-8")
        return list(files)
    paths = checkpoint.companions()
    for path in paths:
        shutil.copyfile(path, writing.path(path.name))
    return [path.name for path in paths]


def sweep(onnx: Path, written: Container[str]) -> None:
    """Remove what an earlier export copied and this checkpoint no longer has: a tokenizer would still be read."""
    for name in COMPANIONS:
        if name not in written:
            (onnx / name).unlink(missing_ok=True)


def _generation(raw: dict[str, Any]) -> dict[str, Any]:
    return {name: raw[name] for name in ("bos_token_id", "eos_token_id", "pad_token_id")}
