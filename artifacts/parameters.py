"""The parameters of a SmolLM3 model by name and shape, as Transformers has them and as the graph stores them.

Dimension letters: V vocabulary, E hidden size, F inner size of the MLP, Q = query heads · head_dim,
G = key/value heads · head_dim. A linear layer's weight is (out, in) in the checkpoint and (in, out) in the graph.
"""

from __future__ import annotations

from collections.abc import Iterator

from artifacts import names
from artifacts.config import ModelConfig

FINAL_NORM_WEIGHT = f"{names.FINAL_NORM}.weight"


def parameter_shapes(config: ModelConfig) -> dict[str, tuple[int, ...]]:
    """Give every parameter's shape in the checkpoint, in the order of the model; a tied head is not among them."""
    return dict(_shapes(config))


def is_linear(name: str) -> bool:
    """Whether a parameter is a linear layer's weight, which the graph stores transposed."""
    return name == names.HEAD_WEIGHT or name.endswith("_proj.weight")


def stored_shape(name: str, shape: tuple[int, ...]) -> tuple[int, ...]:
    """Give the shape that a parameter has in `model.onnx_data`: (in, out) for a linear weight, else as it is."""
    return shape[::-1] if is_linear(name) else shape


def _shapes(config: ModelConfig) -> Iterator[tuple[str, tuple[int, ...]]]:
    width, inner = config.hidden_size, config.intermediate_size
    queries, keys = config.num_attention_heads * config.head_dim, config.num_key_value_heads * config.head_dim
    yield names.EMBEDDING_WEIGHT, (config.vocab_size, width)
    parts = {
        names.NORM: (width,),
        names.Q_PROJ: (queries, width),
        names.K_PROJ: (keys, width),
        names.V_PROJ: (keys, width),
        names.O_PROJ: (width, queries),
        names.POST_NORM: (width,),
        names.GATE_PROJ: (inner, width),
        names.UP_PROJ: (inner, width),
        names.DOWN_PROJ: (width, inner),
    }
    for layer in range(config.num_hidden_layers):
        for part, shape in parts.items():
            yield names.layer(layer, f"{part}.weight"), shape
    yield FINAL_NORM_WEIGHT, (width,)
    if not config.tie_word_embeddings:
        yield names.HEAD_WEIGHT, (config.vocab_size, width)
