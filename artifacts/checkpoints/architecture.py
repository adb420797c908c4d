"""The tiny model's configuration: SmolLM3 in every respect but size, 1.7 million parameters."""

from __future__ import annotations

from typing import Any

from artifacts.checkpoints.vocabulary import BEGIN, END, PAD, SPECIAL, TAGS, TURN_END, VOCABULARY

_FIRST_SPECIAL = VOCABULARY - len(SPECIAL) - len(TAGS)
_LAYERS = 8
_IDS = {
    "bos_token_id": _FIRST_SPECIAL + SPECIAL.index(BEGIN),
    "eos_token_id": _FIRST_SPECIAL + SPECIAL.index(TURN_END),
    "pad_token_id": _FIRST_SPECIAL + SPECIAL.index(PAD),
}
CONFIG: dict[str, Any] = {
    "architectures": ["SmolLM3ForCausalLM"],
    "attention_bias": False,
    "attention_dropout": 0.0,
    "dtype": "bfloat16",
    "head_dim": 32,
    "hidden_act": "silu",
    "hidden_size": 128,
    "initializer_range": 0.02,
    "intermediate_size": 384,
    "max_position_embeddings": 4096,
    "mlp_bias": False,
    "model_type": "smollm3",
    "no_rope_layers": [int((layer + 1) % 4 != 0) for layer in range(_LAYERS)],
    "num_attention_heads": 4,
    "num_hidden_layers": _LAYERS,
    "num_key_value_heads": 2,
    "rms_norm_eps": 1e-06,
    "rope_scaling": None,
    "rope_theta": 10000.0,
    "sliding_window": None,
    "tie_word_embeddings": True,
    "use_cache": True,
    "use_sliding_window": False,
    "vocab_size": VOCABULARY,
    **_IDS,
}
_ENDS = [_IDS["eos_token_id"], _FIRST_SPECIAL + SPECIAL.index(END)]
"""What ends a turn, and what ends a text that is no chat."""
GENERATION: dict[str, Any] = {**_IDS, "eos_token_id": _ENDS, "do_sample": True, "temperature": 0.6, "top_p": 0.95}
