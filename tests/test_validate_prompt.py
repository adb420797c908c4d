"""A prompt goes through the checkpoint's own tokenizer and template, and back to text up to the end token."""

import json
from pathlib import Path

import pytest

from tests.numpy_session import CONFIG
from validate.prompt import WITHOUT_TOKENIZER, Reader

WORDS = ["<pad>", "<end>", "<user>", "<assistant>", "hello", "world"]
TEMPLATE = "{% for m in messages %}<user> {{ m['content'] }} <end> {% endfor %}<assistant>"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A tokenizer of six words, with a template."""
    from tokenizers import Tokenizer
    from tokenizers.models import WordLevel
    from tokenizers.pre_tokenizers import WhitespaceSplit

    tokenizer = Tokenizer(WordLevel({word: index for index, word in enumerate(WORDS)}, unk_token="<pad>"))
    tokenizer.pre_tokenizer = WhitespaceSplit()
    tokenizer.save(str(tmp_path / "tokenizer.json"))
    settings = {"tokenizer_class": "PreTrainedTokenizerFast", "eos_token": "<end>", "chat_template": TEMPLATE}
    (tmp_path / "tokenizer_config.json").write_text(json.dumps(settings))
    (tmp_path / "generation_config.json").write_text(json.dumps({"eos_token_id": [1, 3]}))
    return tmp_path


def test_a_prompt_is_a_users_message_where_there_is_a_template(folder: Path) -> None:
    prompt = Reader(folder, CONFIG).encode("hello world")
    assert prompt.ids == (2, 4, 5, 1, 3)
    assert prompt.text == "hello world"


def test_a_prompt_is_plain_where_there_is_none(folder: Path) -> None:
    path = folder / "tokenizer_config.json"
    settings = json.loads(path.read_text())
    path.write_text(json.dumps({name: value for name, value in settings.items() if name != "chat_template"}))
    assert Reader(folder, CONFIG).encode("hello world").ids == (4, 5)


def test_text_ends_before_any_of_the_end_tokens(folder: Path) -> None:
    reader = Reader(folder, CONFIG)
    assert reader.decode([4, 5, 1, 4]) == "hello world"
    assert reader.decode([5, 3, 4]) == "world"


def test_seeded_ids_stand_for_a_prompt_without_a_tokenizer(tmp_path: Path) -> None:
    reader = Reader(tmp_path, CONFIG)
    prompt = reader.encode("hello")
    assert prompt == reader.encode("another")
    assert len(prompt.ids) == WITHOUT_TOKENIZER
    assert prompt.text is None
    assert max(prompt.ids) < CONFIG.vocab_size
    assert reader.decode([1, 2]) is None
