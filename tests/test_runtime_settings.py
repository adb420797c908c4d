"""What generation_config.json says is what is done, and values out of range are refused all at once."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from artifacts.errors import StageError
from runtime.settings import Defaults, Sampling, Settings


def written(folder: Path, config: object, generation: object | None = None) -> Path:
    (folder / "config.json").write_text(json.dumps(config))
    if generation is not None:
        (folder / "generation_config.json").write_text(json.dumps(generation))
    return folder


def test_stop_ids_are_the_union_of_all_that_name_one(tmp_path: Path) -> None:
    folder = written(tmp_path, {"eos_token_id": 2}, {"eos_token_id": [2, 7]})
    assert Defaults.read(folder, tokenizer_stop_id=9).stop_ids == {2, 7, 9}


def test_sampling_comes_from_the_checkpoint(tmp_path: Path) -> None:
    folder = written(tmp_path, {}, {"do_sample": True, "temperature": 0.6, "top_p": 0.95})
    assert Defaults.read(folder).settings.sampling == Sampling(temperature=0.6, top_p=0.95)


def test_without_do_sample_it_is_greedy(tmp_path: Path) -> None:
    assert Defaults.read(written(tmp_path, {}, {"temperature": 0.6})).settings.sampling.greedy
    assert Defaults.read(written(tmp_path, {})).settings.sampling.greedy


def test_do_sample_without_a_temperature_is_not_greedy(tmp_path: Path) -> None:
    assert Defaults.read(written(tmp_path, {}, {"do_sample": True})).settings.sampling.temperature == 1.0


def test_a_generation_config_that_is_no_json_is_named(tmp_path: Path) -> None:
    written(tmp_path, {})
    (tmp_path / "generation_config.json").write_text("{")
    with pytest.raises(StageError, match=r"generation_config\.json is not JSON"):
        Defaults.read(tmp_path)


def test_every_value_out_of_range_is_named_at_once() -> None:
    with pytest.raises(StageError) as error:
        Sampling(temperature=float("nan"), top_k=-1, top_p=0.0, min_p=2.0, repetition_penalty=0.0)
    assert len(error.value.problems) == 5


@pytest.mark.parametrize(
    ("name", "good", "bad"),
    [
        ("temperature", [0, 1e-308, 100], [-1e-9, 100.1, 1e308]),
        ("repetition_penalty", [0.01, 1, 100], [0, 1e-300, 1e-39, 0.0099, 101, 1e308]),
    ],
)
def test_values_that_logits_cannot_stand_are_out_of_range(name: str, good: list[float], bad: list[float]) -> None:
    for value in good:
        assert getattr(Sampling(**{name: value}), name) == value  # type: ignore[arg-type]  # one field of several
    for value in bad:
        with pytest.raises(StageError, match=rf"{name} is out of range\s+expected: .*<= 100\s"):
            Sampling(**{name: value})  # type: ignore[arg-type]  # likewise


@pytest.mark.parametrize("value", [0, -3, True, 1.5])
def test_max_tokens_is_a_positive_integer(value: int) -> None:
    with pytest.raises(StageError, match="max_tokens"):
        Settings(max_tokens=value)


def test_an_empty_stop_string_is_refused() -> None:
    with pytest.raises(StageError, match="stop string"):
        Settings(stop=("",))


def test_none_leaves_a_default_as_it_is() -> None:
    settings = Settings(Sampling(temperature=0.6)).with_sampling(temperature=None, seed=3)
    assert settings.sampling == Sampling(temperature=0.6, seed=3)
