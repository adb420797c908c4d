"""Every reason why a raw config.json is not one that we carry, whatever is in it, all at once.

Nothing is assumed of a value's type: a config is written by people.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from typing import Any, TypeGuard

from artifacts.errors import Problem

MODEL_TYPE = "smollm3"
ROPE_TYPES = ("default", "yarn")
YARN_KEYS = (
    "factor",
    "original_max_position_embeddings",
    "attention_factor",
    "beta_fast",
    "beta_slow",
    "mscale",
    "mscale_all_dim",
    "truncate",
)
DEFAULT_INTERVAL = 4
"""Every fourth layer is a NoPE layer where a config says nothing of it: the default of `SmolLM3Config`."""
TRANSFORMERS_PAD = 128004
"""The padding id that Transformers takes for a config without one."""
DIMENSIONS = (
    "vocab_size",
    "hidden_size",
    "intermediate_size",
    "num_hidden_layers",
    "num_attention_heads",
    "num_key_value_heads",
    "max_position_embeddings",
)
LARGEST = 1 << 24
"""No dimension of a model is larger; what is would fill the memory before anything could be said about it."""
MEND_CONFIG = "correct config.json, or export another checkpoint"


def rope_parameters(raw: Mapping[str, Any]) -> Mapping[str, Any]:
    """Give rope parameters in today's form, whether the config has `rope_parameters` or `rope_theta`/`rope_scaling`."""
    if isinstance(raw.get("rope_parameters"), Mapping):
        found = dict(raw["rope_parameters"])
    else:
        scaling = raw.get("rope_scaling")
        found = dict(scaling) if isinstance(scaling, Mapping) else {}
    if "type" in found:
        found.setdefault("rope_type", found.pop("type"))
    if "rope_theta" in raw:
        found.setdefault("rope_theta", raw["rope_theta"])
    if "rope_theta" in found:
        found.setdefault("rope_type", "default")
    return found


def rope_flags(raw: Mapping[str, Any]) -> list[int]:
    """Give the NoPE list: the config's own, or every `no_rope_layer_interval`-th layer where it has none."""
    flags = raw.get("no_rope_layers")
    if flags is not None:
        return list(flags)
    interval = raw.get("no_rope_layer_interval", DEFAULT_INTERVAL)
    return [int((layer + 1) % interval != 0) for layer in range(raw["num_hidden_layers"])]


def nope_source(raw: Mapping[str, Any]) -> str:
    """Say in words where the NoPE list comes from; a default is not to be taken in silence."""
    if raw.get("no_rope_layers") is not None:
        return "no_rope_layers of config.json"
    if "no_rope_layer_interval" in raw:
        return "no_rope_layer_interval of config.json"
    return f"every {DEFAULT_INTERVAL}th layer, the default of SmolLM3Config: config.json does not say which"


def judge(raw: Mapping[str, Any]) -> Iterator[Problem]:
    """Yield every reason why this config.json is not one that we carry."""
    if raw.get("model_type") != MODEL_TYPE:
        yield Problem(
            "model_type is not carried", repr(MODEL_TYPE), repr(raw.get("model_type")), "export a SmolLM3 checkpoint"
        )
    yield from _judge_dimensions(raw)
    yield from _judge_features(raw)
    yield from _judge_nope_list(raw)
    yield from _judge_rope(raw)


