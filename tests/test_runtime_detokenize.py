"""Pieces of text, joined, are the tokenizer's decoding of all tokens, and none shows half a character."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from runtime.detokenize import UNFINISHED, Detokenizer
from runtime.output_parser import TAGS
from runtime.tokenizer import hidden_ids
from tests.chat_model import chat_tokenizer


def pieces(ids: list[int], context: list[int] | None = None) -> list[str]:
    tokenizer = chat_tokenizer()
    detokenizer = Detokenizer(tokenizer, context or [], hidden_ids(tokenizer, TAGS))
    return [*(detokenizer.feed(token) for token in ids), detokenizer.finish()]


@settings(deadline=None)
@given(st.text())
def test_any_text_comes_back_whole_and_never_half(text: str) -> None:
    ids = chat_tokenizer().encode(text, add_special_tokens=False)
    found = pieces(ids)
    assert "".join(found) == text
    assert UNFINISHED in text or not any(UNFINISHED in piece for piece in found)


@settings(deadline=None)
@given(st.lists(st.integers(0, 498), max_size=30))
def test_any_tokens_give_what_the_tokenizer_gives(ids: list[int]) -> None:
    assert "".join(pieces(ids)) == chat_tokenizer().decode(ids, skip_special_tokens=False)


def test_a_character_of_four_tokens_waits_for_the_last() -> None:
    ids = chat_tokenizer().encode("😀", add_special_tokens=False)
    assert len(ids) == 4
    assert pieces(ids) == ["", "", "", "😀", ""]


def test_a_character_cut_off_by_the_end_is_shown_as_one_mark() -> None:
    ids = chat_tokenizer().encode("a😀", add_special_tokens=False)
    assert "".join(pieces(ids[:-1])) == f"a{UNFINISHED}"


def test_bytes_that_are_no_character_do_not_hold_the_text_forever() -> None:
    byte = chat_tokenizer().encode("😀", add_special_tokens=False)[0]
    shown = "".join(pieces([byte] * 10)[:10])
    assert len(shown) >= 7


@pytest.mark.parametrize("context", [[], [5, 6]])
def test_the_space_that_begins_a_continuation_is_kept(context: list[int]) -> None:
    ids = chat_tokenizer().encode(" Paris is", add_special_tokens=False)
    assert "".join(pieces(ids, context)) == " Paris is"


def test_special_tokens_are_no_text_but_the_tags_are() -> None:
    ids = chat_tokenizer().encode("<think>x</think><|im_end|>", add_special_tokens=False)
    assert "".join(pieces(ids)) == "<think>x</think>"
