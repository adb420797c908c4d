"""A parsed network as plain records: what TensorRT declares, with no TensorRT object left in it.

Names of types, kinds and enumerators are TensorRT's own (`BF16`, `ELEMENTWISE`, `PROD`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from artifacts.errors import StageError, refuse

if TYPE_CHECKING:
    import torch

LABEL = "TensorRT network, evaluated on the CPU"
"""What every result of this evaluation is called; it is not an engine's result."""


@dataclass(frozen=True)
class TensorFacts:
    """One tensor as the network declares it.

    Attributes:
        dtype: TensorRT's name of the element type.
        axes: a number for every fixed axis, the axis' name (or "") for a dynamic one.
    """

    name: str
    dtype: str
    axes: tuple[int | str, ...]


@dataclass(frozen=True)
class Layer:
    """One layer: its kind, its tensors (None where an optional input is absent) and its attributes.

    Attributes:
        origin: the ONNX node that it was made from, where TensorRT says so.
    """

    name: str
    kind: str
    inputs: tuple[TensorFacts | None, ...]
    outputs: tuple[TensorFacts, ...]
    attributes: Mapping[str, Any]
    origin: str = ""

    def has(self, index: int) -> bool:
        """Whether an optional input is there."""
        return index < len(self.inputs) and self.inputs[index] is not None

    def unknown(self, attribute: str, known: str = "") -> StageError:
        """Refuse an attribute's value whose meaning the evaluation does not know."""
        return self.refuse(f"{attribute} = {self.attributes.get(attribute)!r}", known)

    def refuse(self, found: str, known: str = "") -> StageError:
        """Refuse this layer, by its name and kind, for what it is or for the values that reached it."""
        return refuse(
            f"layer {self.name!r} of kind {self.kind} cannot be evaluated on the CPU",
            expected=known or "a layer whose meaning this evaluation knows",
            found=found + (f" (made from {self.origin})" if self.origin else ""),
            remedy='read docs/network.md, "What it refuses", and change the graph or what is fed',
        )


@dataclass(frozen=True)
class Network:
    """A whole network, as TensorRT's parser made it of one ONNX file.

    Attributes:
        layers: in TensorRT's own order, which is not the order of evaluation.
        backend: the library that parsed it, with its version.
        notes: the warnings that the parser gave.
    """

    source: Path
    backend: str
    layers: tuple[Layer, ...]
    inputs: tuple[TensorFacts, ...]
    outputs: tuple[TensorFacts, ...]
    notes: tuple[str, ...] = ()


def torch_type(name: str) -> torch.dtype:
    """Give torch's type for TensorRT's; INT4 is carried one value a byte in int8.

    Raises:
        StageError: the evaluation has no arithmetic for that type.
    """
    import torch

    known = {
        "FLOAT": torch.float32,
        "HALF": torch.float16,
        "BF16": torch.bfloat16,
        "INT8": torch.int8,
        "UINT8": torch.uint8,
        "INT32": torch.int32,
        "INT64": torch.int64,
        "BOOL": torch.bool,
        "FP8": torch.float8_e4m3fn,
        "INT4": torch.int8,
    }
    if name not in known:
        raise refuse("a tensor's type cannot be evaluated on the CPU", expected=f"one of {sorted(known)}", found=name)
    return known[name]
