"""One request at work: its texts in the scheduler, and their pieces on the way back to the event loop."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass

from artifacts.errors import StageError
from runtime.continuation import Continuation, Piece
from runtime.scheduler import Scheduler, Ticket
from runtime.server.metrics import Metrics

Arrival = tuple[int, Piece | StageError]


@dataclass
class Usage:
    """Tokens of a request."""

    prompt: int
    completion: int = 0

    def body(self) -> dict[str, int]:
        """Give the counts as the API has them."""
        total = self.prompt + self.completion
        return {"prompt_tokens": self.prompt, "completion_tokens": self.completion, "total_tokens": total}


class Job:
    """The texts of one request.

    Args:
        scheduler: where they run.
        continuations: one for each choice, of the same prompt.
        metrics: is told when tokens come.

    Raises:
        QueueFull: they would wait longer than may be.
    """

    def __init__(self, scheduler: Scheduler, continuations: Sequence[Continuation], metrics: Metrics) -> None:
        self._scheduler, self._metrics = scheduler, metrics
        self._loop = asyncio.get_running_loop()
        self._arrived: asyncio.Queue[Arrival | None] = asyncio.Queue()
        self._open = set(range(len(continuations)))
        self._tickets = [Ticket(one, self._receiver(choice)) for choice, one in enumerate(continuations)]
        self.usage = Usage(len(continuations[0].prompt))
        scheduler.submit(self._tickets)
        metrics.prompt_tokens.inc(self.usage.prompt)

    async def pieces(self) -> AsyncIterator[tuple[int, Piece]]:
        """Yield the number of a choice and what came of it, until all have ended or were given up.

        Raises:
            StageError: the model failed.
        """
        last: dict[int, float] = {}
        while self._open and (arrival := await self._arrived.get()) is not None:
            choice, piece = arrival
            if choice not in self._open:
                continue
            if isinstance(piece, StageError):
                raise piece
            now = time.perf_counter()
            if choice in last:
                self._metrics.token_seconds.observe(now - last[choice])
            else:
                self._metrics.first_token_seconds.observe(now - self._tickets[choice].arrived)
            last[choice] = now
            self._metrics.tokens.inc()
            self.usage.completion += 1
            if piece.finish is not None:
                self._open.discard(choice)
            yield choice, piece

    def end(self, choice: int) -> None:
        """Give up the rest of one text: what came of it is a whole answer."""
        self._open.discard(choice)
        self._scheduler.cancel(self._tickets[choice])

    def cancel(self) -> None:
        """Give up what has not ended."""
        for choice in self._open:
            self._scheduler.cancel(self._tickets[choice])
        self._arrived.put_nowait(None)

    def _receiver(self, choice: int) -> Callable[[Piece | StageError], None]:
        def deliver(piece: Piece | StageError) -> None:
            # After the server's end the loop is closed, and there is nobody left to tell.
            with suppress(RuntimeError):
                self._loop.call_soon_threadsafe(self._arrived.put_nowait, (choice, piece))

        return deliver
