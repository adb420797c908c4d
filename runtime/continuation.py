"""One text as it grows: logits in, the next token and its text out, until something says that it is finished.

Everything that belongs to one continuation and not to the model is here, so that one stream at the terminal and many
in the server make the same text.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal

from artifacts.errors import refuse
from runtime.detokenize import Detokenizer
from runtime.output_parser import TAGS
from runtime.sampling import Logits, Sampler, TokenLogprob, logprob, top_logprobs
from runtime.settings import Settings
from runtime.stops import StopStrings
from runtime.tokenizer import Tokenizer, hidden_ids

Finish = Literal["stop", "length"]

CONTEXT_OF_TEXT = 4
"""Tokens of the prompt that the detokenizer sees, so that a space that begins the continuation is kept."""


@dataclass(frozen=True)
class Piece:
    """What one token added.

    Attributes:
        token: its id.
        text: text that became certain with it; may be empty, and may belong to earlier tokens.
        finish: why the text ends here, if it does: `stop` (a stop id or string) or `length`.
        logprob: the token's, where it was asked for.
        top: the most likely tokens at its place, likewise.
    """

    token: int
    text: str
    finish: Finish | None = None
    logprob: TokenLogprob | None = None
    top: Sequence[TokenLogprob] = field(default=())


class Continuation:
    """The text after one prompt.

    Args:
        tokenizer: the checkpoint's tokenizer.
        prompt: ids of the prompt.
        settings: how to choose tokens and when to stop.
        stop_ids: the checkpoint's own stop ids.
        context: most tokens of prompt and text together.
        choice: which of several continuations of one request this is.
        logprobs: most likely tokens to tell at each place; `None` tells no probabilities at all.

    Raises:
        StageError: the prompt is empty, or leaves no room for a token.
    """

    def __init__(
        self,
        tokenizer: Tokenizer,
        prompt: Sequence[int],
        settings: Settings,
        stop_ids: frozenset[int],
        *,
        context: int,
        choice: int = 0,
        logprobs: int | None = None,
    ) -> None:
        check_length(prompt, context)
        self.prompt = prompt
        self._room = min(settings.max_tokens or context, context - len(prompt))
        self._sampler = Sampler(settings.sampling, prompt, choice=choice)
        self._stop_ids = frozenset() if settings.ignore_stop_ids else stop_ids
        self._stops = StopStrings(settings.stop)
        self._detokenizer = Detokenizer(tokenizer, prompt[-CONTEXT_OF_TEXT:], hidden_ids(tokenizer, TAGS))
        self._logprobs = logprobs
        self.count = 0
        """Tokens chosen so far, a stop id among them."""

    def take(self, logits: Logits) -> Piece:
        """Choose the next token.

        Args:
            logits: one row, (V,), after the last token.

        Raises:
            FloatingPointError: the logits are no numbers.
        """
        token = self._sampler.choose(logits)
        self.count += 1
        stopped = token in self._stop_ids
        text = "" if stopped else self._stops.feed(self._detokenizer.feed(token))
        finish: Finish | None = None
        if stopped or self._stops.stopped is not None:
            finish = "stop"
        elif self.count == self._room:
            finish = "length"
        if finish is not None and self._stops.stopped is None:
            text += self._stops.feed(self._detokenizer.finish())
            text += self._stops.finish()
        if self._logprobs is None:
            return Piece(token, text, finish)
        return Piece(token, text, finish, logprob(logits, token), top_logprobs(logits, self._logprobs))


def check_length(prompt: Sequence[int], context: int) -> None:
    """Insist that there is something to continue and room to do so.

    Raises:
        StageError: with both numbers.
    """
    if not prompt:
        raise refuse("the prompt is empty", expected="at least one token", remedy="give some text")
    if len(prompt) >= context:
        raise refuse(
            "the prompt is too long for the context",
            expected=f"at most {context - 1} tokens, so that one more has room in a context of {context}",
            found=f"{len(prompt)} tokens",
            remedy="shorten the prompt, or give a larger --context",
        )
