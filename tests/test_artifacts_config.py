"""The config is judged as it is written: every fault is found, all at once, and nothing in it can crash the judge."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from artifacts.config import ModelConfig
from artifacts.config_judgement import judge, nope_source
from artifacts.errors import StageError
from artifacts.random_model import PRESETS, preset_config

YARN = {"rope_type": "yarn", "factor": 2.0, "original_max_position_embeddings": 4096, "rope_theta": 5e6}


def changed(**changes: Any) -> dict[str, Any]:
    """A good config with some keys changed; a value of `...` removes the key."""
    raw = {**preset_config("tiny"), **changes}
    return {key: value for key, value in raw.items() if value is not ...}


@pytest.mark.parametrize("preset", PRESETS)
def test_presets_are_carried(preset: str) -> None:
    assert list(judge(preset_config(preset))) == []


def test_the_3b_preset_has_the_released_models_facts() -> None:
    config = ModelConfig.from_raw(preset_config("smollm3-3b"))
    assert config.nope_layers == (3, 7, 11, 15, 19, 23, 27, 31, 35)
    assert config.num_parameters == 3_075_098_624
    assert (config.group_size, config.max_positions) == (4, 65_536)


@pytest.mark.parametrize(
    ("changes", "what"),
    [
        ({"model_type": "llama"}, "model_type"),
        ({"model_type": ...}, "model_type"),
        ({"use_sliding_window": True}, "sliding-window"),
        ({"layer_types": ["full_attention"] * 7 + ["sliding_attention"]}, "layer_types"),
        ({"layer_types": ["full_attention"] * 7}, "layer_types"),
        ({"layer_types": 3}, "layer_types"),
        ({"hidden_act": "gelu"}, "hidden_act"),
        ({"attention_bias": True}, "attention_bias"),
        ({"mlp_bias": True}, "mlp_bias"),
        ({"quantization_config": {"bits": 4}}, "quantized"),
        ({"no_rope_layers": [1] * 7}, "too short"),
        ({"no_rope_layers": []}, "too short"),
        ({"no_rope_layers": [1] * 9}, "too long"),
        ({"no_rope_layers": [1, 2, 0, 1, 1, 1, 1, 1]}, "no list of 0 and 1"),
        ({"no_rope_layers": [True] * 8}, "no list of 0 and 1"),
        ({"no_rope_layers": "11111111"}, "no list of 0 and 1"),
        ({"no_rope_layers": ..., "no_rope_layer_interval": 0}, "no_rope_layer_interval"),
        ({"rope_theta": ...}, "rope_theta is missing"),
        ({"rope_theta": None}, "rope_theta is missing"),
        ({"rope_theta": "5e6"}, "rope_theta is no positive number"),
        ({"rope_theta": float("nan")}, "rope_theta is no positive number"),
        ({"rope_theta": -1}, "rope_theta is no positive number"),
        ({"rope_scaling": {"rope_type": "llama3", "factor": 8.0}}, "rope_type is not carried"),
        ({"rope_scaling": {"rope_type": ["yarn"]}}, "rope_type is not carried"),
        ({"rope_scaling": "yarn"}, "no JSON object"),
        ({"rope_scaling": {"factor": 2.0}}, "not known to rope_type default"),
        ({"rope_parameters": {**YARN, "factor": ...}}, "YaRN needs factor"),
        ({"rope_parameters": {**YARN, "factor": 0.5}}, "YaRN needs factor"),
        ({"rope_parameters": {**YARN, "beta_fast": "32"}}, "beta_fast"),
        ({"rope_parameters": {**YARN, "betafast": 32}}, "not known to rope_type yarn"),
        ({"rope_parameters": {**YARN, "rope_theta": 1.0}}, "YaRN needs rope_theta"),
        ({"rope_parameters": {"rope_theta": 1e4}, "rope_theta": 5e6}, "rope_theta has two values"),
        ({"partial_rotary_factor": 0.5}, "partial rotation"),
        ({"head_dim": 33}, "head_dim"),
        ({"head_dim": None}, "head_dim"),
        ({"num_key_value_heads": 3}, "do not divide"),
        ({"hidden_size": 0}, "hidden_size"),
        ({"hidden_size": "128"}, "hidden_size"),
        ({"num_hidden_layers": 10**5000}, "num_hidden_layers"),
        ({"vocab_size": 1 << 25}, "vocab_size"),
        ({"rope_theta": 10**400}, "rope_theta"),
        ({"rope_parameters": {**YARN, "factor": 1e300}}, "factor is no size"),
        ({"rms_norm_eps": None}, "rms_norm_eps"),
        ({"tie_word_embeddings": "yes"}, "tie_word_embeddings"),
        ({"pad_token_id": 512}, "pad_token_id"),
        ({"pad_token_id": ...}, "pad_token_id"),
    ],
)
def test_each_fault_is_named(changes: dict[str, Any], what: str) -> None:
    rope = changes.get("rope_parameters")
    if isinstance(rope, dict):
        changes = {**changes, "rope_parameters": {k: v for k, v in rope.items() if v is not ...}}
    problems = list(judge(changed(**changes)))
    assert any(what in problem.what for problem in problems), problems
    assert all(problem.expected and problem.found and problem.remedy for problem in problems)


@pytest.mark.parametrize(
    ("flags", "interval", "layers", "words"),
    [
        ([1, 1, 1, 1, 1, 1, 1, 0], ..., (7,), "no_rope_layers of config.json"),
        (..., 2, (1, 3, 5, 7), "no_rope_layer_interval of config.json"),
        (..., ..., (3, 7), "every 4th layer, the default of SmolLM3Config: config.json does not say which"),
        (None, ..., (3, 7), "every 4th layer, the default of SmolLM3Config: config.json does not say which"),
    ],
)
def test_where_the_nope_list_comes_from_is_said(flags: Any, interval: Any, layers: tuple[int, ...], words: str) -> None:
    raw = changed(no_rope_layers=flags, no_rope_layer_interval=interval)
    assert nope_source(raw) == words
    assert ModelConfig.from_raw(raw).nope_layers == layers


def test_all_faults_are_named_at_once() -> None:
    raw = changed(model_type="llama", no_rope_layers=[1], rope_theta=..., hidden_act="relu")
    with pytest.raises(StageError) as caught:
        ModelConfig.from_raw(raw)
    assert len(caught.value.problems) == 4


JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-5, 5) | st.floats() | st.text(max_size=3),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=4,
)
KEYS = (*preset_config("tiny"), "rope_parameters", "layer_types", "no_rope_layer_interval", "quantization_config")


@settings(max_examples=300, deadline=None)
@given(st.dictionaries(st.sampled_from(KEYS), JSON, max_size=4))
def test_no_value_of_any_type_crashes_the_judge(changes: dict[str, Any]) -> None:
    raw = {**preset_config("tiny"), **changes}
    if not list(judge(raw)):
        assert ModelConfig.from_raw(raw).max_positions >= 1


@settings(max_examples=100, deadline=None)
@given(st.dictionaries(st.sampled_from([*YARN, "truncate", "attention_factor", "type"]), JSON, max_size=3))
def test_no_rope_parameter_of_any_type_crashes_the_judge(changes: dict[str, Any]) -> None:
    for key in ("rope_parameters", "rope_scaling"):
        list(judge({**preset_config("tiny"), key: {**YARN, **changes}}))


def test_a_missing_nope_list_means_every_fourth_layer() -> None:
    config = ModelConfig.from_raw(changed(no_rope_layers=...))
    assert config.nope_layers == (3, 7)
    assert ModelConfig.from_raw(changed(no_rope_layers=..., no_rope_layer_interval=3)).nope_layers == (2, 5)


def test_old_and_new_forms_of_rope_say_the_same() -> None:
    old = ModelConfig.from_raw(
        changed(rope_scaling={"type": "yarn", "factor": 2.0, "original_max_position_embeddings": 4096})
    )
    assert dict(old.rope) == dict(ModelConfig.from_raw(changed(rope_theta=..., rope_parameters=YARN)).rope)


def test_yarn_multiplies_the_positions_of_the_original_length_once() -> None:
    raised = ModelConfig.from_raw(changed(rope_parameters=YARN, max_position_embeddings=8192))
    unraised = ModelConfig.from_raw(changed(rope_parameters=YARN, max_position_embeddings=4096))
    assert raised.max_positions == unraised.max_positions == 8192


@pytest.mark.parametrize(
    ("rope", "factor"),
    [
        ({"rope_type": "default", "rope_theta": 5e6}, 1.0),
        ({**YARN, "factor": 1.0}, 1.0),
        (YARN, 1.0693147),
        ({**YARN, "factor": 4.0}, 1.1386294),
        ({**YARN, "attention_factor": 1.0}, 1.0),
        ({**YARN, "attention_factor": None}, 1.0693147),
        ({**YARN, "mscale": 2.0, "mscale_all_dim": 1.0}, 1.0648216),
        ({**YARN, "mscale": 1.0, "mscale_all_dim": 1.0}, 1.0),
    ],
)
def test_only_an_attention_factor_that_is_not_1_asks_for_fp32(rope: dict[str, Any], factor: float) -> None:
    config = ModelConfig.from_raw(changed(rope_theta=..., rope_parameters=rope))
    assert config.attention_factor == pytest.approx(factor, abs=1e-7)
    assert config.rotates_in_fp32 == (factor != 1)


@pytest.mark.parametrize(
    "text",
    ["", "{", "[]", "3", "\xff", "[" * 100_000, '{"vocab_size": ' + "9" * 5000 + "}"],
    ids=["empty", "cut", "list", "number", "no UTF-8", "nested too deeply", "too many digits"],
)
def test_what_is_no_json_object_is_refused(tmp_path: Path, text: str) -> None:
    (tmp_path / "config.json").write_bytes(text.encode("latin-1"))
    with pytest.raises(StageError, match=r"config\.json"):
        ModelConfig.read(tmp_path)


def test_a_key_that_stands_there_twice_is_refused_and_named(tmp_path: Path) -> None:
    text = json.dumps(preset_config("tiny"))
    (tmp_path / "config.json").write_text(text[:-1] + ', "no_rope_layers": [1, 1, 1, 1, 1, 1, 1, 1]}')
    with pytest.raises(StageError, match="no_rope_layers: there twice"):
        ModelConfig.read(tmp_path)


def test_a_folder_in_the_configs_place_is_refused(tmp_path: Path) -> None:
    (tmp_path / "config.json").mkdir()
    with pytest.raises(StageError, match="cannot be read"):
        ModelConfig.read(tmp_path)


def test_a_missing_config_is_refused_with_what_is_there(tmp_path: Path) -> None:
    (tmp_path / "pytorch_model.bin").touch()
    with pytest.raises(StageError, match=r"pytorch_model\.bin"):
        ModelConfig.read(tmp_path)


def test_reading_gives_what_was_written(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps(preset_config("tiny")))
    assert ModelConfig.read(tmp_path) == ModelConfig.from_raw(preset_config("tiny"))
