"""Text ends where a stop string begins, however the stream is cut into tokens.

What could be the beginning of a stop string is held back until more text tells.
"""

from __future__ import annotations

import re
from collections.abc import Iterable


class StopStrings:
    """Finds the first of several strings in a stream of text.

    The string that begins first wins; of those that begin at one place, the one that was whole first, which is the
    shortest. So the result is the same for every cut of the stream.
    """

    def __init__(self, stops: Iterable[str]) -> None:
        self._stops = tuple(sorted(set(stops), key=len))
        self._pattern = re.compile("|".join(map(re.escape, self._stops))) if self._stops else None
        self._held = ""
        self.stopped: str | None = None
        """The stop string that was found, if one was."""

    def feed(self, text: str) -> str:
        """Take more text and give what is surely before every stop string."""
        if self._pattern is None:
            return text
        if self.stopped is not None:
            return ""
        self._held += text
        found, waiting = self._pattern.search(self._held), self._first_unfinished()
        if found is not None and found.start() <= waiting:
            return self._stop_at(found)
        given, self._held = self._held[:waiting], self._held[waiting:]
        return given

    def finish(self) -> str:
        """Give what was held back, up to a stop string, once no more text will come."""
        found = self._pattern.search(self._held) if self._pattern else None
        if found is not None:
            return self._stop_at(found)
        rest, self._held = self._held, ""
        return rest

    def _stop_at(self, found: re.Match[str]) -> str:
        self.stopped = found.group()
        given, self._held = self._held[: found.start()], ""
        return given

    def _first_unfinished(self) -> int:
        """Give the first place from which the held text could still become a stop string; its end if there is none."""
        longest = len(self._stops[-1])
        for start in range(max(0, len(self._held) - longest + 1), len(self._held)):
            tail = self._held[start:]
            if any(len(stop) > len(tail) and stop.startswith(tail) for stop in self._stops):
                return start
        return len(self._held)
