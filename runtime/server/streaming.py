"""Server-sent events from a job, and the watch that ends a job when its client goes away."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from typing import Any

from starlette.responses import StreamingResponse
from starlette.types import Receive, Scope, Send

from artifacts.errors import StageError
from runtime.server.errors import ApiError
from runtime.server.job import Job

Chunks = Callable[[], AsyncIterator[Mapping[str, Any]]]


class JobResponse(StreamingResponse):
    """Streams a job's chunks; the job ends with the response, whichever way that ends."""

    def __init__(self, job: Job, chunks: AsyncIterator[Mapping[str, Any]]) -> None:
        super().__init__(_events(chunks), media_type="text/event-stream", headers={"Cache-Control": "no-store"})
        self._job = job

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Stream until the end or until the client goes away."""
        async with watched(self._job, receive):
            await super().__call__(scope, receive, send)


@asynccontextmanager
async def watched(job: Job, receive: Receive) -> AsyncIterator[None]:
    """Cancel a job at the end of the block, and earlier if its client goes away."""
    watch = asyncio.create_task(_cancel_when_gone(job, receive))
    try:
        yield
    finally:
        watch.cancel()
        job.cancel()


async def _cancel_when_gone(job: Job, receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
    job.cancel()


async def _events(chunks: AsyncIterator[Mapping[str, Any]]) -> AsyncIterator[str]:
    """Write chunks as events; an error that comes too late for a status is an event of its own."""
    try:
        async for chunk in chunks:
            yield _event(chunk)
    except StageError as error:
        yield _event(ApiError.of(error, 503).body())
    yield "data: [DONE]\n\n"


def _event(data: Mapping[str, Any]) -> str:
    return f"data: {json.dumps(data, ensure_ascii=False, separators=(',', ':'))}\n\n"
