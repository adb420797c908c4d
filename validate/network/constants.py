"""Constants whose values TensorRT's Python does not give: their bits come from the ONNX file, memory-mapped.

A constant layer bears the name of the ONNX initializer that it was made from (or of a `Constant` node's output). For
BF16, FP8 and INT4 `IConstantLayer.weights` tells only type and count; the values are those of that initializer.
External data is mapped, not read: a weight costs memory only when it is used, and then only the page cache's.
"""

from __future__ import annotations

import math
from pathlib import Path
from typing import TYPE_CHECKING, Any

from artifacts.errors import refuse
from validate.network.layers import Layer, torch_type

if TYPE_CHECKING:
    import onnx
    import torch

ELEMENT_TYPES = {"BF16": "BFLOAT16", "FP8": "FLOAT8E4M3FN", "INT4": "INT4"}
"""TensorRT's name of a type and ONNX's, for the types that have to be read from the ONNX file."""


class Initializers:
    """The initializers of one ONNX file, by name; tensors share the mapped data file's memory."""

    def __init__(self, source: Path) -> None:
        import onnx

        self._folder = source.parent
        model = onnx.load(str(source), load_external_data=False)
        self._tensors = {tensor.name: tensor for tensor in model.graph.initializer}
        for node in model.graph.node:
            if node.op_type == "Constant" and node.attribute[0].name == "value":
                self._tensors[node.output[0]] = node.attribute[0].t
        self._maps: dict[Path, Any] = {}

    def tensor(self, layer: Layer) -> torch.Tensor:
        """Give the values of one constant layer, in the type and shape that it declares.

        Raises:
            StageError: no initializer of that name, or one of another type or shape.
        """
        import torch

        declared = layer.outputs[0]
        found = self._tensors.get(layer.name)
        if found is None:
            raise layer.refuse(
                f"a constant of type {declared.dtype} that is named after no initializer",
                "BF16, FP8 and INT4 constants that bear the name of an initializer of the ONNX file",
            )
        self._check(layer, found)
        bits = torch.from_numpy(self._bits(found))
        if declared.dtype == "INT4":
            return _unpacked(bits, declared.axes)
        return bits.view(torch_type(declared.dtype)).reshape([int(axis) for axis in declared.axes])

    def release(self) -> None:
        """Let go of pages that were read so far; they are read again from the file where they are used again."""
        import mmap

        for array in self._maps.values():
            array._mmap.madvise(mmap.MADV_DONTNEED)

    def _check(self, layer: Layer, found: onnx.TensorProto) -> None:
        import onnx

        declared = layer.outputs[0]
        dtype = onnx.TensorProto.DataType.Name(found.data_type)
        if ELEMENT_TYPES.get(declared.dtype) != dtype or declared.axes != tuple(found.dims):
            raise layer.refuse(
                f"the initializer is {dtype} {tuple(found.dims)}", f"one that is {declared.dtype} {declared.axes}"
            )

    def _bits(self, found: onnx.TensorProto) -> Any:
        """Give the bytes of an initializer as a flat uint8 array; a view of the mapped file if it is external."""
        import numpy as np
        import onnx

        if found.data_location != onnx.TensorProto.EXTERNAL:
            array = np.frombuffer(found.raw_data, np.uint8) if found.raw_data else _from_fields(found)
            return array.copy()
        place = {entry.key: entry.value for entry in found.external_data}
        offset = int(place.get("offset", 0))
        data = self._mapped(place["location"])
        length = int(place.get("length", len(data) - offset))
        if offset + length > len(data):
            raise refuse(
                f"the data file of {found.name!r} is too short",
                expected=f"{offset + length} bytes",
                found=f"{len(data)} bytes in {place['location']}",
                remedy="make the graphs again (make export surgery)",
            )
        return data[offset : offset + length]

    def _mapped(self, location: str) -> Any:
        """Map a data file; writes would go to private copies of its pages, never to the file."""
        import numpy as np

        path = self._folder / location
        if path.resolve().parent != self._folder.resolve():
            raise refuse("a data file lies outside its graph's folder", expected=f"{self._folder}", found=location)
        if path not in self._maps:
            if not path.is_file():
                raise refuse(f"{path} is missing", expected="the graph's data file", remedy="make export surgery")
            self._maps[path] = np.memmap(path, np.uint8, mode="c")
        return self._maps[path]


def _from_fields(found: onnx.TensorProto) -> Any:
    """Give the bytes of a tensor that spells its bits in `int32_data`, an element (or an INT4 pair) an entry."""
    import numpy as np
    import onnx

    width = np.uint16 if found.data_type == onnx.TensorProto.BFLOAT16 else np.uint8
    return np.asarray(found.int32_data).astype(width).view(np.uint8)


def _unpacked(bits: torch.Tensor, axes: tuple[int | str, ...]) -> torch.Tensor:
    """Spread INT4 over int8: ONNX packs two values a byte, the first in the low half, in two's complement."""
    import torch

    shape = [int(axis) for axis in axes]
    halves = torch.stack((bits & 15, bits >> 4), dim=-1).flatten()[: math.prod(shape)].to(torch.int8)
    return torch.where(halves > 7, halves - 16, halves).reshape(shape)
