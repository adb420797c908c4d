"""Tensors that a graph must not have: a rotation in a layer that does not rotate."""

from __future__ import annotations

from collections.abc import Collection

from artifacts import names
from artifacts.config import ModelConfig


def strangers(config: ModelConfig, found: Collection[str], label: str) -> list[str]:
    """Name every rotation of a NoPE layer among a graph's tensors."""
    return [
        f"{label}: {name} is there, but config.json says that layer {layer} does not rotate"
        for layer in config.nope_layers
        for part in (names.Q_ROTARY, names.K_ROTARY)
        if (name := names.layer(layer, part)) in found
    ]
