"""Make the test tokenizer beside this file: byte-level BPE, 512 ids, with the tokens that SmolLM3's chat uses.

Run it from the repository root: `python tests/data/chat/make_tokenizer.py`. It reads nothing but itself and the
template, so it makes the same bytes again.
"""

from __future__ import annotations

import json
from pathlib import Path

from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers, trainers

FOLDER = Path(__file__).parent
SPECIAL = ("<|begin_of_text|>", "<|end_of_text|>", "<|finetune_right_pad_id|>", "<|im_start|>", "<|im_end|>")
TAGS = (
    ("<think>", "</think>"),
    ("<tool_response>", "</tool_response>"),
    ("<tool_call>", "</tool_call>"),
    ("<code>", "</code>"),
)
VOCABULARY = 512
# A vocabulary that splits words and characters is what the tests need, so a few sentences are enough to train it.
SENTENCES = """
The engine reads a plan and writes tokens. The weather in Paris is sunny and warm, is it not?
What is the capital of France? The capital of France is Paris. Tell me a story about a small model.
get_weather(city="Paris") {"name": "get_weather", "arguments": {"city": "Paris"}} 0123456789
A key was named early and is asked for later; the cache holds every position that came before.
"""


def main() -> None:
    """Train the tokenizer and write its two files."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    added = len(SPECIAL) + 2 * len(TAGS)
    trainer = trainers.BpeTrainer(
        vocab_size=VOCABULARY - added, initial_alphabet=pre_tokenizers.ByteLevel.alphabet(), show_progress=False
    )
    tokenizer.train_from_iterator([SENTENCES, (FOLDER / "chat_template.jinja").read_text(encoding="utf-8")], trainer)
    tokenizer.add_special_tokens([AddedToken(text, special=True) for text in SPECIAL])
    tokenizer.add_tokens([AddedToken(tag, special=False, normalized=False) for pair in TAGS for tag in pair])
    tokenizer.save(str(FOLDER / "tokenizer.json"))
    settings = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "bos_token": None,
        "eos_token": "<|im_end|>",
        "pad_token": "<|finetune_right_pad_id|>",
        "clean_up_tokenization_spaces": False,
        "model_max_length": 131072,
    }
    (FOLDER / "tokenizer_config.json").write_text(json.dumps(settings, indent=2) + "\n", encoding="utf-8")
    print(f"{tokenizer.get_vocab_size()} ids")


if __name__ == "__main__":
    main()
