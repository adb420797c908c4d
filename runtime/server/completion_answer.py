"""The answers of /v1/completions, whole and streamed."""

from __future__ import annotations

import time
import uuid
from collections.abc import AsyncIterator
from typing import Any

from runtime.continuation import Piece
from runtime.server.job import Job
from runtime.server.logprobs import completion_logprobs
from runtime.server.requests import CompletionRequest
from runtime.server.service import Service


class CompletionAnswer:
    """Writes what comes of a job as text completions."""

    def __init__(self, service: Service, request: CompletionRequest, job: Job) -> None:
        self._tokenizer, self._request, self._job = service.model.tokenizer, request, job
        self._head = {
            "id": f"cmpl-{uuid.uuid4().hex}",
            "object": "text_completion",
            "created": int(time.time()),
            "model": service.name,
        }

    async def whole(self) -> dict[str, Any]:
        """Give the answer when all of it is there."""
        pieces: dict[int, list[Piece]] = {choice: [] for choice in range(self._request.choices)}
        async for choice, piece in self._job.pieces():
            pieces[choice].append(piece)
        choices = [self._choice(choice, found, 0) for choice, found in pieces.items()]
        return {**self._head, "choices": choices, "usage": self._job.usage.body()}

    async def chunks(self) -> AsyncIterator[dict[str, Any]]:
        """Give the answer piece by piece."""
        offsets = [0] * self._request.choices
        async for choice, piece in self._job.pieces():
            if piece.text or piece.finish or piece.logprob:
                yield {**self._head, "choices": [self._choice(choice, [piece], offsets[choice])]}
            offsets[choice] += len(piece.text)
        if self._request.usage_in_stream:
            yield {**self._head, "choices": [], "usage": self._job.usage.body()}

    def _choice(self, choice: int, pieces: list[Piece], offset: int) -> dict[str, Any]:
        return {
            "index": choice,
            "text": "".join(piece.text for piece in pieces),
            "finish_reason": pieces[-1].finish if pieces else None,
            "logprobs": completion_logprobs(self._tokenizer, pieces, offset),
        }
