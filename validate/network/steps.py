"""A step is one layer compiled: its function, the names of its tensors, and what the network declares of its result."""

from __future__ import annotations

from collections import Counter
from collections.abc import Container, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from artifacts.errors import StageError
from validate.network.constants import Initializers
from validate.network.kinds import meaning
from validate.network.layers import Layer, torch_type
from validate.network.operation import Operation

if TYPE_CHECKING:
    import torch


LARGE = 1 << 20
"""Bytes of a computed constant after which the file's pages that it was made from are let go."""


@dataclass(frozen=True)
class Step:
    """One layer, compiled.

    Attributes:
        fixed: the axes whose size the network declares, with the size.
    """

    layer: Layer
    run: Operation
    inputs: tuple[str | None, ...]
    output: str | None
    dtype: Any
    rank: int
    fixed: tuple[tuple[int, int], ...]

    def evaluate(self, values: Sequence[torch.Tensor | None]) -> torch.Tensor:
        """Compute the result and hold it to the type and the axes that the network declares.

        Raises:
            StageError: the layer cannot work on these values, or makes something else than TensorRT inferred.
        """
        try:
            value: torch.Tensor = self.run(*values)
        except (RuntimeError, IndexError, ValueError, TypeError, ZeroDivisionError) as error:
            raise self.layer.refuse(str(error).split("\n")[0], "values that the layer can work on") from error
        shape = value.shape
        if value.dtype is self.dtype and len(shape) == self.rank:
            for axis, size in self.fixed:
                if shape[axis] != size:
                    break
            else:
                return value
        if self.output is None:
            return value
        declared = self.layer.outputs[0]
        raise self.layer.refuse(f"{value.dtype} {tuple(shape)}", f"{declared.dtype} {declared.axes}, as declared")


def compile_steps(
    layers: Sequence[Layer], initializers: Initializers, outputs: Container[str]
) -> tuple[list[Step], dict[str, torch.Tensor]]:
    """Compile layers in order; compute at once what depends on constants only.

    A constant that nothing but other constants used is dropped, so that weights are held once, in the type in which
    they are used.

    Returns:
        The steps that are left to a run, and the constants that they (or `outputs`) use.

    Raises:
        StageError: a layer that the evaluation does not know, by name, kind and attribute.
    """
    import torch

    steps: list[Step] = []
    constants: dict[str, torch.Tensor] = {}
    uses = Counter(tensor.name for layer in layers for tensor in layer.inputs if tensor)
    for layer in layers:
        if layer.kind == "CONSTANT":
            constants[layer.outputs[0].name] = _constant(layer, initializers)
            continue
        step = _without_ones(_compile(layer), constants)
        if step.output is None or not all(name is None or name in constants for name in step.inputs):
            steps.append(step)
            continue
        with torch.inference_mode():
            value = step.evaluate([None if name is None else constants[name] for name in step.inputs])
        constants[step.output] = value
        for name in filter(None, step.inputs):
            uses[name] -= 1
            if not uses[name] and name not in outputs:
                del constants[name]
        if value.nbytes > LARGE:
            initializers.release()
    return steps, constants


def _compile(layer: Layer) -> Step:
    if len(layer.outputs) > 1:
        raise layer.refuse(f"{len(layer.outputs)} outputs", "one output")
    output = layer.outputs[0] if layer.outputs else None
    return Step(
        layer=layer,
        run=meaning(layer.kind)(layer),
        inputs=tuple(tensor.name if tensor else None for tensor in layer.inputs),
        output=output.name if output else None,
        dtype=_declared_type(layer) if output else None,
        rank=len(output.axes) if output else 0,
        fixed=tuple((axis, size) for axis, size in enumerate(output.axes if output else ()) if isinstance(size, int)),
    )


def _without_ones(step: Step, constants: Mapping[str, torch.Tensor]) -> Step:
    """Let a product with the constant 1 hand its tensor on: the same bits, without a copy of the cache.

    The importer multiplies q and k of every attention by the root of its scale, which is 1 in our graphs.
    """
    if step.layer.kind != "ELEMENTWISE" or step.layer.attributes["op"] != "PROD":
        return step
    factor = constants.get(step.inputs[1] or "")
    if factor is None or factor.numel() != 1 or factor.item() != 1:
        return step
    return replace(step, run=lambda x, one: x)


def _constant(layer: Layer, initializers: Initializers) -> torch.Tensor:
    """Place a constant: TensorRT's own values where Python can read them, else those of the ONNX file."""
    import torch

    dtype, values = _declared_type(layer), layer.attributes["weights"]
    if values is None:
        return initializers.tensor(layer)
    return torch.from_numpy(values).to(dtype).reshape([int(axis) for axis in layer.outputs[0].axes])


def _declared_type(layer: Layer) -> torch.dtype:
    """Give torch's type of a layer's result."""
    try:
        return torch_type(layer.outputs[0].dtype)
    except StageError as error:
        raise layer.refuse(f"a result of type {layer.outputs[0].dtype}", error.problems[0].expected) from None
