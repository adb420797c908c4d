"""What a subject made, on disk, an array a file, so that memory holds one model and one tensor at a time."""

from __future__ import annotations

import itertools
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from artifacts.config import ModelConfig
from artifacts.contract import KINDS, past_name, present_name
from runtime.session import Array
from validate.layers.calls import Call

MAPPED = 1 << 22
"""Bytes from which a file is mapped; mapping a small one costs more than reading it."""


@dataclass(frozen=True)
class Record:
    """A folder with one sub-folder a call; in file names a backslash stands for the slash of a tensor's name."""

    folder: Path

    def write(self, call: Call, name: str, array: Array) -> None:
        """Keep one tensor of one call."""
        path = self._path(call.name, name)
        path.parent.mkdir(parents=True, exist_ok=True)
        np.save(path, array)

    def read(self, call: Call, name: str) -> Array:
        """Give one tensor, memory-mapped where it is large."""
        path = self._path(call.name, name)
        found: Array = np.load(path, mmap_mode="r" if path.stat().st_size > MAPPED else None)
        return found

    def names(self, call: Call) -> Collection[str]:
        """Tensors that were kept of a call."""
        return {path.stem.replace("\\", "/") for path in (self.folder / call.name).glob("*.npy")}

    def past(self, call: Call, config: ModelConfig, wanted: Collection[str] | None = None) -> dict[str, Array]:
        """Give a call's past: the cache that the call before it left, rounded to BF16; empty where there is none.

        Args:
            call: the call; the one before it has been kept.
            config: the model's facts.
            wanted: names of the inputs that are wanted; all of them if not given.
        """
        found = {}
        for layer, kind in itertools.product(range(config.num_hidden_layers), KINDS):
            if wanted is None or past_name(layer, kind) in wanted:
                shape = (len(call.ids), config.num_key_value_heads, 0, config.head_dim)
                array = np.zeros(shape, np.float32)
                if call.after is not None:
                    array = rounded(np.load(self._path(call.after, present_name(layer, kind))))
                found[past_name(layer, kind)] = array
        return found

    def _path(self, call: str, name: str) -> Path:
        return self.folder / call / (name.replace("/", "\\") + ".npy")


def rounded(array: Array) -> Array:
    """Round FP32 to BF16's values, still as FP32; other types stay as they are."""
    import ml_dtypes

    return array.astype(ml_dtypes.bfloat16).astype(np.float32) if array.dtype == np.float32 else array
