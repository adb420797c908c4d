"""From a request to a job: the prompt is rendered, read into tokens, judged and handed to the scheduler."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

from artifacts.errors import Problem, StageError
from runtime.continuation import Continuation
from runtime.linear_cache import LinearCache
from runtime.messages import read_messages
from runtime.model import Model
from runtime.output_parser import END_THINK, OutputParser
from runtime.scheduler import QueueFull, Scheduler
from runtime.serve_options import ServeOptions
from runtime.server.engine import Engine
from runtime.server.errors import ApiError
from runtime.server.job import Job
from runtime.server.metrics import Metrics
from runtime.server.requests import ChatRequest, Common, CompletionRequest
from runtime.server.tool_choice import callable_names, forced_call, told_tools
from runtime.settings import Settings
from runtime.template import ChatTemplate
from runtime.tools import Tools

RETRY_SECONDS = 2


@dataclass(frozen=True)
class Reading:
    """How the answer to a conversation is to be read.

    Attributes:
        prompt: ids of the prompt.
        forced: text that the prompt already says for the model, and that belongs to the answer; where there is some,
            the answer ends with its call.
        in_reasoning: the prompt has opened `<think>`, and left it open.
        after_reasoning: the prompt ends with `</think>`.
        tools: what may be called.
        calls: whether calls are read at all.
        names: tools that may be called; without any, whatever the model calls.
    """

    prompt: Sequence[int]
    forced: str
    in_reasoning: bool
    after_reasoning: bool
    tools: Tools
    calls: bool
    names: Sequence[str] = ()

    def parser(self) -> OutputParser:
        """Give a parser of one answer; what was forced is to be fed first."""
        signatures = self.tools.signatures if self.calls else {}
        return OutputParser(
            in_reasoning=self.in_reasoning,
            after_reasoning=self.after_reasoning,
            json_calls=self.calls,
            python_tools=signatures,
            names=self.names,
        )


class Service:
    """A loaded model with a scheduler and the thread that runs it; used as a context manager.

    Raises:
        StageError: the model's cache cannot be shared by so many texts (see `Model.check_shared`).
    """

    def __init__(self, model: Model, options: ServeOptions) -> None:
        self.model, self.options = model, options
        self.name = model.folder.root.absolute().name
        self.started = int(time.time())
        model.check_shared(options.slots)
        cache = model.cache(rows=options.slots, chunk=options.chunk)
        assert isinstance(cache, LinearCache)
        self.scheduler = Scheduler(cache, max_queue=options.max_queue)
        self.metrics = Metrics(self.scheduler, rows=options.slots, context=model.context)
        self.engine = Engine(self.scheduler)
        # The tokenizer must not be used by two threads at once where it changes its own state.
        self._tokenizing = threading.Lock()

    def __enter__(self) -> Service:
        self.engine.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.engine.stop()

    def close(self) -> None:
        """End every text, and every one that is still to come, with an error; does not wait for the model's turn."""
        remedy = "ask again when it is back"
        self.scheduler.close(StageError(Problem("the server ends", found="a text cut off", remedy=remedy)))

    @cached_property
    def _template(self) -> ChatTemplate:
        return ChatTemplate(self.model.tokenizer)

    async def complete(self, request: CompletionRequest) -> Job:
        """Start to continue a text.

        Raises:
            ApiError: the request cannot be carried out.
        """
        settings = self._judge(request)
        prompt = request.prompt
        ids = (
            await asyncio.to_thread(self._encode, prompt, True) if isinstance(prompt, str) else self._check_ids(prompt)
        )
        return self._start(ids, settings, request.choices, request.logprobs)

    async def chat(self, request: ChatRequest) -> tuple[Job, Reading]:
        """Start to answer a conversation.

        Raises:
            ApiError: the request cannot be carried out.
        """
        settings = self._judge(request)
        reading = await asyncio.to_thread(self._read, request)
        wanted = (request.top_logprobs or 0) if request.logprobs else None
        return self._start(reading.prompt, settings, request.choices, wanted), reading

    def _judge(self, request: Common) -> Settings:
        """Check what is not about the prompt."""
        if request.model != self.name:
            raise ApiError(404, f"there is no model {request.model!r} here, only {self.name!r}", param="model")
        room = self.options.slots + self.options.max_queue
        if request.choices > room:
            message = f"n: {request.choices} texts can never run or wait at once here, at most {room}"
            raise ApiError(400, message, param="n")
        try:
            return request.settings(self.model.defaults.settings)
        except StageError as error:
            raise ApiError.of(error) from None

    def _read(self, request: ChatRequest) -> Reading:
        """Render a conversation."""
        try:
            keywords = dict(request.chat_template_kwargs or {})
            tools = told_tools(request, keywords)
            thinking = keywords.pop("enable_thinking", None)
            if thinking is not None and not isinstance(thinking, bool):
                raise ApiError(400, "enable_thinking is true or false", param="chat_template_kwargs")
            messages = read_messages(request.messages)
            prompt = self._template.render(messages, thinking=thinking, tools=tools, keywords=keywords)
        except StageError as error:
            raise ApiError.of(error) from None
        forced, in_reasoning, text = forced_call(request, tools), prompt.in_reasoning, prompt.text
        if forced and in_reasoning:
            # The model is not asked whether to call, so there is nothing to think about: a call is no thought.
            in_reasoning, text = False, f"{text}\n{END_THINK}\n\n"
        calls = request.tool_choice != "none"
        names = callable_names(request, tools)
        ids = self._encode(text + forced, False)
        return Reading(ids, forced, in_reasoning, prompt.after_reasoning, tools, calls, names)

    def _encode(self, text: str, special: bool) -> list[int]:
        with self._tokenizing:
            return self.model.tokenizer.encode(text, add_special_tokens=special)

    def _check_ids(self, ids: list[int]) -> list[int]:
        size = self.model.config.vocab_size
        if not all(0 <= token < size for token in ids):
            raise ApiError(400, f"prompt: ids must be 0 to {size - 1}", param="prompt")
        return ids

    def _start(self, prompt: Sequence[int], settings: Settings, choices: int, logprobs: int | None) -> Job:
        try:
            texts = [
                Continuation(
                    self.model.tokenizer,
                    prompt,
                    settings,
                    self.model.defaults.stop_ids,
                    context=self.model.context,
                    choice=choice,
                    logprobs=logprobs,
                )
                for choice in range(choices)
            ]
            return Job(self.scheduler, texts, self.metrics)
        except StageError as error:
            raise ApiError.of(error) from None
        except QueueFull:
            waiting, most = self.scheduler.waiting, self.options.max_queue
            message = f"too many texts are waiting: {waiting} of at most {most}; try again in {RETRY_SECONDS} s"
            raise ApiError(429, message, headers={"Retry-After": str(RETRY_SECONDS)}) from None
