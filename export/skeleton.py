"""The checkpoint's own PyTorch model in memory that nobody touched: tracing needs shapes and code, not weights.

The model is made on the meta device and given memory that is never written, so that its 6 GB stay virtual. Only what
is computed and not loaded, the rotary module's frequencies, is made anew: `to_empty` would leave it as it is.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from artifacts.config import ModelConfig
from artifacts.config_judgement import MEND_CONFIG
from artifacts.errors import Problem, StageError, refuse

if TYPE_CHECKING:
    from transformers import SmolLM3Config, SmolLM3ForCausalLM

REMEDY = "correct config.json, or install the versions of constraints.txt"


def transformers_config(raw: Mapping[str, Any]) -> SmolLM3Config:
    """Let Transformers read a config.json that was judged; it insists on types of keys that we do not use.

    Raises:
        StageError: Transformers does not take it, with its own reason.
    """
    from transformers import SmolLM3Config

    try:
        return SmolLM3Config.from_dict(dict(raw))
    except Exception as error:  # of whatever type: it has no base class for them
        reason = " ".join(str(error).split())
        raise refuse(
            "Transformers does not take this config.json",
            expected="values that SmolLM3Config accepts",
            found=f"{type(error).__name__}: {reason}",
            remedy=MEND_CONFIG,
        ) from None


def untouched_model(raw: Mapping[str, Any], config: ModelConfig) -> SmolLM3ForCausalLM:
    """Build the BF16 model, eager attention, without weights.

    Args:
        raw: the checkpoint's config.json.
        config: the facts that were read from it; the loaded modules are compared with them.

    Raises:
        StageError: every point where the loaded modules are not what the config says.
    """
    import torch
    from transformers import SmolLM3ForCausalLM

    loaded = transformers_config(raw)
    loaded._attn_implementation = "eager"
    loaded.use_cache = True
    with torch.device("meta"):
        model = SmolLM3ForCausalLM(loaded).to(torch.bfloat16)
    model.to_empty(device="cpu")
    model.tie_weights()
    model.model.rotary_emb = type(model.model.rotary_emb)(loaded)
    problems = compare(model, config)
    if problems:
        raise StageError(problems)
    return model.eval()


def compare(model: SmolLM3ForCausalLM, config: ModelConfig) -> list[Problem]:
    """List where the modules that Transformers made are not what the config says."""
    attention = [layer.self_attn for layer in model.model.layers]
    rope = {name: model.config.rope_parameters.get(name) for name in config.rope}
    norms = {module.variance_epsilon for module in model.modules() if hasattr(module, "variance_epsilon")}
    facts = {
        "which layers rotate": (config.uses_rope, tuple(bool(module.use_rope) for module in attention)),
        "head_dim": ({config.head_dim}, {module.head_dim for module in attention}),
        "scale of the scores": ({config.scale}, {module.scaling for module in attention}),
        "sliding windows": ({None}, {module.sliding_window for module in attention}),
        "rope parameters": (dict(config.rope), rope),
        "rms_norm_eps": ({config.rms_norm_eps}, norms),
        "tied head": (config.tie_word_embeddings, model.lm_head.weight is model.model.embed_tokens.weight),
    }
    return [
        Problem(f"the loaded model differs from config.json: {fact}", str(expected), str(found), REMEDY)
        for fact, (expected, found) in facts.items()
        if expected != found
    ]
