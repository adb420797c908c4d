"""Names of the tensors inside a graph, so that a layer can be found by its name in every form and in TensorRT.

A module's output bears the module's dotted path in Transformers (`model.layers.3.self_attn.q_proj`); export sees to
it. What surgery makes anew gets the names below. A weight bears its name in the checkpoint; the linear ones are
stored transposed, (in, out), as `MatMul` wants them.
"""

from __future__ import annotations

EMBEDDING_WEIGHT = "model.embed_tokens.weight"
HEAD_WEIGHT = "lm_head.weight"

EMBEDDING = "model.embed_tokens"
FINAL_NORM = "model.norm"
MASK = "attention_mask.slots"
"""The one bool mask (B, 1, S, T) or (B, 1, S, C): true where a query may look."""

ROTARY_COS = "rotary.cos"
ROTARY_SIN = "rotary.sin"
"""Rotary tables, (positions, D/2), in BF16 and in FP32; they lie in `rotary.onnx_data`."""
FP32_SUFFIX = ".fp32"
"""What a BF16 tensor's name gets when an FP32 version of it stands beside it."""


def layer(index: int, part: str = "") -> str:
    """Name of a decoder layer's output, or of a part inside it: `layer(3, "mlp.down_proj")`."""
    return f"model.layers.{index}.{part}" if part else f"model.layers.{index}"


NORM = "input_layernorm"
Q_PROJ, K_PROJ, V_PROJ, O_PROJ = "self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj", "self_attn.o_proj"
Q_ROTARY, K_ROTARY = "self_attn.q_rotary", "self_attn.k_rotary"
"""q and k after rotation, (B, H, S, D) and (B, K, S, D); RoPE layers only."""
ATTENTION = "self_attn.attention"
"""Output of the attention product before the output projection, (B, H, S, D)."""
RESIDUAL = "residual"
"""The stream after attention was added to it, (B, S, hidden)."""
POST_NORM = "post_attention_layernorm"
GATE_PROJ, UP_PROJ, DOWN_PROJ = "mlp.gate_proj", "mlp.up_proj", "mlp.down_proj"

LINEAR_WEIGHTS = tuple(f"{part}.weight" for part in (Q_PROJ, K_PROJ, V_PROJ, O_PROJ, GATE_PROJ, UP_PROJ, DOWN_PROJ))
NORM_WEIGHTS = tuple(f"{part}.weight" for part in (NORM, POST_NORM))
