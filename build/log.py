"""build.log holds all that TensorRT says, and its memory figures are read out of it.

TensorRT has no other way to tell them without a GPU. Lines are `SEVERITY message`; a message may span lines.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TextIO

ERRORS = ("INTERNAL_ERROR", "ERROR")
_FIGURE = re.compile(r"^(Total Weights Memory|Total Activation Memory|Max Scratch Memory): (\d+) bytes$")
_PEAK = re.compile(r"Peak memory usage of TRT CPU/GPU memory allocators: CPU (\d+) MiB, GPU (\d+) MiB")
_MIB = 1 << 20


@dataclass
class Figures:
    """TensorRT's own memory figures, in bytes; a list holds one for each profile, in order."""

    weights: int | None = None
    activations: list[int] = field(default_factory=list)
    scratch: list[int] = field(default_factory=list)
    allocator_peak: dict[str, int] = field(default_factory=dict)

    def read(self, message: str) -> None:
        """Take a figure from a message, if it tells one."""
        found = _FIGURE.match(message)
        if found and found[1] == "Total Weights Memory":
            self.weights = int(found[2])
        elif found:
            (self.activations if found[1] == "Total Activation Memory" else self.scratch).append(int(found[2]))
        elif peak := _PEAK.search(message):
            self.allocator_peak = {"host": int(peak[1]) * _MIB, "device": int(peak[2]) * _MIB}


class BuildLog:
    """Listens to TensorRT: writes every message, keeps the errors, reads the figures.

    TensorRT calls it from C++, where an exception would end the process; a disk that is full is kept in `failure`.
    """

    def __init__(self, file: TextIO, echo: Callable[[str], None] | None = None) -> None:
        self.figures = Figures()
        self.errors: list[str] = []
        self.failure: OSError | None = None
        self._file, self._echo, self._start = file, echo, time.monotonic()

    def hear(self, severity: str, message: str) -> None:
        """Take one message."""
        line = f"{time.monotonic() - self._start:9.3f} {severity} {message.rstrip()}"
        if severity in ERRORS:
            self.errors.append(message.strip())
        self.figures.read(message.strip())
        try:
            if self.failure is None:
                self._file.write(line + "\n")
        except OSError as error:
            self.failure = error
        if self._echo is not None:
            self._echo(line)
