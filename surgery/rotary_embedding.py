"""The rotation of q and k becomes `RotaryEmbedding` (opset 23) over the checkpoint's own tables.

::

    before   x ─┬─────────────────────────────► Mul ◄─ cos ◄─ Cast ◄─ Cos ◄─ angles ◄─ position_ids
                └─► Slice, Slice, Neg, Concat ─► Mul ◄─ sin ◄─ …           both Muls ─► Add
    after    x ─► RotaryEmbedding(rotary.cos, rotary.sin, position_ids)
    YaRN     x ─► Cast(FP32) ─► RotaryEmbedding(rotary.cos.fp32, rotary.sin.fp32, position_ids) ─► Cast(BF16)

The tables hold what the checkpoint's rotary module gives for every position (theta, YaRN and all), rounded as
Transformers rounds. YaRN's attention factor must not be rounded so: near position 0, and wherever an angle is slow, cos
is the factor itself, and BF16's 1.1406 for 1.1386 would make every such value of q and k 0.17 % too large. So the
tables that hold it are FP32, and what they make is rounded once. Two matches in each RoPE layer, none in a NoPE layer.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal

import onnx_graphsurgeon as gs

from artifacts.contract import POSITION_IDS
from surgery.fusion import Pass
from surgery.layers import entry
from surgery.rotation import Rotation, comes_from, find_rotation
from surgery.subject import BF16, FP32, Subject
from surgery.walk import Walk, attribute

Place = tuple[int, Literal["q", "k"]]


def anchors(subject: Subject) -> Iterator[tuple[str, Place]]:
    """Give q and k of every RoPE layer."""
    for layer in subject.config.rope_layers:
        yield f"layer {layer}'s q", (layer, "q")
        yield f"layer {layer}'s k", (layer, "k")


def match(walk: Walk, place: Place, subject: Subject) -> Rotation:
    """Find the rotation and make sure that its angles are those of the positions."""
    layer, which = place
    tensor = getattr(entry(walk, subject, layer), which)
    found = find_rotation(walk, tensor)
    walk.insist(found is not None, f"nothing rotates {tensor.name}")
    assert found is not None
    if found.cos is None or found.sin is None:
        _check_node(walk, found.result.inputs[0], subject)
    else:
        position_ids = subject.input(POSITION_IDS)
        comes_from(walk, found.cos, "Cos", position_ids)
        comes_from(walk, found.sin, "Sin", position_ids)
    return found


def _check_node(walk: Walk, node: gs.Node, subject: Subject) -> None:
    """Insist that a `RotaryEmbedding` that is there already says what ours would say."""
    walk.insist(not node.domain, f"{node.name} is {node.domain}'s RotaryEmbedding; only ONNX's own can be carried")
    dim = subject.config.head_dim
    odd = {
        name: value
        for name, right in (("interleaved", (0,)), ("num_heads", (0,)), ("rotary_embedding_dim", (0, dim)))
        if (value := attribute(node, name, 0)) not in right
    }
    walk.insist(not odd, f"{node.name} should rotate whole heads of a 4-D tensor in halves, but has {odd}")


def rewrite(rotation: Rotation, subject: Subject) -> None:
    """Put `RotaryEmbedding` over the tables in place."""
    x, result, tables = rotation.x, rotation.result, (*subject.tables, subject.input(POSITION_IDS))
    if not subject.config.rotates_in_fp32:
        subject.emit("RotaryEmbedding", [x, *tables], result, interleaved=0)
        return
    path, wide = f"fused/{result.name}", {"dtype": FP32, "shape": result.shape}
    x = subject.emit("Cast", [x], f"{path}/wide", **wide, to=1)
    turned = subject.emit("RotaryEmbedding", [x, *tables], f"{path}/turned", **wide, interleaved=0)
    subject.emit("Cast", [turned], result, to=BF16)


def unrotated(walk: Walk, tensor: gs.Tensor, subject: Subject) -> list[gs.Tensor]:
    """Step back over a rotation that this pass put in place.

    Returns:
        What the rotation passes through, from its result, which is not among them, to the tensor before it.
    """
    steps = []
    for op in ("Cast", "RotaryEmbedding", "Cast") if subject.config.rotates_in_fp32 else ("RotaryEmbedding",):
        tensor = walk.back(tensor, op).inputs[0]
        steps.append(tensor)
    return steps


ROTARY_EMBEDDING = Pass("RotaryEmbedding", anchors, match, rewrite, expected=lambda config: 2 * len(config.rope_layers))
