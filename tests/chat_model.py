"""The test tokenizer and chat template, loaded once for all tests."""

from __future__ import annotations

from functools import cache
from pathlib import Path

from runtime.tokenizer import Tokenizer, load_tokenizer

CHAT = Path(__file__).parent / "data" / "chat"


@cache
def chat_tokenizer() -> Tokenizer:
    """Give the tokenizer of tests/data/chat."""
    return load_tokenizer(CHAT)
