"""Layers between real and quantized values: quantize and dequantize, by tensor, by axis or by block.

Sources: NVIDIA TensorRT operators documentation, pages Quantize and Dequantize
(https://docs.nvidia.com/deeplearning/tensorrt/latest/_static/operators/). Quantization is symmetric: a zero point
that is not zero is refused. INT4, INT8 and FP8 (E4M3) are known; FP4 is not.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from validate.network.layers import Layer, torch_type
from validate.network.operation import Operation

if TYPE_CHECKING:
    import torch

RANGES = {"INT4": (-8, 7), "INT8": (-128, 127), "FP8": (-448, 448)}


def dequantize(layer: Layer) -> Operation:
    """Value × scale, exact in FP32, rounded once to the layer's type."""
    _check(layer, layer.inputs[0].dtype if layer.inputs[0] else "")
    dtype = torch_type(layer.attributes["to_type"])

    def restore(x: torch.Tensor, scale: torch.Tensor, zero: torch.Tensor | None = None) -> torch.Tensor:
        _check_zero(layer, zero)
        return x.float().mul_(_spread(layer, scale, x)).to(dtype)

    return restore


def quantize(layer: Layer) -> Operation:
    """Value / scale, rounded to nearest with ties to even, held to the type's range."""
    import torch

    to_type = layer.attributes["to_type"]
    _check(layer, to_type)
    least, most = RANGES[to_type]
    dtype = torch_type(to_type)

    def reduce(x: torch.Tensor, scale: torch.Tensor, zero: torch.Tensor | None = None) -> torch.Tensor:
        _check_zero(layer, zero)
        quotient = x.float().div(_spread(layer, scale, x))  # of FP32, float() is the tensor itself
        if to_type != "FP8":
            quotient = torch.round(quotient)
        return quotient.clamp_(least, most).to(dtype)

    return reduce


def _check(layer: Layer, quantized: str) -> None:
    if quantized not in RANGES:
        raise layer.refuse(f"values of type {quantized}", f"one of {sorted(RANGES)}")
    if layer.attributes["block_shape"] is not None:
        raise layer.unknown("block_shape", "blocks that the shape of the scale tells")


def _check_zero(layer: Layer, zero: torch.Tensor | None) -> None:
    if zero is not None and bool(zero.float().any()):
        raise layer.refuse("a zero point that is not zero", "symmetric quantization, as TensorRT documents it")


def _spread(layer: Layer, scale: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
    """Give the scale of every element in FP32: one, one an index of `axis`, or one a block, repeated."""
    scale = scale.float()
    if scale.numel() == 1:
        return scale.reshape(())
    axis = layer.attributes["axis"]
    if scale.ndim == 1:
        return scale.reshape([-1 if a == axis % x.ndim else 1 for a in range(x.ndim)])
    for along, (count, length) in enumerate(zip(scale.shape, x.shape, strict=True)):
        if length % count:
            raise layer.refuse(f"a scale of {tuple(scale.shape)} for {tuple(x.shape)}", "whole blocks")
        if count not in (1, length):
            scale = scale.repeat_interleave(length // count, along)
    return scale
