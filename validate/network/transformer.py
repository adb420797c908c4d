"""Layers that belong to transformers: attention, rotary embedding, cache update.

Sources: NVIDIA TensorRT operators documentation, pages Attention, RotaryEmbedding, KVCacheUpdate
(https://docs.nvidia.com/deeplearning/tensorrt/latest/_static/operators/).

One decision is ours: scores and softmax are FP32, and the probabilities are rounded to the value's type before they
meet the values. A fused kernel may round elsewhere; that is what a run on a GPU is for.

B batch, H query heads, K key/value heads, G = H / K, S new tokens, T all tokens, D head_dim, R rotated part of D.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from validate.network.layers import Layer
from validate.network.operation import Operation

if TYPE_CHECKING:
    import torch

PLAIN = {
    "query_form": "PADDED_BHND",
    "key_value_form": "PADDED_BHND",
    "query_lengths": None,
    "key_value_lengths": None,
    "normalization_quantize_scale": None,
    "num_ranks": 1,
    "norm_op": "SOFTMAX",
}
"""Attributes of an attention that the evaluation knows in one value only."""


def attention(layer: Layer) -> Operation:
    """softmax(q kᵀ + mask) v, with query heads in groups that share a key and value head; scaling is not part of it.

    A bool mask lets a query see where it is true; another one is added to the scores. `causal_kind` is none, or aligns
    the diagonal to the upper left: the parser makes no other. A row that sees nothing is NaN, as the formula has it.
    """
    import torch

    for name, value in PLAIN.items():
        if layer.attributes[name] != value:
            raise layer.unknown(name, f"{name} = {value!r}")
    causal = layer.attributes["causal_kind"]
    if causal not in ("NONE", "UPPER_LEFT"):
        raise layer.unknown("causal_kind", "NONE or UPPER_LEFT")

    def attend(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, mask: torch.Tensor | None = None) -> torch.Tensor:
        (b, h, s, d), (groups, t) = q.shape, k.shape[1:3]
        scores = torch.matmul(q.reshape(b, groups, h // groups * s, d).float(), k.float().mT).view(b, h, s, t)
        if mask is not None:
            scores = _masked(scores, mask)
        if causal == "UPPER_LEFT":
            scores = scores.masked_fill(~torch.ones(s, t, dtype=torch.bool).tril(), -torch.inf)
        rounded = torch.softmax(scores, -1).to(v.dtype).float().view(b, groups, h // groups * s, t)
        return torch.matmul(rounded, v.float()).to(v.dtype).view(b, h, s, v.shape[3])

    return attend


def _masked(scores: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
    """Apply a mask that broadcasts to (B, H, S, T)."""
    import torch

    return scores.masked_fill(~mask, -torch.inf) if mask.dtype is torch.bool else scores + mask.float()


def rotary_embedding(layer: Layer) -> Operation:
    """Pairs of elements turned by angles from tables: (a, b) → (a cos − b sin, a sin + b cos).

    Pairs are the two halves of the rotated part, or neighbours where `interleaved`. With position ids (B, S) the
    tables are (positions, R/2); without, (B, S, R/2). Computed in FP32, rounded once to the layer's type.
    """
    import torch

    interleaved = bool(layer.attributes["interleaved"])
    width = layer.attributes["rotary_embedding_dim"]

    def turn(
        x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor, positions: torch.Tensor | None = None
    ) -> torch.Tensor:
        if positions is not None:
            cos, sin = (_rows_of_table(layer, table, positions) for table in (cos, sin))
        cos, sin = cos.unsqueeze(1).float(), sin.unsqueeze(1).float()
        rotated = (x[..., :width] if width else x).float()
        if interleaved:
            a, b = rotated[..., 0::2], rotated[..., 1::2]
        else:
            a, b = rotated.chunk(2, -1)
        pair = (a * cos - b * sin, a * sin + b * cos)
        turned = (torch.stack(pair, -1).flatten(-2) if interleaved else torch.cat(pair, -1)).to(x.dtype)
        return torch.cat((turned, x[..., width:]), -1) if width and width < x.shape[-1] else turned

    return turn


def _rows_of_table(layer: Layer, table: torch.Tensor, positions: torch.Tensor) -> torch.Tensor:
    """Give a table's row for each position."""
    try:
        return table.index_select(0, positions.reshape(-1)).view(*positions.shape, table.shape[1])
    except IndexError:
        least, most = (int(bound) for bound in positions.aminmax())
        rows = f"positions from 0 to {table.shape[0] - 1}, its table's rows"
        raise layer.refuse(f"positions from {least} to {most}", rows) from None


def cache_update(layer: Layer) -> Operation:
    """New rows written into the cache that was fed, in place: output[i, :, write_indices[i] + s] = update[i, :, s].

    The output is the cache itself, as TensorRT demands one address for both. Writing past the end, which an engine
    ignores in silence, is refused.
    """
    known: dict[str, Any] = {"cache_mode": "LINEAR", "update_form": "PADDED_BHND", "update_lengths": None}
    for name, value in known.items():
        if layer.attributes[name] != value:
            raise layer.unknown(name, f"{name} = {value!r}")

    def write(cache: torch.Tensor, update: torch.Tensor, indices: torch.Tensor) -> torch.Tensor:
        new, capacity = update.shape[2], cache.shape[2]
        for row, start in enumerate(indices.tolist()):
            if start < 0 or start + new > capacity:
                raise layer.refuse(f"row {row} writes {start} … {start + new - 1}", f"slots 0 … {capacity - 1}")
            cache[row, :, start : start + new] = update[row]
        return cache

    return write
