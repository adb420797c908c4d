"""The tiny model's tokenizer: byte-level BPE of 768 ids, digits and runs of capitals letter by letter, names whole.

SmolLM3's special tokens stand at the end. Any text can be spelled, since every byte is an id.
"""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from functools import partial
from pathlib import Path

from artifacts.checkpoints import tasks, world

VOCABULARY = 768
BEGIN, END, PAD = "<|begin_of_text|>", "<|end_of_text|>", "<|finetune_right_pad_id|>"
TURN, TURN_END = "<|im_start|>", "<|im_end|>"
SPECIAL = (BEGIN, END, PAD, TURN, TURN_END)
TAGS = (
    *("<think>", "</think>"),
    *("<tool_response>", "</tool_response>"),
    *("<tool_call>", "</tool_call>"),
    *("<code>", "</code>"),
)
_CAPITALS = r"[A-Z](?=[A-Z])|(?<=[A-Z])[A-Z]"
_SPACE_BEFORE_A_NAME = r" (?=[A-Z])"
"""A name is the same token after a space and after a quotation mark: a call has only to copy it."""
SETTINGS = {
    "tokenizer_class": "PreTrainedTokenizerFast",
    "bos_token": None,
    "eos_token": TURN_END,
    "pad_token": PAD,
    "clean_up_tokenization_spaces": False,
    "model_max_length": 4096,
}


def write_tokenizer(folder: Path, template: str) -> None:
    """Train the tokenizer on sentences of the world and on the chat template, and write it to `folder`.

    Args:
        folder: where `tokenizer.json` goes.
        template: the text of the chat template, whose words every prompt has.
    """
    from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, pre_tokenizers, trainers

    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Digits(individual_digits=True),
            pre_tokenizers.Split(Regex(_CAPITALS), "isolated"),
            pre_tokenizers.Split(Regex(_SPACE_BEFORE_A_NAME), "isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False),
        ]
    )
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=VOCABULARY - len(SPECIAL) - len(TAGS),
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator([*_texts(), template], trainer)
    tokenizer.add_special_tokens([AddedToken(text, special=True) for text in SPECIAL])
    tokenizer.add_tokens([AddedToken(tag, special=False, normalized=False) for tag in TAGS])
    tokenizer.save(str(folder / "tokenizer.json"))


def _texts() -> list[str]:
    """Texts in which each word of the world comes often enough to become a token."""
    rng = random.Random(0)
    makers: list[Callable[[random.Random], tasks.Task]] = [partial(tasks.tool_call, tool=tool) for tool in tasks.TOOLS]
    makers += [tasks.arithmetic, tasks.capital, tasks.sentence, tasks.copy, tasks.reverse]
    found = [" ".join(world.sentence(rng) for _ in range(10)) for _ in range(200)]
    for person in world.PEOPLE * 20:
        facts = tasks.has_thing(rng, person), tasks.has_code(rng, person)
        found += [" ".join((fact.statement, fact.task.question, fact.task.reasoning)) for fact in facts]
    for task in (tasks.drawn(make, rng, exam=False) for make in makers for _ in range(300)):
        found += [task.question, task.answer, task.reasoning, *map(json.dumps, task.tools), *(task.result or ())]
    return found
