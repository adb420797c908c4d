"""ONNX Runtime with its tensors bound by address, a linear cache updated in place among them.

Where the session computes in host memory, a graph of fewer and larger operators runs (see `runtime.host_graph`).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Self

import numpy as np

from artifacts.contract import TensorSpec
from artifacts.errors import refuse
from artifacts.graph_signature import ELEMENT_TYPES
from runtime.host_graph import host_graph
from runtime.memory import Memory, zeros
from runtime.onnxruntime_session import OnnxRuntimeSession
from runtime.session import Provider, numpy_type


class BindableOnnxRuntimeSession(OnnxRuntimeSession):
    """A graph in ONNX Runtime that takes its tensors by address."""

    def __init__(self, graph: Path, *, provider: Provider = "cpu") -> None:
        super().__init__(graph, provider=provider)
        self.on_host = provider == "cpu"

    def __enter__(self) -> Self:
        from onnxruntime import OrtDevice

        super().__enter__()
        self._host, self._device = (OrtDevice.make(name, 0)._get_c_device() for name in ("cpu", self._provider))
        self._elements = [
            [(name, ELEMENT_TYPES[spec.precision]) for name, spec in specs.items()]
            for specs in (self.inputs, self.outputs)
        ]
        return self

    def _source(self) -> str | bytes:
        """Give the graph, made ready for a CPU where the cache lies in host memory."""
        return host_graph(self._graph) if self.on_host else super()._source()

    def allocate(self, spec: TensorSpec, shape: Sequence[int]) -> Memory:
        """Give zeroed memory where the session computes."""
        try:
            if self.on_host:
                return zeros(spec, shape)
            from onnxruntime import OrtValue

            dtype = numpy_type(spec)
            # As bytes, because ONNX Runtime takes no BF16 from numpy; an empty tensor needs an address too.
            raw = np.zeros(max(math.prod(shape) * dtype.itemsize, 1), np.uint8)
            value = OrtValue.ortvalue_from_numpy(raw, self._provider, 0)
            return Memory(dtype, tuple(shape), value.data_ptr(), None, value)
        except Exception as error:  # MemoryError on the host, an error of ONNX Runtime's own on a device
            raise refuse(
                f"there is no memory for {spec.name}",
                expected=f"room for {tuple(shape)} of {spec.precision.value}",
                found=str(error)[:200],
                remedy="give a smaller --context or fewer --slots",
            ) from error

    def bind(self, tensors: Mapping[str, Memory]) -> OnnxRuntimeBound:
        """Put every input and output in its place; quick, because the concatenated cache does so every step."""
        binding = self._session.io_binding()
        # The binding's own methods make a device for every tensor, which takes two thirds of their time.
        inner = binding._iobinding
        for elements, put in ((self._elements[0], inner.bind_input), (self._elements[1], inner.bind_output)):
            for name, element in elements:
                _, shape, address, whole, _ = tensors[name]
                put(name, self._device if whole is None else self._host, element, shape, address)
        return OnnxRuntimeBound(self._session, binding, tensors)


class OnnxRuntimeBound:
    """A graph with all of its tensors in place."""

    def __init__(self, session: Any, binding: Any, tensors: Mapping[str, Memory]) -> None:
        self._session, self._binding = session, binding
        self._tensors = tensors  # keeps the memory alive

    def run(self) -> None:
        """Run once; ONNX Runtime copies host memory to and from a device by itself."""
        try:
            self._session.run_with_iobinding(self._binding)
        except Exception as error:  # ONNX Runtime's exceptions share no base class of their own
            raise refuse("ONNX Runtime stopped", found=str(error).strip().split("\n")[0][:500]) from error
