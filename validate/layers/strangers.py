"""Tensors that a graph must not have: a rotation in a layer that does not rotate."""

from __future__ import annotations

from collections.abc import Collection

from artifacts import names
from artifacts.config import ModelConfig


def rotations(config: ModelConfig) -> dict[str, int]:
    """Give the rotations that NoPE layers would have, each with its layer."""
    parts = (names.Q_ROTARY, names.K_ROTARY)
    return {names.layer(layer, part): layer for layer in config.nope_layers for part in parts}


def strangers(config: ModelConfig, found: Collection[str], label: str) -> list[str]:
    """Name every rotation of a NoPE layer among a graph's tensors."""
    return [
        f"{label}: {name} is there, but config.json says that layer {layer} does not rotate"
        for name, layer in rotations(config).items()
        if name in found
    ]
