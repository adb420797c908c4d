"""A TensorRT and a CUDA that compute with ONNX Runtime in host memory, so that what drives them can be tested.

Device memory is host memory that only these stand-ins touch. An address that is in no living allocation, a shape that
no profile takes, a cache that is not one buffer in and out are errors, as they would be crashes on a GPU.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from enum import Enum
from types import SimpleNamespace
from typing import Any

import ml_dtypes
import numpy as np

from artifacts.contract import Precision, Signature
from runtime.onnxruntime_session import OnnxRuntimeSession


class Status(Enum):
    """CUDA's error codes, as far as they are needed."""

    cudaSuccess = 0  # noqa: N815  # CUDA's own name
    cudaErrorMemoryAllocation = 2  # noqa: N815


@dataclass
class Cuda:
    """Stands in for `cuda.bindings.runtime`; counts what was recorded and launched."""

    room: int = 1 << 30
    living: dict[int, Any] = field(default_factory=dict)
    recording: list[Callable[[], None]] | None = None
    recorded: int = 0
    launched: int = 0
    cudaError_t = Status  # noqa: N815  # CUDA's own name
    cudaMemcpyKind = SimpleNamespace(cudaMemcpyHostToDevice="up", cudaMemcpyDeviceToHost="down")  # noqa: N815
    cudaStreamCaptureMode = SimpleNamespace(cudaStreamCaptureModeThreadLocal=1)  # noqa: N815

    def __getattr__(self, name: str) -> Any:
        if name in ("cudaStreamDestroy", "cudaStreamSynchronize", "cudaGraphDestroy", "cudaGraphExecDestroy"):
            return lambda *_: (Status.cudaSuccess,)
        raise AttributeError(name)

    def cudaStreamCreate(self) -> tuple[Status, int]:  # noqa: N802
        return Status.cudaSuccess, 7

    def cudaMalloc(self, size: int) -> tuple[Status, int]:  # noqa: N802
        if sum(memory.nbytes for memory in self.living.values()) + size > self.room:
            return Status.cudaErrorMemoryAllocation, 0
        memory = np.full(size, 0xFF, np.uint8)  # NaN in every floating type: nothing is zero by chance
        self.living[memory.ctypes.data] = memory
        return Status.cudaSuccess, memory.ctypes.data

    def cudaFree(self, address: int) -> tuple[Status]:  # noqa: N802
        del self.living[address]
        return (Status.cudaSuccess,)

    def cudaMemset(self, address: int, value: int, size: int) -> tuple[Status]:  # noqa: N802
        self.bytes_at(address, size)[:] = value
        return (Status.cudaSuccess,)

    def cudaMemcpyAsync(self, to: int, source: int, size: int, kind: str, stream: int) -> tuple[Status]:  # noqa: N802
        assert stream == 7
        self.bytes_at(to if kind == "up" else source, size)
        ctypes.memmove(to, source, size)
        return (Status.cudaSuccess,)

    def cudaStreamBeginCapture(self, stream: int, mode: int) -> tuple[Status]:  # noqa: N802
        self.recording = []
        return (Status.cudaSuccess,)

    def cudaStreamEndCapture(self, stream: int) -> tuple[Status, Any]:  # noqa: N802
        work, self.recording = self.recording, None
        self.recorded += 1
        return Status.cudaSuccess, work

    def cudaGraphInstantiate(self, graph: Any, flags: int) -> tuple[Status, Any]:  # noqa: N802
        return Status.cudaSuccess, graph

    def cudaGraphLaunch(self, graph: Any, stream: int) -> tuple[Status]:  # noqa: N802
        self.launched += 1
        for work in graph:
            work()
        return (Status.cudaSuccess,)

    def cudaGetErrorString(self, status: Status) -> tuple[Status, bytes]:  # noqa: N802
        return Status.cudaSuccess, b"out of memory"

    def bytes_at(self, address: int, size: int) -> Any:
        """Give living device memory; an address outside of it is an error."""
        for base, memory in self.living.items():
            if base <= address and address + size <= base + memory.nbytes:
                return memory[address - base : address - base + size]
        raise AssertionError(f"{address} + {size} is no memory of the device")


class Engine:
    """Stands in for `ICudaEngine`: the contract's tensors, with the profiles that it is given."""

    def __init__(
        self, cuda: Cuda, session: OnnxRuntimeSession, contract: Signature, profiles: Sequence[dict[str, Any]]
    ) -> None:
        self.cuda, self.session, self.contract, self.profiles = cuda, session, contract, profiles
        self.names = [spec.name for spec in contract]
        self.num_io_tensors, self.num_optimization_profiles = len(self.names), len(profiles)
        self.steps: list[int] = []

    def get_tensor_name(self, index: int) -> str:
        return self.names[index]

    def get_tensor_profile_shape(self, name: str, profile: int) -> Any:
        return self.profiles[profile][name]

    def create_execution_context(self) -> Context:
        return Context(self)


class Context:
    """Stands in for `IExecutionContext`: computes in FP32 with ONNX Runtime, keeps in the contract's types."""

    def __init__(self, engine: Engine) -> None:
        self.engine, self.profile = engine, -1
        self.shapes: dict[str, tuple[int, ...]] = {}
        self.addresses: dict[str, int] = {}

    def set_optimization_profile_async(self, profile: int, stream: int) -> bool:
        self.profile = profile
        return True

    def set_input_shape(self, name: str, shape: tuple[int, ...]) -> bool:
        low, _, high = self.engine.profiles[self.profile][name]
        self.shapes[name] = tuple(shape)
        return all(a <= b <= c for a, b, c in zip(low, shape, high, strict=True))

    def set_tensor_address(self, name: str, address: int) -> bool:
        self.addresses[name] = address
        return address != 0

    def execute_async_v3(self, stream: int) -> bool:
        shapes, addresses, profile = dict(self.shapes), dict(self.addresses), self.profile

        def work() -> None:
            self.engine.steps.append(profile)
            self._compute(shapes, addresses)

        recording = self.engine.cuda.recording
        if recording is None:
            work()
        else:
            recording.append(work)
        return True

    def _compute(self, shapes: dict[str, tuple[int, ...]], addresses: dict[str, int]) -> None:
        feeds = {}
        for spec in self.engine.contract.inputs:
            dtype = np.dtype(ml_dtypes.bfloat16 if spec.precision is Precision.BF16 else spec.precision.value)
            size = int(np.prod(shapes[spec.name])) * dtype.itemsize
            values = self.engine.cuda.bytes_at(addresses[spec.name], size).view(dtype).reshape(shapes[spec.name])
            feeds[spec.name] = np.ascontiguousarray(values, np.float32 if dtype.itemsize == 2 else dtype)
        linear = "write_indices" in feeds
        for name, values in self.engine.session.run(feeds).items():
            spec = next(spec for spec in self.engine.contract.outputs if spec.name == name)
            if linear and name.startswith("present."):
                assert addresses[name] == addresses[name.replace("present.", "past_key_values.")]
            if spec.precision is Precision.BF16:
                values = values.astype(ml_dtypes.bfloat16)
            raw = np.ascontiguousarray(values).view(np.uint8).reshape(-1)
            self.engine.cuda.bytes_at(addresses[name], raw.nbytes)[:] = raw
