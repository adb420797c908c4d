"""Where the weights begin: drawn at random, but for one circuit that is laid out by hand, so that training has a start.

Models find out how to look something up in their context after long plateaus, hundreds of times more tokens than two
cores read in an hour. So the heads of two layers begin as what training would find (Olsson and others, "In-context
Learning and Induction Heads", 2022), each part of the residual stream with its own meaning::

    layer 0 (RoPE)  heads 0, 1, 2 look 1, 2 and 3 tokens back, and write what stands there into parts of their own
    layer 3 (NoPE)  its heads look for the place before which the same tokens stand, and say what stands there

Everything else is random, and all of it is trained on.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import torch
from torch import Tensor
from torch.nn.functional import normalize

if TYPE_CHECKING:
    from transformers import SmolLM3ForCausalLM

LOOKS_BACK, MATCHES = 0, 3
"""Layers of the circuit: one that rotates, and the first that does not."""
_CONSTANT, _WORD, _SHADOW = 8, 48, 24
"""Widths in the residual stream: of what is the same for every token, of the word, and of what is kept of another."""
_CONSTANT_PART = slice(0, _CONSTANT)
"""What a head that looks at places only looks at."""
_WORD_PART = slice(_CONSTANT, _CONSTANT + _WORD)
_PARTS = tuple(
    slice(_WORD_PART.stop + _SHADOW * number, _WORD_PART.stop + _SHADOW * (number + 1)) for number in range(3)
)
"""What stood 1, 2 and 3 tokens ago."""
_LAST = 8
"""Dimensions of a head of the second layer that compare the last token; the others compare an earlier one."""
_FREQUENCIES = 8
"""Pairs of dimensions, the fastest first, that tell places apart."""
_PLACE, _NEAR, _FAR, _LOUDNESS = 14.0, 1.7, 1.4, 2.0
"""How sharply heads look at places, at the last token and at the one before; how loud the word is that they find."""


@torch.no_grad()
def lay_out(model: SmolLM3ForCausalLM) -> None:
    """Put the circuit into a freshly drawn model."""
    config = model.config
    for layer in model.model.layers:
        # What a layer adds begins as nothing, so that nothing drowns the circuit.
        layer.self_attn.o_proj.weight.zero_()
        layer.mlp.down_proj.weight.zero_()
    table = model.model.embed_tokens.weight
    table.zero_()
    table[:, _CONSTANT_PART] = 1.0
    # Words of one length leave the constant part equally loud beside each, once it is normalised.
    table[:, _WORD_PART] = _WORD**0.5 * normalize(torch.randn(table.shape[0], _WORD))
    table *= config.initializer_range / table.std()
    shadow = _directions(_SHADOW, _WORD)
    _look_back(model, shadow)
    _match(model, shadow)


def _directions(count: int, size: int) -> Tensor:
    """Draw directions that are orthogonal to each other (count, size)."""
    orthogonal: Tensor = torch.linalg.qr(torch.randn(size, count)).Q
    return orthogonal.T


def _heads(model: SmolLM3ForCausalLM, layer: int) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Give a layer's weights by head: q, k and v (heads, head_dim, hidden), and o (hidden, heads, head_dim)."""
    attention, size = model.model.layers[layer].self_attn, model.config.head_dim
    queries, keys, values = (
        projection.weight.view(-1, size, model.config.hidden_size)
        for projection in (attention.q_proj, attention.k_proj, attention.v_proj)
    )
    return queries, keys, values, attention.o_proj.weight.view(model.config.hidden_size, -1, size)


def _look_back(model: SmolLM3ForCausalLM, shadow: Tensor) -> None:
    """Heads 0, 1, 2 of the first layer look 1, 2, 3 tokens back, whatever stands there.

    Args:
        model: the model.
        shadow: what of a word is written into the parts (_SHADOW, _WORD).
    """
    queries, keys, values, out = _heads(model, LOOKS_BACK)
    size = model.config.head_dim
    base = model.config.rope_parameters["rope_theta"]
    angles = base ** (-torch.arange(_FREQUENCIES) * 2 / size)
    strength = math.sqrt(_PLACE * math.sqrt(size) / _FREQUENCIES) / _CONSTANT
    keys.zero_()
    keys[:, :_FREQUENCIES, _CONSTANT_PART] = strength
    values.zero_()
    values[:, :_SHADOW, _WORD_PART] = shadow
    for head, part in enumerate(_PARTS):
        turned = -(head + 1) * angles
        queries[head].zero_()
        queries[head, :_FREQUENCIES, _CONSTANT_PART] = strength * turned.cos()[:, None]
        queries[head, size // 2 : size // 2 + _FREQUENCIES, _CONSTANT_PART] = strength * turned.sin()[:, None]
        out[part, head, :_SHADOW] = torch.eye(_SHADOW) * model.config.initializer_range


def _match(model: SmolLM3ForCausalLM, shadow: Tensor) -> None:
    """Heads of the first layer without RoPE look for a place like this one, and say what stands there.

    Those of the first group compare the last token and the one before, those of the second the last and the third.

    Args:
        model: the model.
        shadow: what of a word stands in the parts (_SHADOW, _WORD).
    """
    queries, keys, values, out = _heads(model, MATCHES)
    size = model.config.head_dim
    for weight in (queries, keys, values):
        weight.zero_()
    group = queries.shape[0] // keys.shape[0]
    for number in range(keys.shape[0]):
        near, word = _NEAR * _directions(_LAST, _SHADOW), _directions(size, _WORD)
        before, now = _PARTS[1 + number], _PARTS[number]
        keys[number, :_LAST, _PARTS[0]] = near
        keys[number, _LAST:, before] = _FAR * torch.eye(_SHADOW)
        values[number][:, _WORD_PART] = word
        for head in range(number * group, (number + 1) * group):
            queries[head, :_LAST, _WORD_PART] = near @ shadow
            queries[head, _LAST:, now] = _FAR * torch.eye(_SHADOW)
            out[_WORD_PART, head] = word.T * _LOUDNESS * model.config.initializer_range
