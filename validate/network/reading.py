"""Reads an INetworkDefinition into records, once; nothing asks TensorRT anything afterwards.

Every attribute of every layer is read, and a class with an attribute that `kinds` does not name is refused. An
attention is two layer objects around a third thing, the IAttention; it becomes one record.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator
from typing import Any

from validate.network.kinds import ATTENTION, ATTENTION_ATTRIBUTES, KINDS
from validate.network.layers import Layer, Network, TensorFacts
from validate.network.parse import Parsed


def read(parsed: Parsed) -> Network:
    """Read a parsed network.

    Raises:
        StageError: a layer of a kind, or with an attribute, that the evaluation does not know.
    """
    trt, network = parsed.trt, parsed.network
    layers = [_Reader(trt, network.get_layer(index)) for index in range(network.num_layers)]
    entries = {layer.outputs[0].name: layer for layer in layers if layer.kind == "ATTENTION_INPUT"}
    return Network(
        source=parsed.source,
        backend=parsed.backend,
        layers=tuple(layer.record(entries) for layer in layers if layer.kind != "ATTENTION_INPUT"),
        inputs=tuple(tensor_facts(network.get_input(index)) for index in range(network.num_inputs)),
        outputs=tuple(tensor_facts(network.get_output(index)) for index in range(network.num_outputs)),
        notes=parsed.notes,
    )


def tensor_facts(tensor: Any) -> TensorFacts:
    """Read name, type and axes; TensorRT names the dynamic axes of inputs as ONNX does."""
    axes = tuple(
        size if size >= 0 else (tensor.get_dimension_name(axis) or "") for axis, size in enumerate(tuple(tensor.shape))
    )
    return TensorFacts(tensor.name, tensor.dtype.name, axes)


class _Reader:
    """One layer object; its class is changed to that of its kind, which shows the kind's own attributes."""

    def __init__(self, trt: Any, layer: Any) -> None:
        self._trt, self._layer = trt, layer
        # Read before the class is changed: an activation's own `type` hides the layer's.
        self.kind: str = layer.type.name
        self.outputs = tuple(tensor_facts(layer.get_output(index)) for index in range(layer.num_outputs))
        inputs = (layer.get_input(index) for index in range(layer.num_inputs))
        self.inputs = tuple(None if tensor is None else tensor_facts(tensor) for tensor in inputs)

    def record(self, entries: dict[str, _Reader]) -> Layer:
        """Give the layer as a record; an attention's takes the inputs of its input boundary."""
        known = KINDS.get(self.kind)
        bare = Layer(self._layer.name, self.kind, self.inputs, self.outputs, {}, self._layer.metadata)
        if known is None:
            raise bare.refuse(f"kind {self.kind}", f"one of {', '.join(sorted(KINDS))}")
        if self._layer.num_ranks != 1:
            raise bare.refuse(f"num_ranks = {self._layer.num_ranks}", "num_ranks = 1")
        self._layer.__class__ = getattr(self._trt, known.class_name)
        attributes = dict(self._attributes(bare, self._layer, known.attributes))
        if self.kind != "ATTENTION_OUTPUT":
            return Layer(bare.name, self.kind, self.inputs, self.outputs, attributes, bare.origin)
        attention = self._layer.attention
        inner = dict(self._attributes(bare, attention, ATTENTION_ATTRIBUTES))
        assert self.inputs[0] is not None
        return Layer(attention.name, ATTENTION, entries[self.inputs[0].name].inputs, self.outputs, inner, bare.origin)

    def _attributes(self, bare: Layer, owner: Any, known: tuple[str, ...]) -> Iterator[tuple[str, Any]]:
        """Read every attribute of an object's class.

        Raises:
            StageError: the class has one that is not known, or lacks one that is.
        """
        owner_class: type = type(owner)
        found = _public(owner_class, self._trt.ILayer)
        if found != set(known):
            strange, absent = sorted(found - set(known)), sorted(set(known) - found)
            raise bare.refuse(f"new attributes {strange}, missing ones {absent}", f"the attributes {sorted(known)}")
        for name in known:
            if name == "normalization_quantize_to_type" and owner.normalization_quantize_scale is None:
                continue  # TensorRT logs an error for a type that is not set
            if name not in ("attention", "mask"):
                yield name, self._value(owner, name)

    def _value(self, owner: Any, name: str) -> Any:
        """Read one attribute as a plain value: enumerators by name, dimensions as tuples, weights as arrays."""
        import numpy as np

        try:
            value = getattr(owner, name)
        except RuntimeError:
            return None  # so TensorRT's Python says that an optional attribute is not set
        if isinstance(value, np.ndarray):
            return value.copy()  # its memory is the network's
        if isinstance(value, self._trt.Weights):
            return None  # of a type that Python cannot read
        if isinstance(value, self._trt.ITensor):
            return tensor_facts(value)
        if isinstance(value, self._trt.Dims | self._trt.Permutation):
            return tuple(value)
        # Enumerators tell their name and value; everything else is a Python value.
        return value.name if hasattr(value, "name") and hasattr(value, "value") else value


@functools.cache
def _public(owner: type, base: type) -> frozenset[str]:
    """Give the names of the data attributes of a class and its bases, up to ILayer."""
    classes = [cls for cls in owner.__mro__ if cls.__module__ == owner.__module__ and cls is not base]
    names = {name for cls in classes for name in vars(cls) if not name.startswith("_")}
    return frozenset(name for name in names if not callable(getattr(owner, name)))
