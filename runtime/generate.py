"""One text at a time, over either form of the cache: the prompt in chunks, then token by token.

What the next prompt shares with the last text is not read again where the cache can keep it, so a chat's turn costs its
own length and not the whole conversation's.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from runtime.cache import Cache
from runtime.continuation import Continuation, Piece
from runtime.sampling import Logits
from runtime.settings import Defaults, Settings
from runtime.tokenizer import Tokenizer

CHUNK = 512
"""New tokens that are read at once; the default of the plan's prefill profile."""


class Generator:
    """Continues prompts with one cache of one row.

    Args:
        cache: an empty cache (see `runtime.cache.open_cache`).
        tokenizer: the checkpoint's tokenizer.
        defaults: the checkpoint's own settings and stop ids.

    Attributes:
        kept: tokens of the last prompt that the cache held already.
    """

    def __init__(self, cache: Cache, tokenizer: Tokenizer, defaults: Defaults) -> None:
        self._cache = cache
        self._tokenizer = tokenizer
        self._defaults = defaults
        self._held: list[int] = []
        self.kept = 0

    def stream(
        self, prompt: Sequence[int], settings: Settings | None = None, *, logprobs: int | None = None
    ) -> Iterator[Piece]:
        """Continue a prompt; each piece comes as soon as its token is chosen.

        Args:
            prompt: ids of the prompt.
            settings: how to choose and when to stop; the checkpoint's own if not given.
            logprobs: most likely tokens to tell at each place.

        Raises:
            StageError: the prompt is empty or too long, or a run failed.
        """
        continuation = Continuation(
            self._tokenizer,
            prompt,
            settings or self._defaults.settings,
            self._defaults.stop_ids,
            context=self._cache.context,
            logprobs=logprobs,
        )
        logits = self._read(prompt)
        while True:
            piece = continuation.take(logits)
            yield piece
            if piece.finish is not None:
                return
            logits = self._cache.extend(0, [piece.token])
            self._held.append(piece.token)

    def text(self, prompt: str, settings: Settings | None = None) -> str:
        """Give the whole continuation of a text."""
        ids = self._tokenizer.encode(prompt, add_special_tokens=True)
        return "".join(piece.text for piece in self.stream(ids, settings))

    def _read(self, prompt: Sequence[int]) -> Logits:
        """Read a prompt, but for what the cache already holds of it; at least its last token is read."""
        shared = 0
        while shared < min(len(self._held), len(prompt) - 1) and self._held[shared] == prompt[shared]:
            shared += 1
        start = self.kept = self._cache.keep(0, shared)
        self._held = list(prompt[:start])
        for begin in range(start, len(prompt), self._cache.chunk):
            chunk = prompt[begin : begin + self._cache.chunk]
            logits = self._cache.extend(0, chunk)
            self._held += chunk
        return logits
