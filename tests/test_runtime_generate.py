"""The same text from both forms of the cache, however much of the prompt is already there; the command prints it."""

from __future__ import annotations

import io
import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from artifacts.errors import StageError
from artifacts.layout import ModelFolder
from runtime.__main__ import main
from runtime.generate import Generator
from runtime.model import Model, RunOptions
from runtime.settings import Settings
from tests.small_model import write_small_model

PROMPT = "The weather in Paris is "


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> ModelFolder:
    return write_small_model(tmp_path_factory.mktemp("out") / "small")


@pytest.fixture(scope="module", params=["concatenated", "linear"])
def model(folder: ModelFolder, request: pytest.FixtureRequest) -> Iterator[Model]:
    with Model(folder.root, RunOptions(linear=request.param == "linear", context=96)) as model:
        yield model


def tokens(generator: Generator, model: Model, text: str, count: int = 20) -> list[int]:
    ids = model.tokenizer.encode(text, add_special_tokens=False)
    return [piece.token for piece in generator.stream(ids, Settings(max_tokens=count, ignore_stop_ids=True))]


def test_both_forms_give_the_text_of_the_whole_sequence(folder: ModelFolder, model: Model) -> None:
    """Every token is the one that reading all tokens before it at once would give."""
    found = tokens(model.generator(), model, PROMPT)
    ids = model.tokenizer.encode(PROMPT, add_special_tokens=False)
    for count in range(len(found)):
        cache = model.cache(chunk=128)
        assert int(cache.extend(0, ids + found[:count]).argmax()) == found[count]


def test_what_a_prompt_shares_with_the_last_text_changes_nothing(model: Model) -> None:
    one, other, longer = "Tell me a story.", "Tell me a key.", "Tell me a story. And then?"
    fresh = {text: tokens(model.generator(), model, text) for text in (one, other, longer)}
    generator = model.generator()
    for text in (one, other, one, longer, one, one):
        assert tokens(generator, model, text) == fresh[text]


def test_a_listener_that_goes_away_leaves_the_generator_usable(model: Model) -> None:
    generator = model.generator()
    stream = generator.stream(model.tokenizer.encode(PROMPT, add_special_tokens=False))
    next(stream)
    stream.close()  # type: ignore[attr-defined]  # it is a generator
    assert tokens(generator, model, PROMPT) == tokens(model.generator(), model, PROMPT)


def test_it_stops_exactly_at_the_contexts_end(model: Model) -> None:
    ids = model.tokenizer.encode(PROMPT, add_special_tokens=False)
    pieces = list(model.generator().stream(ids, Settings(ignore_stop_ids=True)))
    assert len(ids) + len(pieces) == 96
    assert pieces[-1].finish == "length"


def test_a_prompt_longer_than_a_chunk(model: Model) -> None:
    text = PROMPT * 4
    small = Generator(model.cache(chunk=7), model.tokenizer, model.defaults)
    assert tokens(small, model, text, 5) == tokens(model.generator(), model, text, 5)


def test_the_command_prints_the_text_and_nothing_else(
    folder: ModelFolder, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    arguments = ["generate", str(folder.root), "--max-tokens", "9"]
    assert main([*arguments, PROMPT]) == 0
    first = capsys.readouterr()
    with Model(folder.root) as model:
        assert first.out == model.generator().text(PROMPT, Settings(max_tokens=9)) + "\n"
    assert "9 out" in first.err
    monkeypatch.setattr("sys.stdin", io.StringIO(PROMPT))
    assert main([*arguments, "--concatenated", "-"]) == 0
    assert capsys.readouterr().out == first.out


def test_bad_settings_are_refused_before_anything_is_loaded(folder: ModelFolder) -> None:
    with pytest.raises(StageError, match="temperature"):
        main(["generate", str(folder.root), "x", "--temperature", "-1"])
    with pytest.raises(StageError, match=r"max_tokens[\s\S]*0"):
        main(["generate", str(folder.root), "x", "--max-tokens", "0"])
    with pytest.raises(StageError, match="the context does not suit"):
        main(["generate", str(folder.root), "x", "--context", "100000"])


def test_a_capacity_that_cannot_be_changed_is_said(folder: ModelFolder) -> None:
    model = Model(folder.root, RunOptions(context=50))
    model.session.on_host = False  # type: ignore[misc]  # as with a GPU's memory
    with pytest.raises(StageError, match=r"--context 192, or none[\s\S]*--capacity 50"), model:
        pass


def test_a_file_that_is_not_the_one_that_was_made_is_refused(tmp_path: Path) -> None:
    folder = write_small_model(tmp_path / "small")
    path = folder.onnx / "generation_config.json"
    path.write_text(json.dumps({"eos_token_id": 504}))
    with pytest.raises(StageError, match=r"generation_config\.json is not the file that was made"):
        Model(folder.root)


def test_a_model_without_a_tokenizer_makes_no_text(tmp_path: Path) -> None:
    folder = write_small_model(tmp_path / "small", tokenizer=False)
    with pytest.raises(StageError, match="has no tokenizer"):
        Model(folder.root)
