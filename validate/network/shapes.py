"""Layers that rearrange: shuffle, slice, concatenation, squeeze, unsqueeze, shape. No value changes.

Sources: NVIDIA TensorRT operators documentation, pages Shuffle, Slice, Concatenation, Squeeze, Unsqueeze, Shape
(https://docs.nvidia.com/deeplearning/tensorrt/latest/_static/operators/), and the class texts of IShuffleLayer and
ISliceLayer.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from validate.network.layers import Layer
from validate.network.operation import Operation

if TYPE_CHECKING:
    import torch


def shuffle(layer: Layer) -> Operation:
    """A transpose, a reshape, and a second transpose; each may be absent.

    In the new dimensions -1 is inferred, and 0 copies the input's dimension where `zero_is_placeholder`. They may come
    as a second input. The permutations list eight axes (or zeros past the rank) whatever the rank.
    """
    first = _permutation(layer, "first_transpose", layer.inputs[0])
    second = _permutation(layer, "second_transpose", layer.outputs[0])
    dims, dynamic = layer.attributes["reshape_dims"], layer.has(1)
    placeholder = bool(layer.attributes["zero_is_placeholder"])

    def rearrange(x: torch.Tensor, given: torch.Tensor | None = None) -> torch.Tensor:
        if first:
            x = x.permute(first)
        sizes = given.tolist() if given is not None else dims
        if sizes is not None:
            if placeholder:
                sizes = [x.shape[axis] if size == 0 else size for axis, size in enumerate(sizes)]
            x = x.reshape(sizes)
        return x.permute(second) if second else x

    if dims is None and not dynamic and not first:
        return lambda x: x.permute(second) if second else x
    return rearrange


def _permutation(layer: Layer, attribute: str, tensor: Any) -> tuple[int, ...]:
    """Give a transpose's axes, or nothing where it changes nothing."""
    rank = len(tensor.axes)
    axes = tuple(layer.attributes[attribute])[:rank]
    if sorted(axes) != list(range(rank)):
        raise layer.unknown(attribute, f"a permutation of {rank} axes")
    return () if axes == tuple(range(rank)) else axes


def concatenation(layer: Layer) -> Operation:
    """Tensors joined along one axis."""
    import torch

    axis = layer.attributes["axis"]

    def join(*tensors: torch.Tensor) -> torch.Tensor:
        return torch.cat(tensors, axis)

    return join


def shape(layer: Layer) -> Operation:
    """The dimensions of a tensor as INT64."""
    import torch

    def measure(x: torch.Tensor) -> torch.Tensor:
        return torch.tensor(x.shape, dtype=torch.int64)

    return measure


def squeeze(layer: Layer) -> Operation:
    """Without the unit axes that the second input names; without a second input, without every unit axis."""
    rank = len(layer.outputs[0].axes)

    def drop(x: torch.Tensor, axes: torch.Tensor | None = None) -> torch.Tensor:
        named = [axis for axis, size in enumerate(x.shape) if size == 1] if axes is None else axes.flatten().tolist()
        if any(x.shape[axis] != 1 for axis in named) or x.ndim - len(named) != rank:
            raise layer.refuse(f"axes {named} of shape {tuple(x.shape)}", f"unit axes, and {rank} axes left")
        return x.squeeze(tuple(named))

    return drop


def unsqueeze(layer: Layer) -> Operation:
    """With unit axes put in; the second input counts them in the output's rank."""

    def put(x: torch.Tensor, axes: torch.Tensor) -> torch.Tensor:
        rank = x.ndim + axes.numel()
        for axis in sorted(axis % rank for axis in axes.flatten().tolist()):
            x = x.unsqueeze(axis)
        return x

    return put


def slice_(layer: Layer) -> Operation:
    """Elements start + i × stride for i < size, on every axis or on those that `axes` names; within bounds only.

    Start, size, stride and axes may come as inputs 1, 2, 3 and 5. A stride of 0 repeats: `Expand` is parsed so.
    """
    if layer.attributes["mode"] != "STRICT_BOUNDS":
        raise layer.unknown("mode", "STRICT_BOUNDS")
    if layer.has(4):
        raise layer.refuse("a fill value", "no fifth input, as STRICT_BOUNDS wants it")
    static = [layer.attributes[name] for name in ("start", "shape", "stride")]
    fixed_axes = layer.attributes["axes"]

    def cut(x: torch.Tensor, *given: torch.Tensor | None) -> torch.Tensor:
        padded = (*given, None, None, None, None, None)[:5]
        dims = [known if tensor is None else tensor.tolist() for known, tensor in zip(static, padded, strict=False)]
        axes = fixed_axes if padded[4] is None else padded[4].tolist()
        for axis, start, size, stride in zip(range(x.ndim) if axes is None else axes, *dims, strict=True):
            x = _cut_axis(layer, x, axis, start, size, stride)
        return x

    return cut


def _cut_axis(layer: Layer, x: torch.Tensor, axis: int, start: int, size: int, stride: int) -> torch.Tensor:
    """Cut one axis; a view wherever torch has one."""
    import torch

    length, last = x.shape[axis], start + (size - 1) * stride
    if size < 0 or (size > 0 and not (0 <= start < length and 0 <= last < length)):
        raise layer.refuse(f"start {start}, size {size}, stride {stride} on axis {axis}", f"within {length} elements")
    if size == 0:
        return x.narrow(axis, 0, 0)
    if stride == 1:
        return x if size == length else x.narrow(axis, start, size)
    if stride == 0:
        return x.narrow(axis, start, 1).expand(*[size if a == axis % x.ndim else -1 for a in range(x.ndim)])
    if stride > 0:
        return x.narrow(axis, start, last - start + 1)[(slice(None),) * (axis % x.ndim) + (slice(None, None, stride),)]
    return x.index_select(axis, torch.arange(start, last - 1, stride))