def _judge_dimensions(raw: Mapping[str, Any]) -> Iterator[Problem]:
    sizes = {name: raw.get(name) for name in DIMENSIONS}
    wrong = {name: size for name, size in sizes.items() if not _is_count(size)}
    for name, size in wrong.items():
        expected = f"an integer from 1 to {LARGEST}"
        yield Problem(f"{name} is missing or no size", expected, quoted(size), MEND_CONFIG)
    eps = raw.get("rms_norm_eps")
    if not _is_number(eps, above=0) or eps >= 1:
        yield Problem("rms_norm_eps is missing or no small number", "such as 1e-06", quoted(eps), MEND_CONFIG)
    if not {"num_attention_heads", "num_key_value_heads", "hidden_size"} & wrong.keys():
        heads, groups, width = (raw[n] for n in ("num_attention_heads", "num_key_value_heads", "hidden_size"))
        if heads % groups:
            yield Problem(
                "query heads do not divide into key/value heads", f"a multiple of {groups}", str(heads), MEND_CONFIG
            )
        if "head_dim" not in raw and width % heads:
            yield Problem("hidden_size does not divide into heads", f"a multiple of {heads}", str(width), MEND_CONFIG)
        # A head_dim that is null reaches Transformers' attention as None, so it is no way to leave it out.
        dim = raw.get("head_dim", width // heads)
        if not _is_count(dim) or dim % 2:
            yield Problem("head_dim cannot be rotated in halves", "an even integer > 0", quoted(dim), MEND_CONFIG)


def _judge_features(raw: Mapping[str, Any]) -> Iterator[Problem]:
    if raw.get("use_sliding_window"):
        found = f"use_sliding_window={raw['use_sliding_window']!r}"
        yield Problem("sliding-window attention is not carried", "full attention in every layer", found, MEND_CONFIG)
    if raw.get("hidden_act") != "silu":
        yield Problem("hidden_act is not carried", "'silu'", repr(raw.get("hidden_act")), MEND_CONFIG)
    for name in ("attention_bias", "mlp_bias"):
        if raw.get(name):
            yield Problem(f"{name} is not carried", "false", repr(raw[name]), MEND_CONFIG)
    if raw.get("quantization_config"):
        yield Problem(
            "quantized weights are not a source for export",
            "BF16, FP16 or FP32 weights",
            f"quantization_config {raw['quantization_config']}",
            "export the checkpoint that was quantized",
        )
    tied = raw.get("tie_word_embeddings", True)
    if not isinstance(tied, bool):
        yield Problem("tie_word_embeddings is no truth value", "true or false", repr(tied), MEND_CONFIG)
    yield from _judge_layer_types(raw)
    yield from _judge_padding(raw)


def _judge_layer_types(raw: Mapping[str, Any]) -> Iterator[Problem]:
    kinds, layers = raw.get("layer_types"), raw.get("num_hidden_layers")
    if kinds is None:
        return
    if not isinstance(kinds, list) or any(kind != "full_attention" for kind in kinds):
        yield Problem(
            "layer_types holds what is not carried", "'full_attention' for every layer", repr(kinds), MEND_CONFIG
        )
    elif _is_count(layers) and len(kinds) != layers:
        yield Problem("layer_types has another length", f"{layers} entries", f"{len(kinds)} entries", MEND_CONFIG)


def _judge_padding(raw: Mapping[str, Any]) -> Iterator[Problem]:
    """Transformers refuses a padding id outside the vocabulary, without a word of the config's key or its default."""
    pad, size = raw.get("pad_token_id", TRANSFORMERS_PAD), raw.get("vocab_size")
    if pad is None or not _is_count(size):
        return
    if not isinstance(pad, int) or isinstance(pad, bool) or not 0 <= pad < size:
        found = repr(pad) if "pad_token_id" in raw else f"none, for which Transformers takes {pad}"
        yield Problem("pad_token_id is not in the vocabulary", f"null, or 0 to {size - 1}", found, MEND_CONFIG)


def _judge_nope_list(raw: Mapping[str, Any]) -> Iterator[Problem]:
    layers, flags = raw.get("num_hidden_layers"), raw.get("no_rope_layers")
    if flags is None:
        interval = raw.get("no_rope_layer_interval", DEFAULT_INTERVAL)
        if not _is_count(interval):
            yield Problem("no_rope_layer_interval is no positive integer", "such as 4", repr(interval), MEND_CONFIG)
    elif not isinstance(flags, list) or any(type(flag) is not int or flag not in (0, 1) for flag in flags):
        yield Problem(
            "no_rope_layers is no list of 0 and 1", "1 = RoPE, 0 = NoPE, a layer each", repr(flags), MEND_CONFIG
        )
    elif _is_count(layers) and len(flags) != layers:
        yield Problem(
            f"no_rope_layers is too {'short' if len(flags) < layers else 'long'}",
            f"{layers} entries, one for each of num_hidden_layers",
            f"{len(flags)} entries: {flags}",
            MEND_CONFIG,
        )


def _judge_rope(raw: Mapping[str, Any]) -> Iterator[Problem]:
    for name in ("rope_parameters", "rope_scaling"):
        if not isinstance(raw.get(name), Mapping | None):
            yield Problem(f"{name} is no JSON object", "an object or null", repr(raw[name]), MEND_CONFIG)
    rope = rope_parameters(raw)
    kind = rope.get("rope_type")
    theta = rope.get("rope_theta")
    if theta is None:
        yield Problem(
            "rope_theta is missing (the class default of Transformers would be another model's)",
            "rope_parameters with rope_theta, or rope_theta itself; SmolLM3-3B has 5000000.0",
            "null" if "rope_theta" in rope else "no such key",
            MEND_CONFIG,
        )
    elif not _is_number(theta, above=0):
        yield Problem("rope_theta is no positive number", "such as 5000000.0, SmolLM3-3B's", quoted(theta), MEND_CONFIG)
    elif raw.get("rope_theta") not in (None, theta):
        found = f"{quoted(raw['rope_theta'])}, and {quoted(theta)} in the rope parameters"
        yield Problem("rope_theta has two values", "one, or the same twice", found, MEND_CONFIG)
    if kind is not None and kind not in ROPE_TYPES:
        yield Problem("rope_type is not carried", f"one of {', '.join(ROPE_TYPES)}", repr(kind), MEND_CONFIG)
        return
    allowed = {"rope_type", "rope_theta", "partial_rotary_factor", *(YARN_KEYS if kind == "yarn" else ())}
    unknown = {name: rope[name] for name in rope if name not in allowed}
    if unknown:
        yield Problem(
            f"rope parameters are not known to rope_type {kind or 'default'}",
            f"only {', '.join(sorted(allowed))}",
            str(unknown),
            MEND_CONFIG,
        )
    factor = raw.get("partial_rotary_factor") or rope.get("partial_rotary_factor") or 1
    if factor != 1:
        yield Problem("partial rotation is not carried", "partial_rotary_factor 1", quoted(factor), MEND_CONFIG)
    if kind == "yarn":
        yield from _judge_yarn(rope)


def _judge_yarn(rope: Mapping[str, Any]) -> Iterator[Problem]:
    theta = rope.get("rope_theta")
    if _is_number(theta, above=0) and theta <= 1:
        yield Problem("YaRN needs rope_theta", "a number > 1: its logarithm divides", quoted(theta), MEND_CONFIG)
    for name in ("factor", "original_max_position_embeddings"):
        value = rope.get(name)
        if not _is_number(value, above=0) or value < 1:
            yield Problem(f"YaRN needs {name}", "a number >= 1", quoted(value), MEND_CONFIG)
        elif value > LARGEST:
            yield Problem(f"YaRN's {name} is no size", f"at most {LARGEST}", quoted(value), MEND_CONFIG)
    for name in ("attention_factor", "beta_fast", "beta_slow", "mscale", "mscale_all_dim"):
        if rope.get(name) is not None and not _is_number(rope[name], above=0):
            yield Problem(
                f"YaRN's {name} is no positive number", "a number > 0 or null", quoted(rope[name]), MEND_CONFIG
            )
    if not isinstance(rope.get("truncate", True), bool):
        yield Problem("YaRN's truncate is no truth value", "true or false", repr(rope["truncate"]), MEND_CONFIG)


def _is_count(value: object) -> TypeGuard[int]:
    return isinstance(value, int) and not isinstance(value, bool) and 0 < value <= LARGEST


def _is_number(value: object, *, above: float) -> TypeGuard[float]:
    return isinstance(value, int | float) and not isinstance(value, bool) and above < value <= sys.float_info.max


def quoted(value: object) -> str:
    """Write a value of a config as Python would, cut where it is long; an integer may have too many digits to write."""
    try:
        text = repr(value)
    except ValueError:
        text = "an integer of thousands of digits"
    return text if len(text) <= 100 else f"{text[:100]}…"
