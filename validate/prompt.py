"""The prompt that every runner continues: text through the checkpoint's own tokenizer, or seeded ids without one."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from artifacts.config import ModelConfig
from validate.scenarios import SEED

DEFAULT_PROMPT = "What is the capital of France?"
WITHOUT_TOKENIZER = 12
"""Seeded ids that stand for a prompt where there is no tokenizer."""


@dataclass(frozen=True)
class Prompt:
    """What is continued.

    Attributes:
        ids: token ids, with the chat template's around them where the tokenizer has one.
        text: the prompt as it was given; nothing if seeded ids stand for it.
    """

    ids: tuple[int, ...]
    text: str | None


class Reader:
    """Turns text into ids and back; without a tokenizer in the folder it has seeded ids and no text."""

    def __init__(self, folder: Path, config: ModelConfig) -> None:
        self._config = config
        self._folder = folder
        self._tokenizer: Any = None
        if (folder / "tokenizer.json").is_file():
            from transformers import AutoTokenizer

            self._tokenizer = AutoTokenizer.from_pretrained(folder, local_files_only=True)

    @property
    def has_tokenizer(self) -> bool:
        """Whether text can be spelled at all."""
        return self._tokenizer is not None

    @property
    def lacks(self) -> tuple[str, ...]:
        """What a conversation needs and the tokenizer has not."""
        needed = {"a chat template": self._tokenizer.chat_template, "an eos_token": self._tokenizer.eos_token}
        return tuple(name for name, value in needed.items() if not value)

    @property
    def end_of_turn(self) -> int:
        """The id that ends the assistant's turn."""
        return int(self._tokenizer.eos_token_id)

    def spell(self, text: str) -> tuple[int, ...]:
        """Give the ids of a text as it stands."""
        return tuple(self._tokenizer(text, add_special_tokens=False)["input_ids"])

    def turn(
        self, messages: Sequence[Mapping[str, str]], *, thinks: bool, tools: Sequence[Mapping[str, Any]]
    ) -> tuple[int, ...]:
        """Give the ids of a conversation, up to where the assistant's turn begins."""
        more = {"xml_tools": list(tools)} if tools else {}
        rendered = self._tokenizer.apply_chat_template(
            list(messages), add_generation_prompt=True, tokenize=False, enable_thinking=thinks, **more
        )
        return self.spell(rendered)

    def encode(self, text: str) -> Prompt:
        """Give the prompt for a text, as a user's message where there is a chat template."""
        if self._tokenizer is None:
            ids = np.random.default_rng(SEED + 1).integers(self._config.vocab_size, size=WITHOUT_TOKENIZER)
            return Prompt(tuple(int(token) for token in ids), None)
        if not self._tokenizer.chat_template:
            return Prompt(tuple(self._tokenizer(text)["input_ids"]), text)
        message = [{"role": "user", "content": text}]
        rendered = self._tokenizer.apply_chat_template(message, add_generation_prompt=True, tokenize=False)
        return Prompt(self.spell(rendered), text)

    def decode(self, tokens: Sequence[int]) -> str | None:
        """Give the text of a continuation up to the first token that ends it; nothing without a tokenizer."""
        if self._tokenizer is None:
            return None
        ends = self._ends()
        stop = next((step for step, token in enumerate(tokens) if token in ends), len(tokens))
        return str(self._tokenizer.decode(list(tokens[:stop]), skip_special_tokens=True))

    def _ends(self) -> set[int]:
        ends = {self._tokenizer.eos_token_id}
        path = self._folder / "generation_config.json"
        if path.is_file():
            given = json.loads(path.read_text(encoding="utf-8")).get("eos_token_id")
            ends |= set(given if isinstance(given, list) else [given])
        return ends
