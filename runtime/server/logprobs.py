"""Probabilities of tokens in the two forms of the API."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from runtime.continuation import Piece
from runtime.sampling import TokenLogprob
from runtime.tokenizer import Tokenizer


def chat_logprobs(tokenizer: Tokenizer, piece: Piece) -> dict[str, Any] | None:
    """Give what a chat's chunk tells of its token; every token is told, thoughts and tags too."""
    if piece.logprob is None:
        return None
    top = [_entry(tokenizer, entry) for entry in piece.top]
    return {"content": [{**_entry(tokenizer, piece.logprob), "top_logprobs": top}], "refusal": None}


def completion_logprobs(tokenizer: Tokenizer, pieces: Sequence[Piece], offset: int) -> dict[str, Any] | None:
    """Give what a completion tells of its tokens.

    Args:
        tokenizer: spells the tokens.
        pieces: tokens in order.
        offset: characters of text before the first of them.
    """
    if not pieces or pieces[0].logprob is None:
        return None
    offsets = []
    for piece in pieces:
        offsets.append(offset)
        offset += len(piece.text)
    return {
        "tokens": [_spelled(tokenizer, piece.token) for piece in pieces],
        "token_logprobs": [piece.logprob.logprob for piece in pieces if piece.logprob],
        "top_logprobs": [{_spelled(tokenizer, e.token): e.logprob for e in piece.top} for piece in pieces],
        "text_offset": offsets,
    }


def _entry(tokenizer: Tokenizer, entry: TokenLogprob) -> dict[str, Any]:
    text = _spelled(tokenizer, entry.token)
    # A token may be a part of a character, whose bytes a spelling cannot show.
    return {"token": text, "logprob": entry.logprob, "bytes": None if "\ufffd" in text else list(text.encode())}


def _spelled(tokenizer: Tokenizer, token: int) -> str:
    return tokenizer.decode([token], skip_special_tokens=False)
