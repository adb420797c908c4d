"""Feeds tokens to the graphs of a folder in steps of any size, through ONNX Runtime, in either form of the cache."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from artifacts.contract import LOGITS

Array = np.ndarray[Any, np.dtype[Any]]


@dataclass(frozen=True)
class Tokens:
    """A left-padded batch: ids, mask and positions, each (B, S)."""

    ids: Array
    mask: Array
    positions: Array

    @classmethod
    def draw(cls, length: int, pads: Sequence[int], *, vocabulary: int = 256, pad: int = 0) -> Tokens:
        """Draw one row for each number of pads."""
        ids = np.random.default_rng(7).integers(1, vocabulary, (len(pads), length))
        mask = (np.arange(length) >= np.array(pads)[:, None]).astype(np.int64)
        return cls(np.where(mask == 1, ids, pad), mask, np.maximum(mask.cumsum(1) - 1, 0))

    def row(self, index: int) -> Tokens:
        """Give one row alone, without its padding."""
        real = self.mask[index] == 1
        return Tokens(*(array[index : index + 1, real] for array in (self.ids, self.mask, self.positions)))


class Steps:
    """Runs one FP32 graph step by step."""

    def __init__(self, path: Path) -> None:
        import onnxruntime

        options = onnxruntime.SessionOptions()
        options.log_severity_level = 3
        options.intra_op_num_threads = 2
        self.session = onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
        self.shapes = {value.name: value.shape for value in self.session.get_inputs()}
        self.linear = "write_indices" in self.shapes

    def run(self, tokens: Tokens, sizes: Sequence[int]) -> tuple[list[Array], dict[str, Array]]:
        """Give the logits of each step, and the cache after the last, by the names of its outputs."""
        batch = len(tokens.ids)
        cache = {name: self._empty(shape, batch) for name, shape in self.shapes.items() if name.startswith("past_key")}
        names = [value.name for value in self.session.get_outputs()]
        logits, begin = [], 0
        for size in sizes:
            feeds = cache | self._feeds(tokens, begin, begin + size)
            outputs = dict(zip(names, self.session.run(None, feeds), strict=True))
            logits.append(outputs.pop(LOGITS))
            cache = {name.replace("present", "past_key_values"): value for name, value in outputs.items()}
            begin += size
        return logits, {name.replace("past_key_values", "present"): value for name, value in cache.items()}

    def logits(self, tokens: Tokens, sizes: Sequence[int]) -> Array:
        """Give the logits of all steps, joined along the sequence."""
        return np.concatenate(self.run(tokens, sizes)[0], axis=1)

    def _empty(self, shape: Sequence[Any], batch: int) -> Array:
        length = shape[2] if self.linear else 0
        return np.zeros((batch, shape[1], length, shape[3]), np.float32)

    def _feeds(self, tokens: Tokens, begin: int, end: int) -> dict[str, Array]:
        feeds = {"input_ids": tokens.ids[:, begin:end], "position_ids": tokens.positions[:, begin:end]}
        mask = tokens.mask[:, :end]
        if self.linear:
            capacity = self.shapes["attention_mask"][1]
            feeds["write_indices"] = np.full(len(mask), begin)
            mask = np.pad(mask, ((0, 0), (0, capacity - end)))
        return feeds | {"attention_mask": mask}


def distance(found: Array, wanted: Array) -> float:
    """Give the largest difference, in units of the largest magnitude wanted; not a number counts as infinite."""
    if not np.isfinite(found).all() or found.shape != wanted.shape or not found.size:
        return float("inf")
    return float(np.abs(found - wanted).max() / np.abs(wanted).max())
