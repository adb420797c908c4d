"""Scores, softmax and their product with v become one `Attention` (opset 23), with K key/value heads and no repeats.

::

    before   q ──────────────────────────────► MatMul ─► Mul scale ─► Add mask ─► Softmax ─► MatMul ─► o
             present.key ─► Unsqueeze ─► Expand ─► Reshape ─► Transpose ─┘                    │
             present.value ─► Unsqueeze ─► Expand ─► Reshape ─────────────────────────────────┘
    after    q ─► Cast(FP32) ─► Mul scale ─► Cast(BF16) ─► Attention(present.key, present.value, mask; scale 1.0) ─► o

q is scaled once, in FP32, and rounded once. `Attention.scale` stays 1.0: TensorRT multiplies q and k by sqrt(scale) in
their own type, and BF16's sqrt(0.0884) makes every score 0.29 % too small. The scale is the config's; the graph's own,
rounded, must agree with it to a BF16 rounding. The cache is joined outside: with more than one output TensorRT refuses
the node. All layers take the one mask that `mask.py` makes.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import onnx_graphsurgeon as gs

from artifacts.contract import ATTENTION_MASK, KINDS, Kind, past_name, present_name
from surgery.fusion import Pass
from surgery.layers import FUSED, entry
from surgery.rotation import reaches
from surgery.subject import BF16, BOOL, FP32, Subject
from surgery.walk import Walk, attribute, constant, operator

_BF16_ROUNDING = 2.0**-7
"""Two factors of BF16 may be off by 2⁻⁸ each."""


@dataclass(frozen=True)
class Product:
    """One layer's attention: q (B, H, S, D) before scaling, keys and values (B, K, T, D), result (B, H, S, D)."""

    layer: int
    q: gs.Tensor
    keys: gs.Tensor
    values: gs.Tensor
    result: gs.Tensor


def anchors(subject: Subject) -> Iterator[tuple[str, int]]:
    """Give every layer."""
    return ((f"layer {index}", index) for index in range(subject.config.num_hidden_layers))


def match(walk: Walk, index: int, subject: Subject) -> Product:
    """Take one layer's attention apart."""
    scores = entry(walk, subject, index).node
    walk.insist(scores.op not in FUSED, f"{operator(scores)} is fused already, in a form that is not carried")
    keys, values = (_cache(walk, subject, index, kind) for kind in KINDS)
    q, scale = _scaled(walk, scores.inputs[0])
    transposed, key_scale = _scaled(walk, scores.inputs[1])
    turned = walk.back(transposed, "Transpose")
    walk.insist(attribute(turned, "perm", None) == [0, 1, 3, 2], f"{turned.name} should turn the last two axes")
    _repeats(walk, turned.inputs[0], keys, subject)
    masked, score_scale = _to_mask(walk, scores.outputs[0], subject)
    scale *= key_scale * score_scale
    wanted = subject.config.scale
    walk.insist(
        math.isclose(scale, wanted, rel_tol=_BF16_ROUNDING), f"the scale should be the config's {wanted}, not {scale}"
    )
    return Product(index, q, keys, values, _weighted(walk, masked, values, subject))


def _cache(walk: Walk, subject: Subject, index: int, kind: Kind) -> gs.Tensor:
    """Give the joined cache: past and new, in this order, along the slots, and the graph's output."""
    past, present = subject.input(past_name(index, kind)), subject.output(present_name(index, kind))
    join = walk.back(present, "Concat")
    walk.insist(attribute(join, "axis", None) in (2, -2), f"{join.name} should join along axis 2")
    walk.insist(join.inputs[0] is past, f"{join.name} should put the past first")
    return present


def _scaled(walk: Walk, tensor: gs.Tensor) -> tuple[gs.Tensor, float]:
    """Give what a tensor is before it is scaled, and by what."""
    if tensor.inputs and tensor.inputs[0].op == "Mul":
        return walk.split_scalar(tensor.inputs[0])
    return tensor, 1.0


def _repeats(walk: Walk, tensor: gs.Tensor, cache: gs.Tensor, subject: Subject) -> None:
    """Insist that a tensor is the cache with each head repeated for its group of queries, head by head."""
    if subject.config.group_size == 1 and tensor is cache:
        return
    reshape = walk.back(tensor, "Reshape")
    expand = walk.back(reshape.inputs[0], "Expand")
    unsqueeze = walk.back(expand.inputs[0], "Unsqueeze")
    axes = walk.constant(unsqueeze.inputs[1])
    walk.insist(axes == [2], f"{unsqueeze.name} should repeat each head in place (axis 2), not along {axes}")
    walk.insist(unsqueeze.inputs[0] is cache, f"{unsqueeze.name} should repeat {cache.name}")


def _to_mask(walk: Walk, scores: gs.Tensor, subject: Subject) -> tuple[gs.Tensor, float]:
    """Follow the scores through scaling to where the mask was added."""
    node, scale = walk.forward(scores, "Mul", "Div", "Add"), 1.0
    if node.op != "Add":
        tensor, factor = walk.split_scalar(node)
        walk.insist(tensor is scores, f"{node.name} should scale {scores.name}")
        scale = factor if node.op == "Mul" else 1 / factor
        scores = node.outputs[0]
        node = walk.forward(scores, "Add")
    mask = walk.operands(node, scores)
    walk.insist(constant(mask) is None, f"{mask.name}, added to the scores, should be a mask")
    made = reaches(mask, subject.input(ATTENTION_MASK))
    walk.insist(made, f"the mask {mask.name} should be made of {ATTENTION_MASK}")
    return node.outputs[0], scale


def _weighted(walk: Walk, masked: gs.Tensor, values: gs.Tensor, subject: Subject) -> gs.Tensor:
    """Follow masked scores through the softmax to the product with v."""
    node = walk.forward(masked, "Cast", "Softmax")
    if node.op == "Cast":
        node = walk.forward(node.outputs[0], "Softmax")
    walk.insist(attribute(node, "axis", -1) in (-1, 3), f"{node.name} should run over the last axis")
    product = walk.forward(node.outputs[0], "Cast", "MatMul")
    if product.op == "Cast":
        product = walk.forward(product.outputs[0], "MatMul")
    _repeats(walk, product.inputs[1], values, subject)
    return product.outputs[0]


def rewrite(product: Product, subject: Subject) -> None:
    """Scale q and put `Attention` in place."""
    # The naming pass gives the lasting names; these are like no exporter's, whose nodes are still there.
    path, shape = f"fused/{product.layer}", product.q.shape
    # Four axes like q's: the parser puts a reshape behind a scalar, in every layer.
    scale = gs.Constant("attention.scale", np.full((1, 1, 1, 1), subject.config.scale, np.float32))
    wide = subject.emit("Cast", [product.q], f"{path}/wide", dtype=FP32, shape=shape, to=1)
    scaled = subject.emit("Mul", [wide, scale], f"{path}/scaled", dtype=FP32, shape=shape)
    q = subject.emit("Cast", [scaled], f"{path}/q", dtype=BF16, shape=shape, to=BF16)
    mask = gs.Variable("fused/mask", dtype=BOOL)
    subject.emit("Attention", [q, product.keys, product.values, mask], product.result, scale=1.0)


ATTENTION = Pass("Attention", anchors, match, rewrite, expected=lambda config: config.num_hidden_layers)
