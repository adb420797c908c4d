"""What a client may ask for; everything else is refused by name, so that no wish is dropped in silence."""

from __future__ import annotations

import json
from typing import Any, Literal, TypeVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError, ValidationInfo, field_validator

from runtime.server.errors import ApiError
from runtime.settings import Settings

MOST_STOPS, LONGEST_STOP = 16, 256
MOST_CHOICES = 16
MOST_LOGPROBS = 20

Body = TypeVar("Body", bound="Common")


class StreamOptions(BaseModel):
    """What a stream tells besides text."""

    model_config = ConfigDict(extra="forbid", strict=True)
    include_usage: bool = False
    include_obfuscation: Literal[False] | None = None


class Common(BaseModel):
    """Fields of both kinds of completion.

    The fields without effect are taken at the one value that says "nothing special".
    """

    model_config = ConfigDict(extra="forbid", strict=True)
    model: str
    stream: bool | None = False
    stream_options: StreamOptions | None = None
    max_tokens: int | None = Field(None, ge=1)
    n: int | None = Field(1, ge=1, le=MOST_CHOICES)
    stop: str | list[str] | None = None
    temperature: float | None = None
    top_p: float | None = None
    top_k: int | None = None
    min_p: float | None = None
    repetition_penalty: float | None = None
    seed: int | None = None
    user: str | None = None
    frequency_penalty: Literal[0] | None = None
    presence_penalty: Literal[0] | None = None
    logit_bias: dict[str, float] | None = Field(None, max_length=0)

    @property
    def choices(self) -> int:
        """How many answers are wanted."""
        return self.n or 1

    @property
    def most_tokens(self) -> int | None:
        """Most new tokens."""
        return self.max_tokens

    @property
    def usage_in_stream(self) -> bool:
        """Whether the stream ends with the counts of tokens."""
        return self.stream_options is not None and self.stream_options.include_usage

    def settings(self, defaults: Settings) -> Settings:
        """Give the checkpoint's settings with what the request changes.

        Raises:
            ApiError: too many stop strings, or too long ones.
            StageError: a value is out of range.
        """
        stops = [self.stop] if isinstance(self.stop, str) else self.stop or []
        if len(stops) > MOST_STOPS or any(len(text) > LONGEST_STOP for text in stops):
            limits = f"at most {MOST_STOPS} strings of at most {LONGEST_STOP} characters"
            raise ApiError(400, f"stop: {limits}, not {len(stops)}", param="stop")
        names = ("temperature", "top_p", "top_k", "min_p", "repetition_penalty", "seed")
        base = defaults.with_sampling(**{name: getattr(self, name) for name in names})
        return Settings(base.sampling, self.most_tokens or base.max_tokens, tuple(stops))


class CompletionRequest(Common):
    """A text to be continued."""

    prompt: str | list[int]
    logprobs: int | None = Field(None, ge=0, le=MOST_LOGPROBS)
    echo: Literal[False] | None = None
    suffix: None = None
    best_of: Literal[1] | None = None


class NamedFunction(BaseModel):
    """The name of a tool."""

    model_config = ConfigDict(extra="forbid", strict=True)
    name: str


class NamedTool(BaseModel):
    """A choice of one tool."""

    model_config = ConfigDict(extra="forbid", strict=True)
    type: Literal["function"]
    function: NamedFunction


class ResponseFormat(BaseModel):
    """Only plain text can be promised."""

    model_config = ConfigDict(extra="forbid", strict=True)
    type: Literal["text"]


class ChatRequest(Common):
    """A conversation to be answered."""

    messages: list[Any]
    max_completion_tokens: int | None = Field(None, ge=1)
    tools: list[Any] | None = None
    tool_choice: Literal["none", "auto", "required"] | NamedTool | None = None
    parallel_tool_calls: Literal[True] | None = None
    logprobs: bool | None = None
    top_logprobs: int | None = Field(None, ge=0, le=MOST_LOGPROBS)
    chat_template_kwargs: dict[str, Any] | None = None
    response_format: ResponseFormat | None = None
    metadata: dict[str, str] | None = None
    store: Literal[False] | None = None

    @field_validator("top_logprobs")
    @classmethod
    def _wants_logprobs(cls, count: int | None, before: ValidationInfo) -> int | None:
        """Refuse a number of what is not asked for."""
        if count and not before.data.get("logprobs"):
            raise ValueError("needs logprobs to be true")
        return count

    @property
    def most_tokens(self) -> int | None:
        """Most new tokens, by either of its names."""
        return self.max_completion_tokens or self.max_tokens


def read_body(kind: type[Body], data: bytes) -> Body:
    """Read the body of a request.

    Raises:
        ApiError: 400, with every field that is wrong.
    """
    try:
        raw = json.loads(data)
        # JSON can spell half a character; neither a tokenizer nor an answer could carry it.
        json.dumps(raw, ensure_ascii=False).encode()
        return kind.model_validate(raw)
    except ValidationError as error:
        faults = [(".".join(map(str, fault["loc"])) or "body", fault["msg"]) for fault in error.errors()]
        message = "; ".join(f"{where}: {what}" for where, what in faults[:20])
        raise ApiError(400, message, param=faults[0][0]) from None
    except RecursionError:
        raise ApiError(400, "the body is nested too deeply") from None
    except UnicodeError as error:
        raise ApiError(400, f"the body is no valid Unicode: {str(error)[:200]}") from None
    except ValueError as error:
        raise ApiError(400, f"the body is no JSON: {str(error)[:200]}") from None
