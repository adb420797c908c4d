"""The tensor contract: names, types and axes that every graph, plan and session keeps, spelled nowhere else.

The names are those of the hub's ONNX repositories, so that ONNX Runtime's users and transformers.js know them.
Dimension letters: B batch, S new tokens (sequence), P past tokens, T = P + S, C capacity of the linear cache,
H query heads, K key/value heads, D head_dim, V vocabulary.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from artifacts.config import ModelConfig

INPUT_IDS = "input_ids"
ATTENTION_MASK = "attention_mask"
POSITION_IDS = "position_ids"
WRITE_INDICES = "write_indices"
LOGITS = "logits"

BATCH = "batch"
SEQUENCE = "sequence"
PAST = "past_sequence"
TOTAL = "total_sequence"

OPSET = 24
"""Opset of the fused graphs; the first with `TensorScatter`."""

Axis = str | int
"""A symbolic axis by its contract name, or a number."""

Kind = Literal["key", "value"]
KINDS: tuple[Kind, Kind] = ("key", "value")


def past_name(layer: int, kind: Kind) -> str:
    """Name of the cache input of one layer."""
    return f"past_key_values.{layer}.{kind}"


def present_name(layer: int, kind: Kind) -> str:
    """Name of the cache output of one layer."""
    return f"present.{layer}.{kind}"


class Form(Enum):
    """The four graphs of a model; each also has an FP32 twin. The value is the file's stem."""

    EXPORT = "export"
    MODEL = "model"
    MODEL_LINEAR = "model_linear"
    MODEL_ALL = "model_all"

    @property
    def linear(self) -> bool:
        """Whether the cache is a buffer of fixed capacity, written in place."""
        return self is Form.MODEL_LINEAR

    @property
    def last_only(self) -> bool:
        """Whether logits are those of the last position only, (B, 1, V)."""
        return self in (Form.MODEL, Form.MODEL_LINEAR)

    def file_name(self, *, twin: bool = False) -> str:
        """Name of the graph's file in `onnx/`."""
        return f"{self.value}{'_fp32' if twin else ''}.onnx"


class Precision(Enum):
    """Element types that a tensor of the contract may have, by the names that numpy and ml_dtypes use."""

    BF16 = "bfloat16"
    FP32 = "float32"
    INT64 = "int64"


@dataclass(frozen=True)
class TensorSpec:
    """One input or output of a graph: its name, element type and axes."""

    name: str
    precision: Precision
    axes: tuple[Axis, ...]


@dataclass(frozen=True)
class Signature:
    """All inputs and outputs of one form of the graph, in order."""

    inputs: tuple[TensorSpec, ...]
    outputs: tuple[TensorSpec, ...]

    def __iter__(self) -> Iterator[TensorSpec]:
        yield from self.inputs
        yield from self.outputs


def signature(config: ModelConfig, form: Form, *, twin: bool = False, capacity: int | None = None) -> Signature:
    """Give the contract of one form for one model.

    Args:
        config: the model's facts.
        form: which of the four graphs.
        twin: whether it is the FP32 twin, whose cache and logits are FP32.
        capacity: C, for the linear form only.

    Raises:
        ValueError: a capacity where there is none, or none where there must be one.
    """
    if form.linear != (capacity is not None):
        raise ValueError(f"capacity={capacity} does not go with {form}")
    cache_type = Precision.FP32 if twin else Precision.BF16
    logits_type = cache_type if form is Form.EXPORT else Precision.FP32
    past_axis: Axis = PAST if capacity is None else capacity
    total_axis: Axis = TOTAL if capacity is None else capacity

    def cache(name: str, length: Axis) -> TensorSpec:
        return TensorSpec(name, cache_type, (BATCH, config.num_key_value_heads, length, config.head_dim))

    layers = range(config.num_hidden_layers)
    inputs = [
        TensorSpec(INPUT_IDS, Precision.INT64, (BATCH, SEQUENCE)),
        TensorSpec(ATTENTION_MASK, Precision.INT64, (BATCH, total_axis)),
        TensorSpec(POSITION_IDS, Precision.INT64, (BATCH, SEQUENCE)),
    ]
    if form.linear:
        inputs.append(TensorSpec(WRITE_INDICES, Precision.INT64, (BATCH,)))
    inputs += [cache(past_name(layer, kind), past_axis) for layer in layers for kind in KINDS]
    positions: Axis = 1 if form.last_only else SEQUENCE
    outputs = [TensorSpec(LOGITS, logits_type, (BATCH, positions, config.vocab_size))]
    outputs += [cache(present_name(layer, kind), total_axis) for layer in layers for kind in KINDS]
    return Signature(tuple(inputs), tuple(outputs))
