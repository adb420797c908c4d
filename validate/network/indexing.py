"""Layers that pick and place by index: gather, scatter, fill.

Sources: NVIDIA TensorRT operators documentation, pages Gather, Scatter, Fill
(https://docs.nvidia.com/deeplearning/tensorrt/latest/_static/operators/), and IGatherLayer in NvInfer.h.

ONNX allows negative indices, which count from the end, and the parser passes them on unchanged. NvInfer.h: on an axis
of dynamic length a negative index has undefined behaviour. So they are taken on a fixed axis and refused on a dynamic
one. An index past the end is refused too (an engine reads zeros there).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from validate.network.layers import Layer, torch_type
from validate.network.operation import Operation

if TYPE_CHECKING:
    import torch


def gather(layer: Layer) -> Operation:
    """DEFAULT picks along one axis (ONNX Gather), ELEMENT is GatherElements, ND is GatherND with leading batch axes."""
    import torch

    axis, batch = layer.attributes["axis"], layer.attributes["num_elementwise_dims"]

    def pick(data: torch.Tensor, indices: torch.Tensor) -> torch.Tensor:
        picked = data.index_select(axis, _within(layer, indices, data.shape[axis], axis).flatten())
        return picked.reshape(data.shape[:axis] + indices.shape + data.shape[axis + 1 :])

    def pick_elements(data: torch.Tensor, indices: torch.Tensor) -> torch.Tensor:
        return torch.gather(data, axis, _within(layer, indices, data.shape[axis], axis).long())

    def pick_nd(data: torch.Tensor, indices: torch.Tensor) -> torch.Tensor:
        return data[_coordinates(layer, data, indices, batch)]

    modes = {"DEFAULT": pick, "ELEMENT": pick_elements, "ND": pick_nd}
    mode = layer.attributes["mode"]
    if mode not in modes:
        raise layer.unknown("mode", f"one of {sorted(modes)}")
    if batch and mode != "ND":
        raise layer.unknown("num_elementwise_dims", "0 in this mode")
    return modes[mode]


def scatter(layer: Layer) -> Operation:
    """A copy of the data with updates put at indices: ELEMENT is ScatterElements, ND is ScatterND."""
    import torch

    axis, mode = layer.attributes["axis"], layer.attributes["mode"]

    def place_elements(data: torch.Tensor, indices: torch.Tensor, updates: torch.Tensor) -> torch.Tensor:
        return torch.scatter(data, axis, _within(layer, indices, data.shape[axis], axis).long(), updates)

    def place_nd(data: torch.Tensor, indices: torch.Tensor, updates: torch.Tensor) -> torch.Tensor:
        return data.index_put(_coordinates(layer, data, indices, 0), updates)

    if mode not in ("ELEMENT", "ND"):
        raise layer.unknown("mode", "ELEMENT or ND")
    return place_elements if mode == "ELEMENT" else place_nd


def fill(layer: Layer) -> Operation:
    """LINSPACE: alpha plus, for every axis, its index times that axis' beta; dimensions, alpha, beta may be inputs."""
    import torch

    if layer.attributes["operation"] != "LINSPACE":
        raise layer.unknown("operation", "LINSPACE")
    dtype = torch_type(layer.attributes["to_type"])
    dims, alpha, beta = (layer.attributes[name] for name in ("shape", "alpha", "beta"))

    def count(
        shape: torch.Tensor | None = None, start: torch.Tensor | None = None, step: torch.Tensor | None = None
    ) -> torch.Tensor:
        sizes = dims if shape is None else shape.tolist()
        steps = [beta] if step is None else step.flatten().tolist()
        result = torch.full(sizes, alpha if start is None else start.item(), dtype=dtype)
        for axis, (size, delta) in enumerate(zip(sizes, steps, strict=True)):
            ramp = torch.arange(size, dtype=dtype) * delta
            result = result + ramp.reshape([size if a == axis else 1 for a in range(len(sizes))])
        return result

    return count


def _within(layer: Layer, indices: torch.Tensor, length: int, axis: int) -> torch.Tensor:
    """Insist on indices in [0, length); on an axis of fixed length negative ones are counted from its end."""
    if not indices.numel():
        return indices
    least, most = (int(bound) for bound in indices.aminmax())
    assert layer.inputs[0] is not None
    fixed = isinstance(layer.inputs[0].axes[axis], int)
    if least < (-length if fixed else 0) or most >= length:
        what = "" if fixed else ", none negative, since the axis is dynamic"
        raise layer.refuse(f"indices from {least} to {most} on axis {axis}", f"indices up to {length - 1}{what}")
    return indices if least >= 0 else indices.where(indices >= 0, indices + length)


def _coordinates(layer: Layer, data: torch.Tensor, indices: torch.Tensor, batch: int) -> tuple[torch.Tensor, ...]:
    """Spread ND indices into one index tensor an axis, with the leading batch axes counted through."""
    import torch

    axes = range(batch, batch + indices.shape[-1])
    spread = [_within(layer, indices[..., axis - batch].long(), data.shape[axis], axis) for axis in axes]
    rank = indices.ndim - 1
    counted = [
        torch.arange(data.shape[axis]).reshape([-1 if a == axis else 1 for a in range(rank)]) for axis in range(batch)
    ]
    return (*counted, *spread)
