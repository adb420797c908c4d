"""The reference's results on disk, an array a file, so that they outlive its process and are read memory-mapped.

A model of 3B needs 12 GB to run in FP32: one runner is in memory at a time, and what it found waits here.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from artifacts.contract import LOGITS
from runtime.session import Array
from validate.exam import Sheet
from validate.greedy import Continuation
from validate.play import Answer

CHOSEN, SHEET = "chosen.json", "sheet.json"


@dataclass(frozen=True)
class Reference:
    """A folder with one sub-folder a passage: logits (tokens, V) and present.* (K, tokens, D), each `<name>.npy`."""

    folder: Path

    def write(self, passage: str, arrays: Mapping[str, Array]) -> None:
        """Keep what the reference gave for a passage that it read in one call."""
        place = self.folder / passage
        place.mkdir(parents=True, exist_ok=True)
        for name, array in arrays.items():
            np.save(place / f"{name}.npy", array)

    def read(self, passage: str) -> dict[str, Array]:
        """Give a passage's arrays, memory-mapped."""
        files = sorted((self.folder / passage).glob("*.npy"))
        return {file.name.removesuffix(".npy"): np.load(file, mmap_mode="r") for file in files}

    def write_continuation(self, chosen: Continuation) -> None:
        """Keep what the reference chose."""
        text = json.dumps({"tokens": chosen.tokens, "gaps": chosen.gaps})
        (self.folder / CHOSEN).write_text(text, encoding="utf-8")

    def read_continuation(self) -> Continuation:
        """Give what the reference chose."""
        return Continuation(**json.loads((self.folder / CHOSEN).read_text(encoding="utf-8")))

    def write_sheet(self, sheet: Sheet) -> None:
        """Keep what the reference made of the exam."""
        (self.folder / SHEET).write_text(json.dumps(sheet.to_json()), encoding="utf-8")

    def read_sheet(self) -> Sheet:
        """Give what the reference made of the exam."""
        return Sheet.from_json(json.loads((self.folder / SHEET).read_text(encoding="utf-8")))

    def expected(self, answer: Answer) -> dict[str, Array]:
        """Give the part of a passage that one row of one call must be equal to."""
        begin, end = answer.logits
        arrays = self.read(answer.passage)
        expected = {name: array[:, : answer.length] for name, array in arrays.items() if name != LOGITS}
        if end > begin:
            expected[LOGITS] = arrays[LOGITS][begin:end]
        return expected
