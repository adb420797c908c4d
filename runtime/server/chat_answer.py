"""The answers of /v1/chat/completions, whole and streamed: reasoning, content and tool calls, each in its field."""

from __future__ import annotations

import time
import uuid
from collections.abc import AsyncIterator, Iterable, Sequence
from itertools import takewhile
from typing import Any

from runtime.continuation import Piece
from runtime.output_parser import Content, Event, Parsed, Reasoning
from runtime.server.job import Job
from runtime.server.logprobs import chat_logprobs
from runtime.server.requests import ChatRequest
from runtime.server.service import Reading, Service
from runtime.tool_calls import ToolCall


class Choice:
    """One of a request's answers as it grows."""

    def __init__(self, reading: Reading) -> None:
        self._parser = reading.parser()
        self._forced = reading.forced
        self._insisted = bool(reading.forced)
        self.events: list[Event] = []
        self.logprobs: list[dict[str, Any]] = []
        self.finish: str | None = None

    def take(self, piece: Piece) -> list[Event]:
        """Read one piece and give the parts that are now certain; a call that was insisted on is the end."""
        text, self._forced = self._forced + piece.text, ""
        found = self._parser.feed(text)
        if piece.finish is not None:
            found += self._parser.finish()
        if self._insisted and (calls := _up_to_calls(found)):
            found, self.finish = calls, "tool_calls"
        self.events += found
        if piece.finish is not None and self.finish is None:
            called = any(isinstance(event, ToolCall) for event in self.events)
            self.finish = "tool_calls" if called and piece.finish == "stop" else piece.finish
        return found


class ChatAnswer:
    """Writes what comes of a job as chat completions."""

    def __init__(self, service: Service, request: ChatRequest, job: Job, reading: Reading) -> None:
        self._tokenizer, self._request, self._job = service.model.tokenizer, request, job
        self._choices = [Choice(reading) for _ in range(request.choices)]
        self._id, self._created, self._model = f"chatcmpl-{uuid.uuid4().hex}", int(time.time()), service.name

    async def whole(self) -> dict[str, Any]:
        """Give the answer when all of it is there."""
        async for number, piece in self._job.pieces():
            choice = self._choices[number]
            self._take(number, piece)
            told = chat_logprobs(self._tokenizer, piece)
            choice.logprobs += told["content"] if told else []
        choices = [self._whole_choice(number, choice) for number, choice in enumerate(self._choices)]
        return {**self._head("chat.completion"), "choices": choices, "usage": self._job.usage.body()}

    async def chunks(self) -> AsyncIterator[dict[str, Any]]:
        """Give the answer piece by piece: the role, then parts, then why it ended, then the counts if wanted."""
        for number in range(len(self._choices)):
            yield self._chunk(number, {"role": "assistant", "content": ""})
        async for number, piece in self._job.pieces():
            choice = self._choices[number]
            calls = sum(isinstance(event, ToolCall) for event in choice.events)
            told = chat_logprobs(self._tokenizer, piece)
            deltas = list(_deltas(self._take(number, piece), calls))
            if told and not deltas:
                deltas = [{}]
            for delta in deltas:
                yield self._chunk(number, delta, logprobs=told)
                told = None
            if choice.finish is not None:
                yield self._chunk(number, {}, finish=choice.finish)
        if self._request.usage_in_stream:
            yield {**self._head("chat.completion.chunk"), "choices": [], "usage": self._job.usage.body()}

    def _take(self, number: int, piece: Piece) -> list[Event]:
        """Let an answer take a piece; where that is its end, its text need not go on."""
        found = self._choices[number].take(piece)
        if self._choices[number].finish is not None and piece.finish is None:
            self._job.end(number)
        return found

    def _whole_choice(self, number: int, choice: Choice) -> dict[str, Any]:
        parsed = Parsed.of(choice.events)
        message: dict[str, Any] = {"role": "assistant", "content": parsed.content, "refusal": None}
        if parsed.reasoning:
            message["reasoning_content"] = parsed.reasoning
        if parsed.tool_calls:
            message["content"] = parsed.content or None
            message["tool_calls"] = [_call(call) for call in parsed.tool_calls]
        logprobs = {"content": choice.logprobs, "refusal": None} if self._request.logprobs else None
        return {"index": number, "message": message, "finish_reason": choice.finish, "logprobs": logprobs}

    def _head(self, kind: str) -> dict[str, Any]:
        return {"id": self._id, "object": kind, "created": self._created, "model": self._model}

    def _chunk(
        self, number: int, delta: dict[str, Any], *, finish: str | None = None, logprobs: dict[str, Any] | None = None
    ) -> dict[str, Any]:
        choice = {"index": number, "delta": delta, "finish_reason": finish, "logprobs": logprobs}
        return {**self._head("chat.completion.chunk"), "choices": [choice]}


def _up_to_calls(events: Sequence[Event]) -> list[Event]:
    """Give what comes up to the first calls and these, which one tag may hold several of; nothing without a call."""
    places = [place for place, event in enumerate(events) if isinstance(event, ToolCall)]
    following = takewhile(lambda event: isinstance(event, ToolCall), events[places[0] :] if places else [])
    return [*events[: places[0]], *following] if places else []


def _deltas(events: Iterable[Event], calls: int) -> Iterable[dict[str, Any]]:
    """Give what each event adds to a message; a call comes whole, numbered after those before it."""
    for event in events:
        if isinstance(event, Content):
            yield {"content": event.text}
        elif isinstance(event, Reasoning):
            yield {"reasoning_content": event.text}
        else:
            yield {"tool_calls": [{"index": calls, **_call(event)}]}
            calls += 1


def _call(call: ToolCall) -> dict[str, Any]:
    function = {"name": call.name, "arguments": call.arguments}
    return {"id": f"call_{uuid.uuid4().hex[:24]}", "type": "function", "function": function}
