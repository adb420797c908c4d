"""A small causal model in numpy that keeps the tensor contract, and takes faults: what a wrong graph looks like.

It has attention, rotation, padding and both forms of the cache, and runs in a millisecond, so that every check of
`validate` can be shown the fault that it is for.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import TracebackType
from typing import Any, Self

import numpy as np

from artifacts.config import ModelConfig
from artifacts.contract import (
    ATTENTION_MASK,
    INPUT_IDS,
    KINDS,
    LOGITS,
    POSITION_IDS,
    WRITE_INDICES,
    Form,
    TensorSpec,
    past_name,
    present_name,
    signature,
)
from runtime.session import Array, Feeds

CONFIG = ModelConfig.from_raw(
    {
        "model_type": "smollm3",
        "vocab_size": 40,
        "hidden_size": 24,
        "intermediate_size": 8,
        "num_hidden_layers": 3,
        "num_attention_heads": 2,
        "num_key_value_heads": 2,
        "head_dim": 8,
        "max_position_embeddings": 512,
        "rms_norm_eps": 1e-6,
        "rope_theta": 10000.0,
        "no_rope_layers": [1, 0, 1],
        "hidden_act": "silu",
        "pad_token_id": 0,
    }
)


class NumpySession:
    """One form of the model.

    Args:
        form: which form; its twin's signature is declared.
        faults: names of what is wrong with it, see the `if`s below.
        capacity: of the linear form.
    """

    def __init__(self, form: Form = Form.MODEL_ALL, *faults: str, capacity: int = 400) -> None:
        self.faults = set(faults)
        self.form = form
        specs = signature(CONFIG, form, twin=True, capacity=capacity if form.linear else None)
        self.inputs: Mapping[str, TensorSpec] = {spec.name: spec for spec in specs.inputs}
        self.outputs: Mapping[str, TensorSpec] = {spec.name: spec for spec in specs.outputs}
        random = np.random.default_rng(3)
        width, heads = CONFIG.hidden_size, CONFIG.num_attention_heads * CONFIG.head_dim
        self.embedding = random.normal(size=(CONFIG.vocab_size, width))
        shapes = {"q": (width, heads), "k": (width, heads), "v": (width, heads), "o": (heads, width)}
        self.weights = [
            {name: random.normal(size=shape) / shape[0] ** 0.5 * 1.5 for name, shape in shapes.items()}
            for _ in range(CONFIG.num_hidden_layers)
        ]
        if "weight" in faults:
            self.weights[1]["v"] *= 1.01

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        return None

    def run(self, feeds: Feeds) -> dict[str, Array]:
        ids, positions = feeds[INPUT_IDS], feeds[POSITION_IDS]
        hidden = self.embedding[ids]
        past = 0 if self.form.linear else feeds[past_name(0, "key")].shape[2]
        where = feeds[WRITE_INDICES] if self.form.linear else np.full(len(ids), past)
        slots = where[:, None] + np.arange(ids.shape[1])
        outputs: dict[str, Array] = {}
        for layer, weights in enumerate(self.weights):
            q, k, v = (self.heads(hidden @ weights[part]) for part in "qkv")
            if CONFIG.uses_rope[layer] != (f"rotation {layer}" in self.faults):
                q, k = rotate(q, positions), rotate(k, positions)
            keys, values = (
                self.join(feeds[past_name(layer, kind)], new, slots) for kind, new in zip(KINDS, (k, v), strict=True)
            )
            outputs |= {present_name(layer, "key"): keys, present_name(layer, "value"): values}
            hidden = hidden + self.attend(q, keys, values, self.mask(feeds, slots)) @ weights["o"]
        logits = (hidden @ self.embedding.T).astype(np.float32)
        return self.spoil({LOGITS: logits[:, -1:] if self.form.last_only else logits, **outputs}, ids, past)

    def heads(self, x: Array) -> Array:
        apart: Array = x.reshape(*x.shape[:2], -1, CONFIG.head_dim)
        return apart.swapaxes(1, 2)

    def join(self, past: Array, new: Array, slots: Array) -> Array:
        if not self.form.linear:
            return np.concatenate([past, new.astype(np.float32)], axis=2)
        for row in range(len(new)):
            past[row][:, slots[row]] = new[row]
        return past

    def mask(self, feeds: Feeds, slots: Array) -> Array:
        real = feeds[ATTENTION_MASK] > 0
        reach = slots + 1 if "wide mask" in self.faults else slots
        seen = np.arange(real.shape[1]) <= reach[..., None]
        own = np.arange(real.shape[1]) == slots[..., None]
        padded = real[:, None] if "padding is seen" not in self.faults else np.ones_like(real[:, None])
        mask: Array = seen & padded | own
        return mask[:, None]

    def attend(self, q: Array, keys: Array, values: Array, mask: Array) -> Array:
        scores = q @ keys.swapaxes(2, 3) * CONFIG.scale * (1.01 if "scale" in self.faults else 1)
        scores = np.where(mask, scores, -np.inf)
        chances = np.exp(scores - scores.max(-1, keepdims=True))
        mixed: Array = chances / chances.sum(-1, keepdims=True) @ values
        side_by_side: Array = mixed.swapaxes(1, 2).reshape(len(q), q.shape[2], -1)
        return side_by_side

    def spoil(self, outputs: dict[str, Array], ids: Array, past: int) -> dict[str, Array]:
        def swap(one: str, other: str) -> None:
            outputs[one], outputs[other] = outputs[other], outputs[one]

        if "swapped layers" in self.faults:
            swap(present_name(0, "key"), present_name(2, "key"))
        if "swapped kinds" in self.faults:
            swap(present_name(1, "key"), present_name(1, "value"))
        if "missing" in self.faults:
            del outputs[present_name(1, "value")]
        if "extra" in self.faults:
            outputs["present.3.key"] = outputs[present_name(2, "key")]
        if "shape" in self.faults:
            outputs[LOGITS] = outputs[LOGITS][..., :-1]
        if "nan" in self.faults:
            outputs[LOGITS][..., 0] = np.nan
        if "row of another" in self.faults:
            outputs[LOGITS] = outputs[LOGITS][::-1]
        if "positions in BF16" in self.faults and past > 256:
            outputs[LOGITS] = outputs[LOGITS] * 1.001
        if "pad matters" in self.faults:
            outputs[LOGITS] = outputs[LOGITS] * (1 + 1e-5 * (ids[:, :1, None] == CONFIG.vocab_size - 1))
        return outputs


def rotate(x: Array, positions: Array) -> Array:
    """Rotate halves of (B, K, S, D) by the positions (B, S)."""
    half = CONFIG.head_dim // 2
    angles = positions[:, None, :, None] * 10000.0 ** (-np.arange(half) / half)
    left, right = x[..., :half], x[..., half:]
    cos: Any = np.cos(angles)
    sin: Any = np.sin(angles)
    return np.concatenate([left * cos - right * sin, right * cos + left * sin], axis=-1)
