"""A Polygraphy runner for TensorRT's network on the CPU, to stand beside `OnnxrtRunner` and `TrtRunner`.

::

    from validate.network.runner import NetworkRunner
    Comparator.run([OnnxrtRunner(...), NetworkRunner(graph)])

Polygraphy knows no BF16 arrays: its data loader makes none and its ONNX Runtime runner takes none. So a BF16 tensor
is FP32 outside this runner: feeds are rounded to BF16 inside it (exact for values that came from BF16) and outputs
are widened, which is exact. `casts` names the tensors, so that a report can say so.
"""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from artifacts.backend import Backend, load
from validate.network.arrays import to_tensor
from validate.network.layers import LABEL, torch_type
from validate.network.program import Program, load_program

if TYPE_CHECKING:
    import torch

# Polygraphy takes its TensorRT from the environment when it is imported, so the choice is made before.
BACKEND = Backend.preferred()
load(BACKEND)

from polygraphy.backend.base import BaseRunner  # noqa: E402  # after the choice of TensorRT, see above
from polygraphy.common import TensorMetadata  # noqa: E402  # likewise


class NetworkRunner(BaseRunner):  # type: ignore[misc]  # Polygraphy comes without types
    """Parses an ONNX file when it is activated and evaluates TensorRT's network of it at every `infer`."""

    def __init__(self, graph: Path, name: str = LABEL, outputs: tuple[str, ...] | None = None) -> None:
        """Name a graph.

        Args:
            graph: an ONNX file, its data files beside it.
            name: the runner's name in Polygraphy's results.
            outputs: tensors to give, any of the network's; its outputs if not given. No tensor is marked, so the
                network stays the one that would be built.
        """
        super().__init__(name=name, prefix=LABEL)
        self._graph, self._wanted = graph, outputs

    @property
    def casts(self) -> tuple[str, ...]:
        """Inputs that are BF16 in the network and FP32 outside this runner."""
        return tuple(name for name, facts in self._program.inputs.items() if facts.dtype == "BF16")

    def activate_impl(self) -> None:
        """Parse and compile the network."""
        self._program: Program = load_program(self._graph, BACKEND)

    def get_input_metadata_impl(self) -> Any:
        """Give names, types (FP32 for BF16) and shapes; a dynamic axis by its name, or None."""
        import numpy as np

        metadata = TensorMetadata()
        for name, facts in self._program.inputs.items():
            wide = "FLOAT" if facts.dtype == "BF16" else facts.dtype
            dtype = np.dtype(str(torch_type(wide)).removeprefix("torch."))
            metadata.add(name, dtype, tuple(axis if axis != "" else None for axis in facts.axes))
        return metadata

    def infer_impl(self, feed_dict: Mapping[str, Any]) -> OrderedDict[str, Any]:
        """Evaluate once; feeds are copied, so that a cache that is updated in place leaves them as they were."""
        feeds = {name: self._feed(name, value) for name, value in feed_dict.items()}
        start = time.perf_counter()
        found = self._program.run(feeds, self._wanted)
        self.inference_time = time.perf_counter() - start
        return OrderedDict((name, _outside(tensor)) for name, tensor in found.items())

    def deactivate_impl(self) -> None:
        """Let go of the network."""
        del self._program

    def _feed(self, name: str, value: Any) -> torch.Tensor:
        import torch

        tensor = value if isinstance(value, torch.Tensor) else to_tensor(value)
        wanted = self._program.inputs.get(name)
        if wanted is not None and wanted.dtype == "BF16" and tensor.dtype is torch.float32:
            return tensor.to(torch.bfloat16)
        return tensor.clone()


def _outside(tensor: torch.Tensor) -> Any:
    """Give a numpy array that shares nothing with the run; BF16 becomes FP32."""
    import torch

    return (tensor.float() if tensor.dtype is torch.bfloat16 else tensor).contiguous().clone().numpy()
