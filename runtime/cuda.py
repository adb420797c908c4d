"""The few calls of the CUDA runtime that a TensorRT session needs, each with its error checked.

Everything that can be decided without a device is decided elsewhere, so that this stays too small to hide a fault.
"""

from __future__ import annotations

from typing import Any

from artifacts.errors import refuse


class Device:
    """The current device, with one stream; made when a session is entered.

    Raises:
        StageError: the bindings are not installed, or there is no device.
    """

    def __init__(self) -> None:
        try:
            from cuda.bindings import runtime
        except ImportError as error:
            raise refuse(
                "CUDA's Python bindings are not installed", found=str(error), remedy="pip install cuda-python"
            ) from None
        self._cuda: Any = runtime
        self.stream: Any = self._call("cudaStreamCreate")

    def close(self) -> None:
        """Give the stream back."""
        self._call("cudaStreamDestroy", self.stream)

    def allocate(self, size: int) -> DeviceMemory:
        """Give zeroed memory; at least one byte, because an empty tensor needs an address too."""
        address = int(self._call("cudaMalloc", max(size, 1)))
        self._call("cudaMemset", address, 0, max(size, 1))
        return DeviceMemory(self, address, max(size, 1))

    def free(self, address: int) -> None:
        """Give memory back."""
        self._call("cudaFree", address)

    def upload(self, to: int, source: int, size: int) -> None:
        """Copy from host to device, in order on the stream."""
        self._copy(to, source, size, self._cuda.cudaMemcpyKind.cudaMemcpyHostToDevice)

    def download(self, to: int, source: int, size: int) -> None:
        """Copy from device to host, in order on the stream."""
        self._copy(to, source, size, self._cuda.cudaMemcpyKind.cudaMemcpyDeviceToHost)

    def wait(self) -> None:
        """Wait until the stream has done everything."""
        self._call("cudaStreamSynchronize", self.stream)

    def begin_capture(self) -> None:
        """Record what is put on the stream from now on instead of doing it."""
        self._call(
            "cudaStreamBeginCapture", self.stream, self._cuda.cudaStreamCaptureMode.cudaStreamCaptureModeThreadLocal
        )

    def end_capture(self) -> Any:
        """Give the recording as a graph that can be launched."""
        graph = self._call("cudaStreamEndCapture", self.stream)
        launchable = self._call("cudaGraphInstantiate", graph, 0)
        self._call("cudaGraphDestroy", graph)
        return launchable

    def launch(self, graph: Any) -> None:
        """Do what was recorded."""
        self._call("cudaGraphLaunch", graph, self.stream)

    def forget(self, graph: Any) -> None:
        """Give a recording back."""
        self._call("cudaGraphExecDestroy", graph)

    def _copy(self, to: int, source: int, size: int, kind: Any) -> None:
        if size:
            self._call("cudaMemcpyAsync", to, source, size, kind, self.stream)

    def _call(self, name: str, *arguments: Any) -> Any:
        """Call a function of the CUDA runtime and give its result."""
        status, *results = getattr(self._cuda, name)(*arguments)
        if status != self._cuda.cudaError_t.cudaSuccess:
            _, text = self._cuda.cudaGetErrorString(status)
            raise refuse(f"{name} failed", found=text.decode() if isinstance(text, bytes) else str(text))
        return results[0] if results else None


class DeviceMemory:
    """Memory of a device, given back when nothing uses it any more."""

    def __init__(self, device: Device, address: int, size: int) -> None:
        self._device, self.address, self.size = device, address, size

    def __del__(self) -> None:
        self._device.free(self.address)
