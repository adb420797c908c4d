"""The checkpoint's own tokenizer, loaded from the model's folder and from nowhere else."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol, cast

from artifacts.errors import refuse


class AddedToken(Protocol):
    """What the runtime asks of a token that was added to a vocabulary."""

    content: str
    special: bool


class Tokenizer(Protocol):
    """What the runtime needs of a Transformers tokenizer."""

    eos_token_id: int | None
    chat_template: object
    added_tokens_decoder: Mapping[int, AddedToken]

    def encode(self, text: str, *, add_special_tokens: bool = ...) -> list[int]:
        """Give the ids of a text."""

    def decode(self, token_ids: Sequence[int], *, skip_special_tokens: bool = ...) -> str:
        """Give the text of ids."""

    def apply_chat_template(self, conversation: list[dict[str, Any]], **keywords: Any) -> str:
        """Render a conversation with the checkpoint's template."""

    def get_chat_template(self) -> str:
        """Give the template's source."""


def load_tokenizer(folder: Path) -> Tokenizer:
    """Load the tokenizer that export put beside the graphs.

    Raises:
        StageError: the model has none, as random weights have none, or its files cannot be read.
    """
    if not (folder / "tokenizer.json").is_file():
        raise refuse(
            "this model has no tokenizer, so there is no text to make",
            expected=f"{folder / 'tokenizer.json'}",
            found="no such file",
            remedy="export a checkpoint that has a tokenizer (make export MODEL=<checkpoint>)",
        )
    from transformers import AutoTokenizer

    try:
        return cast(Tokenizer, AutoTokenizer.from_pretrained(str(folder), local_files_only=True))
    except Exception as error:  # each of several libraries has its own errors for a broken file
        raise refuse(
            f"the tokenizer in {folder} cannot be loaded", found=str(error)[:300], remedy="export the model again"
        ) from error


def hidden_ids(tokenizer: Tokenizer, kept: Iterable[str]) -> frozenset[int]:
    """Give the special ids that are not text, but for those whose spelling is in `kept` (the parser's tags)."""
    shown = set(kept)
    added = tokenizer.added_tokens_decoder.items()
    return frozenset(token for token, what in added if what.special and what.content not in shown)
