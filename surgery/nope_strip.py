"""NoPE layers lose whatever rotates their q or k; RoPE layers must have a rotation.

::

    before   q ─► rotation ─► scores            after   q ─► scores
    before   GroupQueryAttention(do_rotary=1, tables)   after   GroupQueryAttention(do_rotary=0)

Which layers are NoPE is the config's word (`no_rope_layers`). A Transformers export has nothing to strip; other tools
rotate every layer, and the text that such a model writes looks fluent. What lies between a projection and the
attention and is neither layout nor scaling nor a known rotation is a miss: nothing is left in because it was not known.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

import onnx_graphsurgeon as gs

from surgery.fusion import Pass
from surgery.layers import FUSED, Entry, entry
from surgery.rotation import Rotation, find_rotation
from surgery.subject import Subject, redirect
from surgery.walk import Walk, attribute, operator

_TABLES = {"GroupQueryAttention": (7, 8)}
"""Inputs of a fused node that hold its rotary tables."""


@dataclass(frozen=True)
class Site:
    """q or k of one layer, and what rotates it: a rotation, a flag of the fused node, or nothing."""

    layer: int
    which: Literal["q", "k"]
    rotation: Rotation | None
    flagged: gs.Node | None


def anchors(subject: Subject) -> Iterator[tuple[str, tuple[int, Literal["q", "k"]]]]:
    """Give q and k of every layer."""
    for layer in range(subject.config.num_hidden_layers):
        yield f"layer {layer}'s q", (layer, "q")
        yield f"layer {layer}'s k", (layer, "k")


def match(walk: Walk, place: tuple[int, Literal["q", "k"]], subject: Subject) -> Site:
    """Find what rotates q or k of a layer; a RoPE layer without it is a miss."""
    layer, which = place
    found: Entry = entry(walk, subject, layer)
    rotation = find_rotation(walk, getattr(found, which))
    flagged = found.node if found.node.op in FUSED and attribute(found.node, "do_rotary", 0) else None
    if subject.config.uses_rope[layer]:
        rotated = rotation is not None or flagged is not None
        walk.insist(rotated, f"layer {layer} has RoPE, by the config's no_rope_layers, but nothing rotates its {which}")
    return Site(layer, which, rotation, flagged)


def rewrite(site: Site, subject: Subject) -> None:
    """Take the rotation out of a NoPE layer; leave a RoPE layer as it is."""
    if subject.config.uses_rope[site.layer]:
        return
    forms = []
    if site.rotation is not None:
        redirect(site.rotation.result, site.rotation.x)
        forms.append(site.rotation.form)
    if site.flagged is not None and attribute(site.flagged, "do_rotary", 0):
        forms.append(f"{operator(site.flagged)} with do_rotary=1")
        site.flagged.attrs["do_rotary"] = 0
        for position in _TABLES.get(site.flagged.op, ()):
            if position < len(site.flagged.inputs):
                site.flagged.inputs[position] = gs.Variable.empty()
    subject.stripped.extend(f"layer {site.layer}'s {site.which}: {form}" for form in forms)


NOPE_STRIP = Pass(
    "NoPE layers without rotation", anchors, match, rewrite, expected=lambda config: 2 * config.num_hidden_layers
)
