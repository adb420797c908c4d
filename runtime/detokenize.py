"""Tokens become text one at a time, and no character is shown before all of its bytes are there.

The pieces of text that come out, joined, are the tokenizer's own decoding of all tokens at once.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from runtime.tokenizer import Tokenizer

UNFINISHED = "\ufffd"
"""What a tokenizer writes for bytes that are no character (yet)."""

MOST_UNFINISHED = 3
"""A character has at most 4 bytes, so at most 3 of them can be waiting for the last."""


class Detokenizer:
    """Turns a growing row of tokens into text, piece by piece.

    Args:
        tokenizer: the checkpoint's tokenizer.
        context: the last tokens before the first one; they are not shown, but keep the space that may begin the text.
        hidden: ids that have no text, such as `<|im_end|>` (see `runtime.tokenizer.hidden_ids`).
    """

    def __init__(self, tokenizer: Tokenizer, context: Sequence[int] = (), hidden: Iterable[int] = ()) -> None:
        self._tokenizer = tokenizer
        self._hidden = frozenset(hidden)
        self._window = [token for token in context if token not in self._hidden]
        self._shown = len(self._decode())

    def feed(self, token: int) -> str:
        """Take one token and give the text that is now certain; may be empty."""
        if token in self._hidden:
            return ""
        self._window.append(token)
        text = self._decode()
        run = len(text) - len(text.rstrip(UNFINISHED))
        certain = len(text) - min(run, MOST_UNFINISHED)
        piece = text[self._shown : certain]
        self._shown = max(self._shown, certain)
        if not run:
            self._window = self._window[-1:]
            self._shown = len(self._decode())
        return piece

    def finish(self) -> str:
        """Give what was held back: bytes that never became a character, as U+FFFD."""
        piece = self._decode()[self._shown :]
        self._shown += len(piece)
        return piece

    def _decode(self) -> str:
        return self._tokenizer.decode(self._window, skip_special_tokens=False)
