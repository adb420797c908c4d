"""ONNX Runtime runs the graphs: the FP32 twins on the CPU, and on CUDA where there is one.

On the CPU ONNX Runtime 1.31 has no BF16 arithmetic, but it casts BF16 weights to FP32 once, at load: the twins share
the data file and run at full FP32 speed.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from artifacts.contract import KINDS, WRITE_INDICES, Precision, TensorSpec, past_name, present_name
from artifacts.errors import Problem, StageError, refuse
from runtime.session import Array, Feeds, Provider, numpy_type

ELEMENT_TYPES = {
    "tensor(int64)": Precision.INT64,
    "tensor(float)": Precision.FP32,
    "tensor(bfloat16)": Precision.BF16,
}
DATA_FOLDER = "session.model_external_initializers_file_folder_path"
# TF32 keeps 10 bits of the mantissa: with it, FP32 on CUDA would miss every tolerance that FP32 is held to.
PROVIDERS: Mapping[Provider, tuple[str, dict[str, str]]] = {
    "cpu": ("CPUExecutionProvider", {}),
    "cuda": ("CUDAExecutionProvider", {"use_tf32": "0"}),
}


class OnnxRuntimeSession:
    """A graph in ONNX Runtime; feeds and outputs are numpy arrays in host memory."""

    def __init__(self, graph: Path, *, provider: Provider = "cpu") -> None:
        self._graph = graph
        self._provider = provider
        self._session: Any = None
        self.inputs: Mapping[str, TensorSpec] = {}
        self.outputs: Mapping[str, TensorSpec] = {}

    def __enter__(self) -> Self:
        import onnxruntime

        options = onnxruntime.SessionOptions()
        options.log_severity_level = 3  # errors only: a warning for every constant that is folded helps nobody
        # Where the data files lie, for a graph that is given as bytes.
        options.add_session_config_entry(DATA_FOLDER, str(self._graph.parent))
        name, settings = PROVIDERS[self._provider]
        source = self._source()
        try:
            self._session = onnxruntime.InferenceSession(source, options, providers=[(name, settings)])
        except Exception as error:  # ONNX Runtime's exceptions share no base class of their own
            raise self._unopened(error) from error
        if self._session.get_providers()[0] != name:
            raise refuse(f"ONNX Runtime has no {self._provider} here", found=f"{self._session.get_providers()}")
        self.inputs = self._specs(self._session.get_inputs())
        self.outputs = self._specs(self._session.get_outputs())
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._session = None

    def _unopened(self, error: Exception) -> StageError:
        """Say why a graph could not be opened; without its libraries ONNX Runtime tries the CPU in CUDA's place."""
        on_cpu = self._provider == "cpu"
        return refuse(
            f"ONNX Runtime cannot open {self._graph} on {self._provider}",
            expected="a graph of the FP32 twins (*_fp32.onnx) and its data files beside it"
            if on_cpu
            else "a GPU, its driver, and the CUDA and cuDNN libraries that this ONNX Runtime wants",
            found=_first_line(error),
            remedy="make the graphs again (make export surgery)" if on_cpu else "make doctor; or --provider cpu",
        )

    def _source(self) -> str | bytes:
        """Give what ONNX Runtime opens: the graph's path, or the graph itself."""
        return str(self._graph)

    def run(self, feeds: Feeds) -> dict[str, Array]:
        """Run once; a linear cache is written where it lies (see `Session`)."""
        self._check(feeds)
        try:
            if WRITE_INDICES in self.inputs:
                return self._run_in_place(feeds)
            names = list(self.outputs)
            return dict(zip(names, self._session.run(names, dict(feeds)), strict=True))
        except Exception as error:  # as above
            raise refuse(f"ONNX Runtime stopped in {self._graph}", found=_first_line(error)) from error

    def _run_in_place(self, feeds: Feeds) -> dict[str, Array]:
        """Bind every `present.*` to the memory of its `past_key_values.*`: else TensorScatter copies the cache."""
        binding = self._session.io_binding()
        for name, array in feeds.items():
            binding.bind_input(name, "cpu", 0, array.dtype, array.shape, array.ctypes.data)
        pasts = {present_name(n, kind): past_name(n, kind) for n in range(len(self.outputs)) for kind in KINDS}
        in_place = {name: feeds[pasts[name]] for name in self.outputs if pasts.get(name) in feeds}
        for name in self.outputs:
            if name in in_place:
                cache = in_place[name]
                binding.bind_output(name, "cpu", 0, cache.dtype, cache.shape, cache.ctypes.data)
            else:
                binding.bind_output(name, "cpu")
        self._session.run_with_iobinding(binding)
        values = zip(self.outputs, binding.get_outputs(), strict=True)
        return {name: in_place[name] if name in in_place else value.numpy() for name, value in values}

    def _check(self, feeds: Feeds) -> None:
        """Insist that the feeds are the inputs, each of its type and rank."""
        problems = [
            Problem(f"{name} is {what}", f"{sorted(self.inputs)}", f"{sorted(feeds)}")
            for names, what in ((self.inputs.keys() - feeds, "not fed"), (feeds.keys() - self.inputs, "no input"))
            for name in sorted(names)
        ]
        for name in sorted(feeds.keys() & self.inputs):
            spec, array = self.inputs[name], feeds[name]
            if array.dtype != numpy_type(spec) or array.ndim != len(spec.axes) or not array.flags.c_contiguous:
                expected = f"C-contiguous {spec.precision.value} {spec.axes}"
                problems.append(Problem(f"{name} cannot be fed", expected, f"{array.dtype} {array.shape}"))
        if problems:
            raise StageError(problems)

    def _specs(self, values: Iterable[Any]) -> dict[str, TensorSpec]:
        specs = {}
        for value in values:
            if value.type not in ELEMENT_TYPES:
                known = ", ".join(ELEMENT_TYPES)
                raise refuse(f"{value.name} of {self._graph} has a type of its own", expected=known, found=value.type)
            specs[value.name] = TensorSpec(value.name, ELEMENT_TYPES[value.type], tuple(value.shape))
        return specs


def _first_line(error: Exception) -> str:
    return str(error).strip().split("\n")[0]
