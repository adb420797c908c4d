"""The output folder is this checkpoint's own and its disk has room; both are known before any work is done."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from artifacts.checkpoint import Checkpoint
from artifacts.config import ModelConfig
from artifacts.doctor import disk_available
from artifacts.errors import refuse
from artifacts.layout import ModelFolder

_SMALL_FILES = 64 << 20
"""Graphs, tokenizer and manifest together; the released model's tokenizer.json is 17 MB, a graph 1 MB."""
_ROTARY_BYTES = 12
"""cos and sin of one position and column: twice BF16 and FP32."""


def check_owner(folder: ModelFolder, checkpoint: Checkpoint, identity: Mapping[str, Any]) -> None:
    """Refuse a model folder that holds another checkpoint.

    The same place may be exported again when its files have changed, and the same files when they have moved.

    Raises:
        StageError: another kind, origin or revision of checkpoint lies there, with other files.
    """
    if not (folder.onnx / "export.manifest.json").is_file():
        return
    record = folder.export_manifest().checkpoint
    if not {"kind", "origin"} <= record.keys():
        raise refuse(
            f"{folder.onnx / 'export.manifest.json'} does not say of which checkpoint it is",
            expected="a checkpoint with kind and origin",
            found=repr(dict(record)),
            remedy=f"remove {folder.root}, then export again",
        )
    there = Checkpoint(record["kind"], record["origin"], record.get("revision"))
    if there.title != checkpoint.title and record.get("files") != identity["files"]:
        raise refuse(
            f"{folder.root} already holds another checkpoint",
            expected=checkpoint.title,
            found=there.title,
            remedy=f"give another NAME (--name), or remove {folder.root}",
        )


def check_space(folder: ModelFolder, weight_bytes: int, config: ModelConfig) -> None:
    """Refuse a disk without room for the new files beside the old ones.

    Raises:
        StageError: with what is needed and what is free.
    """
    rotary = config.max_positions * config.head_dim // 2 * _ROTARY_BYTES
    needed = weight_bytes + rotary + _SMALL_FILES
    free = disk_available(folder.onnx)
    if free < needed:
        raise refuse(
            f"the disk of {folder.root} has too little room",
            expected=f"{needed / 1e9:.2f} GB free",
            found=f"{free / 1e9:.2f} GB free",
            remedy="free space or set OUT to a larger disk",
        )
