"""Facts about a model, read from its raw config.json and judged before anything else is done.

`SmolLM3Config` fills gaps with class defaults (theta 2e6, a NoPE list of its own), raises IndexError on a NoPE list
that is too short and takes one that is too long in silence. So the raw JSON is judged here first, and all reasons to
refuse it are given at once.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from artifacts.config_judgement import DIMENSIONS, MEND_CONFIG, judge, rope_flags, rope_parameters
from artifacts.errors import StageError, refuse


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
            head_dim=raw.get("head_dim", raw["hidden_size"] // heads),
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
    def attention_factor(self) -> float:
        """Factor of the rotation's cosines and sines, in double precision; 1 without YaRN.

        Source: YaRN, arXiv 2309.00071, section 3.4; the keys are Transformers'.
        """
        rope = self.rope
        if rope["rope_type"] == "default":
            return 1.0
        if rope.get("attention_factor") is not None:
            return float(rope["attention_factor"])

        def grown(weight: float) -> float:
            return 0.1 * weight * math.log(rope["factor"]) + 1.0 if rope["factor"] > 1 else 1.0

        if rope.get("mscale") and rope.get("mscale_all_dim"):
            return grown(rope["mscale"]) / grown(rope["mscale_all_dim"])
        return grown(1.0)

    @property
    def rotates_in_fp32(self) -> bool:
        """Whether BF16 graphs rotate in FP32: an attention factor in BF16 tables is rounded, and q and k by it."""
        return self.attention_factor != 1.0

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
        StageError: the file is missing, cannot be read, is no JSON object, or says something twice.
    """
    path = folder / "config.json"
    try:
        raw = json.loads(path.read_text(encoding="utf-8"), object_pairs_hook=_said_once)
    except FileNotFoundError:
        raise refuse(
            f"{path} is missing",
            expected="a checkpoint folder with config.json and *.safetensors",
            found=f"{sorted(p.name for p in folder.iterdir())[:8]}" if folder.is_dir() else "no such folder",
            remedy="give MODEL a checkpoint folder, a hub id, or random:tiny",
        ) from None
    except OSError as error:
        raise refuse(f"{path} cannot be read", expected="a file", found=str(error), remedy=MEND_CONFIG) from None
    except (ValueError, RecursionError) as error:
        raise refuse(f"{path} is not JSON that can be read", found=str(error), remedy=MEND_CONFIG) from None
    if not isinstance(raw, dict):
        raise refuse(f"{path} is not a JSON object", found=type(raw).__name__, remedy=MEND_CONFIG)
    return raw


def _said_once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Take a JSON object; of a key that stands there twice `json` would take the last in silence."""
    found = dict(pairs)
    if len(found) != len(pairs):
        names = [name for name, _ in pairs]
        raise ValueError(f"{', '.join(sorted({name for name in names if names.count(name) > 1}))}: there twice")
    return found
