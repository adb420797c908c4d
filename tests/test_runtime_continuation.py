"""A text ends exactly where it must, and says why."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from artifacts.errors import StageError
from runtime.continuation import Continuation, Piece
from runtime.settings import Sampling, Settings
from tests.chat_model import chat_tokenizer

END = 503


def run(text: str, *, context: int = 1000, prompt: list[int] | None = None, **options: Any) -> tuple[str, list[Piece]]:
    """Let the model "want" the tokens of a text, then the stop id for ever."""
    ids = chat_tokenizer().encode(text, add_special_tokens=False)
    logprobs = options.pop("logprobs", None)
    continuation = Continuation(
        chat_tokenizer(), prompt or [1, 2], Settings(**options), frozenset({END}), context=context, logprobs=logprobs
    )
    pieces: list[Piece] = []
    while not pieces or pieces[-1].finish is None:
        logits = np.zeros(512, dtype=np.float32)
        logits[ids[len(pieces)] if len(pieces) < len(ids) else END] = 9
        pieces.append(continuation.take(logits))
    return "".join(piece.text for piece in pieces), pieces


def test_a_stop_id_ends_the_text_and_is_no_text() -> None:
    text, pieces = run("Paris is it.")
    assert (text, pieces[-1].finish, pieces[-1].token) == ("Paris is it.", "stop", END)


def test_stop_ids_can_be_ignored() -> None:
    text, pieces = run("a", ignore_stop_ids=True, max_tokens=5)
    assert (text, len(pieces), pieces[-1].finish) == ("a", 5, "length")


def test_a_stop_string_is_no_part_of_the_text() -> None:
    text, pieces = run("Paris is it. And so on.", stop=(". An",))
    assert (text, pieces[-1].finish) == ("Paris is it", "stop")


def test_what_was_held_back_comes_at_the_end() -> None:
    assert run("Paris is", stop=("is it",))[0] == "Paris is"
    assert run("😀", max_tokens=3)[0] == "\ufffd"


def test_max_tokens_is_exact() -> None:
    assert [len(run("Paris is it.", max_tokens=count)[1]) for count in (1, 2, 3)] == [1, 2, 3]


@pytest.mark.parametrize("length", [1, 7, 9])
def test_the_context_is_filled_to_its_last_slot(length: int) -> None:
    _, pieces = run("Paris is the capital of France, is it not?", context=10, prompt=[1] * length)
    assert (length + len(pieces), pieces[-1].finish) == (10, "length")


@pytest.mark.parametrize("length", [10, 11, 5000])
def test_a_prompt_without_room_is_refused_with_both_numbers(length: int) -> None:
    with pytest.raises(StageError, match=rf"at most 9 tokens[\s\S]*{length} tokens"):
        run("x", context=10, prompt=[1] * length)


def test_an_empty_prompt_is_refused() -> None:
    with pytest.raises(StageError, match="empty"):
        Continuation(chat_tokenizer(), [], Settings(), frozenset(), context=10)


def test_probabilities_are_told_only_where_asked_for() -> None:
    assert run("a")[1][0].logprob is None
    first = run("a", logprobs=2)[1][0]
    assert first.logprob is not None
    assert first.top[0] == first.logprob
    assert len(first.top) == 2
    assert run("a", logprobs=0)[1][0].top == []


def test_a_seed_repeats_the_text() -> None:
    def drawn(choice: int) -> list[int]:
        settings = Settings(Sampling(temperature=1.0, seed=5), max_tokens=8, ignore_stop_ids=True)
        one = Continuation(chat_tokenizer(), [1], settings, frozenset(), context=100, choice=choice)
        return [one.take(np.zeros(512, dtype=np.float32)).token for _ in range(8)]

    assert drawn(0) == drawn(0) != drawn(1)
