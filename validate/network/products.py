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


ROWS_ALONE = 4
"""Up to so many rows a BF16 product runs row by row on the weights as they lie; more pay for FP32 copies of them."""

BLOCK = 1 << 23
"""Elements of a weight that are FP32 copies at any one time, 32 MiB."""


def matrix_multiply(layer: Layer) -> Operation:
    """A product of matrices, either one transposed, leading axes broadcast."""
    import torch

    for attribute in ("op0", "op1"):
        if layer.attributes[attribute] not in ("NONE", "TRANSPOSE"):
            raise layer.unknown(attribute, "NONE or TRANSPOSE")
    left, right = (layer.attributes[name] == "TRANSPOSE" for name in ("op0", "op1"))

    def multiply(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        a, b = a.mT if left else a, b.mT if right else b
        rank = max(a.ndim, b.ndim)
        # A weight is parsed as (1, K, N): as a matrix it is one product for all rows, and no copy a row.
        while b.ndim > 2 and b.shape[0] == 1:
            b = b[0]
        if a.dtype is torch.float32:
            product = torch.matmul(a, b)
        elif b.ndim == 2:
            product = _rows_by_matrix(a.reshape(-1, a.shape[-1]), b).view(*a.shape[:-1], b.shape[1])
        else:
            product = torch.matmul(a.float(), b.float()).to(a.dtype)
        return product if product.ndim == rank else product.reshape((1,) * (rank - product.ndim) + product.shape)

    return multiply


def _rows_by_matrix(rows: torch.Tensor, matrix: torch.Tensor) -> torch.Tensor:
    """(R, K) × (K, N) in a 16-bit type with sums in FP32.

    On CPUs without AVX-512 torch's own BF16 product crawls, but for one row it has a kernel for each order in which a
    matrix may lie: (K, N) row by row, and (N, K), the order of a tied head.
    """
    import torch

    count = rows.shape[0]
    if count <= ROWS_ALONE:
        transposed = matrix.t()
        if matrix.is_contiguous():
            return torch.cat([torch.mm(transposed, row.unsqueeze(1)) for row in rows.unbind()], 1).t()
        return torch.stack([torch.mv(transposed, row) for row in rows.unbind()])
    wide = rows.float()
    columns = max(1, BLOCK // matrix.shape[0])
    parts = [torch.mm(wide, block.float()).to(rows.dtype) for block in torch.split(matrix, columns, 1)]
    return parts[0] if len(parts) == 1 else torch.cat(parts, 1)


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
        if exclusive:
            # Shifted before it is summed: taking each value off its own sum would round, and make NaN of infinities.
            nothing = torch.zeros_like(ordered.narrow(axis, 0, min(1, ordered.shape[axis])))
            kept = ordered.narrow(axis, 0, max(ordered.shape[axis] - 1, 0))
            ordered = torch.cat([nothing, kept], axis)
        sums = torch.cumsum(ordered, axis, dtype=x.dtype)
        return sums.flip(axis) if reverse else sums

    return accumulate


def _bits(mask: int) -> list[int]:
    """Axes of a bit mask."""
    return [axis for axis in range(mask.bit_length()) if mask >> axis & 1]
