"""Config, generation config, tokenizer and chat template go along with the graphs, byte for byte."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Container, Iterator
from pathlib import Path
from typing import Any

from artifacts.checkpoint import COMPANIONS, Checkpoint
from artifacts.errors import Problem, StageError
from artifacts.exam import EXAM, Exam
from artifacts.writing import Writing


def check(checkpoint: Checkpoint) -> None:
    """Insist on files, that what is called JSON is JSON, and an exam one; what the rest says is its readers' business.

    Raises:
        StageError: every name that is no file, every file that is no JSON, an exam that is none.
    """
    problems = list(_unreadable(checkpoint.folder)) if checkpoint.folder else []
    for path in checkpoint.companions():
        if path.suffix == ".json":
            try:
                json.loads(path.read_bytes())
            except (ValueError, RecursionError) as error:
                found = f"{path.stat().st_size} bytes: {error}"
                remedy = "get the file again and compare it with the publisher's, or remove it"
                problems.append(Problem(f"{path} is no JSON", "a JSON file", found, remedy))
                continue
        if path.name == EXAM:
            try:
                Exam.read(path.parent)
            except StageError as error:
                problems += error.problems
    if problems:
        raise StageError(problems)


def _unreadable(folder: Path) -> Iterator[Problem]:
    """Yield every companion of which there is the name and no file, such as a link into a cache that lost it."""
    for path in (folder / name for name in COMPANIONS):
        if os.path.lexists(path) and not path.is_file():
            found = f"a link to {path.readlink()}, which is not there" if path.is_symlink() else "a folder"
            yield Problem(f"{path} is no file", "a file", found, "get the checkpoint again, or remove the name")


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


def others(onnx: Path, written: Container[str]) -> list[Path]:
    """Find what lies there and is not this checkpoint's: a tokenizer would be read all the same."""
    return [onnx / name for name in COMPANIONS if name not in written and (onnx / name).exists()]


def sweep(onnx: Path, written: Container[str]) -> None:
    """Remove what an earlier export copied and this checkpoint no longer has."""
    for path in others(onnx, written):
        path.unlink()


def _generation(raw: dict[str, Any]) -> dict[str, Any]:
    return {name: raw[name] for name in ("bos_token_id", "eos_token_id", "pad_token_id")}
