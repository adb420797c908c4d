"""Layers that work element by element: elementwise, unary, activation, cast, select, identity, assertion.

Sources: NVIDIA TensorRT operators documentation, pages ElementWise, Unary, Activation, Cast, Select, Identity,
Assertion (https://docs.nvidia.com/deeplearning/tensorrt/latest/_static/operators/). In a strongly typed network the
result has the type that the layer declares; torch computes BF16 elements in FP32 and rounds each result once, but for
FLOOR_DIV (1 value in 1,000 is another) and ERF (1 in 7,000 is a last bit off), which no graph of ours has in BF16.
"""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING

from validate.network.layers import Layer, torch_type
from validate.network.operation import Operation

if TYPE_CHECKING:
    import torch

INTEGERS = ("INT8", "UINT8", "INT32", "INT64")


def elementwise(layer: Layer) -> Operation:
    """Two tensors with broadcasting: SUM, SUB, PROD, DIV, FLOOR_DIV, POW, MIN, MAX, comparisons, logic.

    DIV of integers truncates toward zero, FLOOR_DIV rounds down; `Mod` is parsed into the latter.
    """
    import torch

    known: dict[str, Operation] = {
        "SUM": torch.add,
        "SUB": torch.sub,
        "PROD": torch.mul,
        "DIV": torch.div,
        "FLOOR_DIV": torch.floor_divide,
        "POW": torch.pow,
        "MIN": torch.minimum,
        "MAX": torch.maximum,
        "EQUAL": torch.eq,
        "GREATER": torch.gt,
        "LESS": torch.lt,
        "AND": torch.logical_and,
        "OR": torch.logical_or,
        "XOR": torch.logical_xor,
    }
    operation = layer.attributes["op"]
    if operation not in known:
        raise layer.unknown("op", f"one of {sorted(known)}")
    if operation == "DIV" and layer.outputs[0].dtype in INTEGERS:
        return functools.partial(torch.div, rounding_mode="trunc")
    return known[operation]


def unary(layer: Layer) -> Operation:
    """One tensor: the functions that exports of the model use; ROUND rounds half to even."""
    import torch

    known: dict[str, Operation] = {
        "EXP": torch.exp,
        "LOG": torch.log,
        "SQRT": torch.sqrt,
        "RECIP": torch.reciprocal,
        "ABS": torch.abs,
        "NEG": torch.neg,
        "SIN": torch.sin,
        "COS": torch.cos,
        "CEIL": torch.ceil,
        "FLOOR": torch.floor,
        "ERF": torch.erf,
        "NOT": torch.logical_not,
        "SIGN": torch.sign,
        "ROUND": torch.round,
        "ISINF": torch.isinf,
        "ISNAN": torch.isnan,
    }
    if layer.attributes["op"] not in known:
        raise layer.unknown("op", f"one of {sorted(known)}")
    return known[layer.attributes["op"]]


def activation(layer: Layer) -> Operation:
    """RELU, SIGMOID, TANH, CLIP (to alpha … beta) and GELU_ERF/GELU_TANH; alpha and beta mean nothing elsewhere."""
    import torch

    known: dict[str, Operation] = {
        "RELU": torch.relu,
        "SIGMOID": torch.sigmoid,
        "TANH": torch.tanh,
        "CLIP": functools.partial(torch.clamp, min=layer.attributes["alpha"], max=layer.attributes["beta"]),
        "GELU_ERF": torch.nn.functional.gelu,
        "GELU_TANH": functools.partial(torch.nn.functional.gelu, approximate="tanh"),
    }
    if layer.attributes["type"] not in known:
        raise layer.unknown("type", f"one of {sorted(known)}")
    return known[layer.attributes["type"]]


def cast(layer: Layer) -> Operation:
    """A change of type: to the nearest value, ties to even; floats become integers by truncation, bools by `!= 0`."""
    to_type = layer.attributes["to_type"]
    if to_type in ("INT4", "FP8", "FP4", "E8M0"):
        raise layer.unknown("to_type", "a type that TensorRT casts to; quantized types come from a quantize layer")
    dtype = torch_type(to_type)

    def change(x: torch.Tensor) -> torch.Tensor:
        return x.to(dtype)

    return change


def select(layer: Layer) -> Operation:
    """`then` where the condition is true, else `otherwise`, with broadcasting."""
    import torch

    return torch.where


def identity(layer: Layer) -> Operation:
    """The tensor itself."""
    return lambda x: x


def assertion(layer: Layer) -> Operation:
    """Nothing but a refusal where the condition is not true everywhere; it has no output."""
    message = layer.attributes["message"]

    def insist(condition: torch.Tensor) -> torch.Tensor:
        if not bool(condition.all()):
            raise layer.refuse(f"its assertion does not hold: {message}", "true everywhere")
        return condition

    return insist
