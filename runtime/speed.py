"""How fast a text was made: time to the first token, and tokens a second before and after it."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from runtime.continuation import Piece


@dataclass
class Speed:
    """Times one continuation while it streams through `watch`.

    Attributes:
        prompt: tokens of the prompt.
        kept: how many of them a cache held already, so that they were not read.
        began: when it was asked for, seconds of the monotonic clock.
        times: when each token came.
    """

    prompt: int
    began: float = field(default_factory=time.perf_counter)
    times: list[float] = field(default_factory=list)
    kept: int = 0

    def watch(self, pieces: Iterable[Piece]) -> Iterator[Piece]:
        """Pass pieces on and note when they came."""
        for piece in pieces:
            self.times.append(time.perf_counter())
            yield piece

    @property
    def first(self) -> float:
        """Seconds to the first token."""
        return self.times[0] - self.began

    @property
    def decode(self) -> float:
        """Tokens a second after the first; 0 where there was only one."""
        return (len(self.times) - 1) / (self.times[-1] - self.times[0]) if len(self.times) > 1 else 0.0

    def __str__(self) -> str:
        if not self.times:
            return f"{self.prompt} tokens in, none out"
        known = f" ({self.kept} known)" if self.kept else ""
        return (
            f"{self.prompt} tokens in{known}, {len(self.times)} out; first after {self.first:.2f} s "
            f"({(self.prompt - self.kept) / self.first:.0f} tokens/s), then {self.decode:.1f} tokens/s"
        )
