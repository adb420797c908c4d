"""Layers that sum over an axis: matrix product, reduction, softmax, cumulative sum.

Sources: NVIDIA TensorRT operators documentation, pages MatrixMultiply, Reduce, SoftMax, Cumulative
(https://docs.nvidia.com/deeplearning/tensorrt/latest/_static/operators/). Sums over BF16 are kept in FP32 and rounded
once, to the type that the layer declares; an engine's kernels may add in another order.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from validate.network.layers import Layer
from validate.network.operation import Operation

if TYPE_CHECKING:
    import torch


def matrix_multiply(layer: Layer) -> Operation:
    """A product of matrices, either one transposed, leading axes broadcast."""
    import torch

    for attribute in ("op0", "op1"):
        if layer.attributes[attribute] not in ("NONE", "TRANSPOSE"):
            raise layer.unknown(attribute, "NONE or TRANSPOSE")
    left, right = (layer.attributes[name] == "TRANSPOSE" for name in ("op0", "op1"))

    def multiply(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        a, b = a.mT if left else a, b.mT if right else b
        rank = b.ndim
        # A weight is parsed as (1, K, N): as a matrix it is one product for all rows, and no copy a row.
        while b.ndim > 2 and b.shape[0] == 1:
            b = b[0]
        product = torch.matmul(a, b)
        return product if product.ndim == rank else product.reshape((1,) * (rank - product.ndim) + product.shape)

    return multiply


def reduce(layer: Layer) -> Operation:
    """SUM, AVG, MAX or MIN over the axes of a bit mask, which stay with length 1 where `keep_dims`."""
    import torch

    axes = tuple(_bits(layer.attributes["axes"]))
    keep, operation = bool(layer.attributes["keep_dims"]), layer.attributes["op"]
    known: dict[str, Operation] = {"SUM": torch.sum, "AVG": torch.mean, "MAX": torch.amax, "MIN": torch.amin}
    if operation not in known:
        raise layer.unknown("op", f"one of {sorted(known)}")
    if operation == "AVG" and layer.outputs[0].dtype not in ("FLOAT", "HALF", "BF16"):
        raise layer.refuse(f"an average of {layer.outputs[0].dtype}", "an average of floating-point numbers")
    function = known[operation]

    def fold(x: torch.Tensor) -> torch.Tensor:
        result: torch.Tensor = function(x, dim=axes, keepdim=keep)
        return result.to(x.dtype) if operation == "SUM" else result

    return fold


def softmax(layer: Layer) -> Operation:
    """exp(x − max) / sum along the one axis of a bit mask, in FP32, rounded once to the layer's type."""
    import torch

    axes = _bits(layer.attributes["axes"])
    if len(axes) != 1:
        raise layer.unknown("axes", "a mask of one axis")

    def normalize(x: torch.Tensor) -> torch.Tensor:
        return torch.softmax(x, axes[0])

    return normalize


def cumulative(layer: Layer) -> Operation:
    """Running sums along the axis that the second input gives; `reverse` from the end, `exclusive` without itself."""
    import torch

    if layer.attributes["op"] != "SUM":
        raise layer.unknown("op", "SUM")
    reverse, exclusive = bool(layer.attributes["reverse"]), bool(layer.attributes["exclusive"])

    def accumulate(x: torch.Tensor, along: torch.Tensor) -> torch.Tensor:
        axis = int(along)
        ordered = x.flip(axis) if reverse else x
        sums = torch.cumsum(ordered, axis, dtype=x.dtype)
        if exclusive:
            sums = sums - ordered
        return sums.flip(axis) if reverse else sums

    return accumulate


def _bits(mask: int) -> list[int]:
    """Axes of a bit mask."""
    return [axis for axis in range(mask.bit_length()) if mask >> axis & 1]
