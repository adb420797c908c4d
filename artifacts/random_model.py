"""Seeded random checkpoints with sharp attention, which need no download: `random:<preset>`.

Weights of the default initialisation give nearly flat attention, and a planted fault may then move the logits less
than a tolerance. Here scores have a standard deviation of about 3 on normalised inputs. A deep net with attention
that sharp amplifies rounding; measured with 36 layers of 512, 160 tokens, FP32 against FP64, largest difference of
logits over their largest: 4e-5 with q and k of 1.9, 1.6e-5 with 1.75, 9e-6 with 1.6, 2e-6 with 1.3.
"""

from __future__ import annotations

import hashlib
import math
from typing import TYPE_CHECKING, Any

from artifacts import names
from artifacts.config import ModelConfig
from artifacts.errors import refuse
from artifacts.parameters import parameter_shapes

if TYPE_CHECKING:
    import torch

PREFIX = "random:"
SEED = 20250709
"""Part of a random model's identity: a change of the recipe below needs another seed."""
_BLOCK = 1 << 22
"""Elements drawn at once, 17 MB in FP32: the 3B model's embedding as a whole would take a gigabyte."""
SHARPNESS = 1.75
"""Standard deviation of q and k on inputs of unit variance; scores have its square."""


def _config(layers: int, nope: tuple[int, ...], **sizes: int | float) -> dict[str, Any]:
    return {
        "architectures": ["SmolLM3ForCausalLM"],
        "attention_bias": False,
        "attention_dropout": 0.0,
        "dtype": "bfloat16",
        "hidden_act": "silu",
        "initializer_range": 0.02,
        "mlp_bias": False,
        "model_type": "smollm3",
        "no_rope_layers": [int(layer not in nope) for layer in range(layers)],
        "num_hidden_layers": layers,
        "rms_norm_eps": 1e-06,
        "rope_scaling": None,
        "sliding_window": None,
        "tie_word_embeddings": True,
        "use_sliding_window": False,
        **sizes,
    }


_SMALL = {
    "vocab_size": 512,
    "intermediate_size": 256,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 4096,
    "rope_theta": 5000000.0,
    "bos_token_id": 1,
    "eos_token_id": 2,
    "pad_token_id": 0,
}

PRESETS: dict[str, dict[str, Any]] = {
    # The irregular NoPE list cannot be mistaken for "every fourth layer".
    "tiny": _config(8, (1, 4, 5), hidden_size=128, head_dim=32, **_SMALL),
    # head_dim 128, as in the 3B model, shows faults of the score scale that head_dim 64 hides. No other axis is 640.
    "tiny-d128": _config(4, (0, 2), hidden_size=256, head_dim=128, **{**_SMALL, "vocab_size": 640}),
    "smollm3-3b": _config(
        36,
        tuple(range(3, 36, 4)),
        vocab_size=128256,
        hidden_size=2048,
        intermediate_size=11008,
        num_attention_heads=16,
        num_key_value_heads=4,
        head_dim=128,
        max_position_embeddings=65536,
        rope_theta=5000000.0,
        bos_token_id=128000,
        eos_token_id=128012,
        pad_token_id=128004,
    ),
}


def preset_config(preset: str) -> dict[str, Any]:
    """Give the raw config of a preset.

    Raises:
        StageError: there is no such preset.
    """
    if preset not in PRESETS:
        raise refuse(
            f"there is no random model {preset!r}",
            expected=f"one of {', '.join(PREFIX + name for name in PRESETS)}",
            found=PREFIX + preset,
            remedy="give one of these as MODEL",
        )
    return PRESETS[preset]


def draw(name: str, config: ModelConfig, seed: int = SEED) -> torch.Tensor:
    """Draw one parameter, in BF16, from a generator of its own, so that the order of drawing makes no difference.

    Args:
        name: the parameter's name in Transformers.
        config: the model's facts.
        seed: another seed is another model.
    """
    import torch

    shape = parameter_shapes(config)[name]
    number = int.from_bytes(hashlib.sha256(f"{seed}/{name}".encode()).digest()[:8], "big") >> 1
    generator = torch.Generator().manual_seed(number)
    scale = _scale(name, config, shape)
    drawn = torch.empty(math.prod(shape), dtype=torch.bfloat16)
    for start in range(0, len(drawn), _BLOCK):
        block = drawn[start : start + _BLOCK]
        values = torch.randn(len(block), generator=generator)
        block.copy_(values.mul_(0.1).add_(1.0) if scale is None else values.mul_(scale))
    return drawn.reshape(shape)


def _scale(name: str, config: ModelConfig, shape: tuple[int, ...]) -> float | None:
    """Give the standard deviation of a parameter's elements, or None for a norm's weight, which is near 1."""
    if len(shape) == 1:
        return None
    if name in (names.EMBEDDING_WEIGHT, names.HEAD_WEIGHT):
        return 1 / math.sqrt(config.hidden_size)
    unit = 1 / math.sqrt(shape[1])
    if name.endswith((names.Q_PROJ + ".weight", names.K_PROJ + ".weight")):
        return SHARPNESS * unit
    if name.endswith((names.O_PROJ + ".weight", names.DOWN_PROJ + ".weight")):
        # All blocks together bring the residual stream to about unit variance, whatever the depth.
        return unit / math.sqrt(config.num_hidden_layers)
    return unit


class RandomWeights:
    """The weights of a random model, drawn when asked for (see `artifacts.weights.Weights`)."""

    def __init__(self, config: ModelConfig) -> None:
        self._config = config
        self._shapes = parameter_shapes(config)

    def names(self) -> tuple[str, ...]:
        """Names of all parameters; the head is tied where the config says so."""
        return tuple(self._shapes)

    def shape(self, name: str) -> tuple[int, ...]:
        """Shape of one parameter."""
        return self._shapes[name]

    def tensor(self, name: str) -> torch.Tensor:
        """Draw one parameter, in BF16."""
        return draw(name, self._config)
