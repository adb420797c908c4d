"""Facts about a model, read from its raw config.json and judged before anything else is done.

`SmolLM3Config` fills gaps with class defaults (theta 2e6, a NoPE list of its own), raises IndexError on a NoPE list
that is too short and takes one that is too long in silence. So the raw JSON is judged here first, and all reasons to
refuse it are given at once.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeGuard

from artifacts.errors import Problem, StageError, refuse

MODEL_TYPE = "smollm3"
ROPE_TYPES = ("default", "yarn")
DIMENSIONS = (
    "vocab_size",
    "hidden_size",
    "intermediate_size",
    "num_hidden_layers",
    "num_attention_heads",
    "num_key_value_heads",
    "max_position_embeddings",
)
MEND_CONFIG = "correct config.json, or export another checkpoint"


@dataclass(frozen=True)
class ModelConfig:
    """What the stages need to know of a SmolLM3 checkpoint; everything else is derived from it.

    Attributes:
        rope: rope parameters as the checkpoint gives them, at least `rope_type` and `rope_theta`.
        uses_rope: for each layer, whether q and k are rotated (the config's `no_rope_layers`, 1 = rotated).
    """

    vocab_size: int
    hidden_size: int
    intermediate_size: int
    num_hidden_layers: int
    num_attention_heads: int
    num_key_value_heads: int
    head_dim: int
    max_position_embeddings: int
    rms_norm_eps: float
    rope: Mapping[str, Any]
    uses_rope: tuple[bool, ...]
    tie_word_embeddings: bool

    @classmethod
    def read(cls, folder: Path) -> ModelConfig:
        """Read `config.json` of a checkpoint or of a model's `onnx/` folder.

        Raises:
            StageError: the file is missing or no JSON object, or the model is not one that we carry (all reasons).
        """
        return cls.from_raw(read_raw(folder))

    @classmethod
    def from_raw(cls, raw: Mapping[str, Any]) -> ModelConfig:
        """Judge the raw JSON and take the facts from it.

        Raises:
            StageError: with every reason at once.
        """
        problems = list(judge(raw))
        if problems:
            raise StageError(problems)
        heads = raw["num_attention_heads"]
        return cls(
            **{name: raw[name] for name in DIMENSIONS},
            head_dim=raw.get("head_dim") or raw["hidden_size"] // heads,
            rms_norm_eps=float(raw["rms_norm_eps"]),
            rope=dict(rope_parameters(raw)),
            uses_rope=tuple(bool(flag) for flag in rope_flags(raw)),
            tie_word_embeddings=raw.get("tie_word_embeddings", True),
        )

    @property
    def rope_layers(self) -> tuple[int, ...]:
        """Layers that rotate q and k."""
        return tuple(i for i, rotated in enumerate(self.uses_rope) if rotated)

    @property
    def nope_layers(self) -> tuple[int, ...]:
        """Layers that must not rotate q and k."""
        return tuple(i for i, rotated in enumerate(self.uses_rope) if not rotated)

    @property
    def group_size(self) -> int:
        """Query heads that share one key/value head."""
        return self.num_attention_heads // self.num_key_value_heads

    @property
    def scale(self) -> float:
        """Factor of the attention scores, head_dim ** -0.5, in double precision."""
        return math.pow(self.head_dim, -0.5)

    @property
    def max_positions(self) -> int:
        """Positions that the model can take: YaRN's factor times its original length, if that is more."""
        original = self.rope.get("original_max_position_embeddings", self.max_position_embeddings)
        return max(self.max_position_embeddings, int(self.rope.get("factor", 1.0) * original))

    @property
    def num_parameters(self) -> int:
        """Parameters, with a tied head counted once."""
        width, inner = self.hidden_size, self.intermediate_size
        queries, keys = self.num_attention_heads * self.head_dim, self.num_key_value_heads * self.head_dim
        layer = 2 * width * queries + 2 * width * keys + 3 * width * inner + 2 * width
        embeddings = (1 if self.tie_word_embeddings else 2) * self.vocab_size * width
        return self.num_hidden_layers * layer + embeddings + width


def read_raw(folder: Path) -> dict[str, Any]:
    """Read `config.json` as it is, unjudged.

    Raises:
        StageError: the file is missing or no JSON object.
    """
    path = folder / "config.json"
    try:
        raw = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise refuse(
            f"{path} is missing",
            expected="a checkpoint folder with config.json and *.safetensors",
            found=f"{sorted(p.name for p in folder.iterdir())[:8]}" if folder.is_dir() else "no such folder",
            remedy="give MODEL a checkpoint folder, a hub id, or random:tiny",
        ) from None
    except (UnicodeDecodeError, json.JSONDecodeError) as error:
        raise refuse(f"{path} is not JSON", found=str(error), remedy=MEND_CONFIG) from None
    if not isinstance(raw, dict):
        raise refuse(f"{path} is not a JSON object", found=type(raw).__name__, remedy=MEND_CONFIG)
    return raw


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
    interval = raw.get("no_rope_layer_interval", 4)
    return [int((layer + 1) % interval != 0) for layer in range(raw["num_hidden_layers"])]


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
        yield Problem(f"{name} is missing or no positive integer", "an integer > 0", repr(size), MEND_CONFIG)
    eps = raw.get("rms_norm_eps")
    if not isinstance(eps, float | int) or isinstance(eps, bool) or not 0 < eps < 1:
        yield Problem("rms_norm_eps is missing or no small number", "such as 1e-06", repr(eps), MEND_CONFIG)
    if not {"num_attention_heads", "num_key_value_heads", "hidden_size"} & wrong.keys():
        heads, groups, width = (raw[n] for n in ("num_attention_heads", "num_key_value_heads", "hidden_size"))
        if heads % groups:
            yield Problem(
                "query heads do not divide into key/value heads", f"a multiple of {groups}", str(heads), MEND_CONFIG
            )
        head_dim = raw.get("head_dim")
        if head_dim is None and width % heads:
            yield Problem("hidden_size does not divide into heads", f"a multiple of {heads}", str(width), MEND_CONFIG)
        dim = width // heads if head_dim is None else head_dim
        if not _is_count(dim) or dim % 2:
            yield Problem("head_dim cannot be rotated in halves", "an even integer > 0", repr(dim), MEND_CONFIG)


def _judge_features(raw: Mapping[str, Any]) -> Iterator[Problem]:
    if raw.get("use_sliding_window") or set(raw.get("layer_types") or ()) - {"full_attention"}:
        found = f"use_sliding_window={raw.get('use_sliding_window')}, layer_types={raw.get('layer_types')}"
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


def _judge_nope_list(raw: Mapping[str, Any]) -> Iterator[Problem]:
    layers, flags = raw.get("num_hidden_layers"), raw.get("no_rope_layers")
    if flags is None:
        interval = raw.get("no_rope_layer_interval", 4)
        if not _is_count(interval):
            yield Problem("no_rope_layer_interval is no positive integer", "such as 4", repr(interval), MEND_CONFIG)
    elif not isinstance(flags, list) or any(flag not in (0, 1) for flag in flags):
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
    rope = rope_parameters(raw)
    theta, kind = rope.get("rope_theta"), rope.get("rope_type")
    if not isinstance(theta, float | int) or isinstance(theta, bool) or theta <= 0:
        yield Problem(
            "rope_theta is missing (the class default of Transformers would be another model's)",
            "rope_parameters with rope_theta, or rope_theta itself; SmolLM3-3B has 5000000.0",
            repr(theta),
            MEND_CONFIG,
        )
    if kind is not None and kind not in ROPE_TYPES:
        yield Problem("rope_type is not carried", f"one of {', '.join(ROPE_TYPES)}", repr(kind), MEND_CONFIG)
    if kind == "yarn":
        for name in ("factor", "original_max_position_embeddings"):
            if not isinstance(rope.get(name), float | int) or rope[name] < 1:
                yield Problem(f"YaRN needs {name}", "a number >= 1", repr(rope.get(name)), MEND_CONFIG)


def _is_count(value: object) -> TypeGuard[int]:
    return isinstance(value, int) and not isinstance(value, bool) and value > 0
