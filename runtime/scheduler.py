"""Continuous batching: many texts at once over one linear cache, one row each.

One turn of the scheduler frees rows of those who went away, gives free rows to those who wait, reads one chunk of one
prompt, and then takes one step for all rows that have a token to go on from. So a long prompt delays the others by a
chunk at a time, and a row that ends is free at once.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from artifacts.errors import Problem, StageError
from runtime.continuation import Continuation, Piece
from runtime.linear_cache import LinearCache
from runtime.sampling import Logits


class QueueFull(Exception):  # noqa: N818  # it says what is so, like queue.Full
    """More texts are waiting than may wait."""


@dataclass(eq=False)
class Ticket:
    """A text that was asked for.

    Attributes:
        continuation: the text.
        deliver: takes every piece, from the scheduler's thread; an error takes the place of the last one.
        cancelled: nobody wants it any more.
        arrived: when it was asked for, seconds of the monotonic clock.
    """

    continuation: Continuation
    deliver: Callable[[Piece | StageError], None]
    cancelled: bool = False
    arrived: float = field(default_factory=time.perf_counter)


@dataclass
class _Row:
    """A row of the cache at work: how much of its prompt was read, and the token to go on from."""

    ticket: Ticket
    read: int = 0
    token: int | None = None


class Scheduler:
    """Shares one linear cache among many texts.

    `submit`, `cancel`, `close` and the counts may be used from any thread; `step` belongs to one.

    Args:
        cache: an empty linear cache; its rows are the texts that run at once.
        max_queue: texts that may wait for a row.
    """

    def __init__(self, cache: LinearCache, *, max_queue: int) -> None:
        self._cache = cache
        self._max_queue = max_queue
        self._waiting: deque[Ticket] = deque()
        self._rows: dict[int, _Row] = {}
        self._changed = threading.Condition()
        self._closed: StageError | None = None

    @property
    def waiting(self) -> int:
        """Texts that wait for a row."""
        return len(self._waiting)

    @property
    def live(self) -> int:
        """Rows at work."""
        return len(self._rows)

    @property
    def held(self) -> int:
        """Tokens that lie in the cache."""
        return sum(self._cache.fill(row) for row in range(self._cache.rows))

    def submit(self, tickets: Sequence[Ticket]) -> None:
        """Ask for texts; all of them or none. After `close` they end at once.

        Raises:
            QueueFull: more would wait than may.
        """
        with self._changed:
            if self._closed is not None:
                _cut_off(tickets, self._closed)
                return
            free = self._cache.rows - len(self._rows)
            if len(self._waiting) + len(tickets) > self._max_queue + free:
                raise QueueFull
            self._waiting.extend(tickets)
            self._changed.notify()

    def cancel(self, ticket: Ticket) -> None:
        """Give up a text; its row is free before the next step."""
        with self._changed:
            ticket.cancelled = True
            self._changed.notify()

    def close(self, error: StageError) -> None:
        """End every text that runs or waits, and every one that is still to come, with this error."""
        with self._changed:
            self._closed = error
            _cut_off([*self._waiting, *(at_work.ticket for at_work in self._rows.values())], error)
            self._changed.notify()

    def wait(self, seconds: float) -> None:
        """Sleep until there may be something to do."""
        with self._changed:
            if not self._waiting and not self._rows:
                self._changed.wait(seconds)

    def step(self) -> bool:
        """Take one turn; says whether there was anything to do."""
        self._admit()
        if not self._rows:
            return False
        self._read_chunk()
        self._step_rows()
        return True

    def fail(self, error: StageError) -> None:
        """End every text that runs, and empty the cache."""
        for row in list(self._rows):
            self._end(row, error)
        self._cache.reset()

    def _admit(self) -> None:
        """Free rows that nobody wants and give free rows away, the lowest first: a step runs up to the highest."""
        with self._changed:
            for row in [row for row, at_work in self._rows.items() if at_work.ticket.cancelled]:
                self._free(row)
            waiting = [ticket for ticket in self._waiting if not ticket.cancelled]
            free = [row for row in range(self._cache.rows) if row not in self._rows]
            for row, ticket in zip(free, waiting, strict=False):
                self._rows[row] = _Row(ticket)
            self._waiting = deque(waiting[len(free) :])

    def _read_chunk(self) -> None:
        """Read one chunk of the prompt that has waited longest."""
        unread = [(at_work.ticket.arrived, row) for row, at_work in self._rows.items() if at_work.token is None]
        if not unread:
            return
        row = min(unread)[1]
        at_work = self._rows[row]
        prompt = at_work.ticket.continuation.prompt
        chunk = prompt[at_work.read : at_work.read + self._cache.chunk]
        try:
            logits = self._cache.extend(row, chunk)
        except StageError as error:
            self.fail(error)
            return
        at_work.read += len(chunk)
        if at_work.read == len(prompt):
            self._take(row, logits)

    def _step_rows(self) -> None:
        """Take one step for all rows that have a token to go on from."""
        tokens = {row: at_work.token for row, at_work in self._rows.items() if at_work.token is not None}
        if not tokens:
            return
        try:
            found = self._cache.step(tokens)
        except StageError as error:
            self.fail(error)
            return
        for row, logits in found.items():
            self._take(row, logits)

    def _take(self, row: int, logits: Logits) -> None:
        """Let a text choose its next token, and deliver what that gives."""
        at_work = self._rows[row]
        try:
            piece = at_work.ticket.continuation.take(logits)
        except FloatingPointError as error:
            self._end(row, StageError(Problem("the model broke down", "finite logits", str(error))))
            return
        at_work.token = piece.token
        if piece.finish is None:
            at_work.ticket.deliver(piece)
        else:
            self._end(row, piece)

    def _end(self, row: int, last: Piece | StageError) -> None:
        ticket = self._rows[row].ticket
        # The text has ended, whatever comes of its row: who waits for it must not wait for ever.
        try:
            with self._changed:
                self._free(row)
        finally:
            ticket.deliver(last)

    def _free(self, row: int) -> None:
        del self._rows[row]
        self._cache.keep(row, 0)


def _cut_off(tickets: Sequence[Ticket], error: StageError) -> None:
    """Tell those who wait for texts that no more comes; what the model still writes is heard by nobody."""
    for ticket in tickets:
        ticket.cancelled = True
        ticket.deliver(error)
