"""A TensorRT engine, with its tensors bound by address; the cache never leaves the GPU.

Each optimization profile has an execution context of its own. A step takes the smallest profile that its shapes fit, so
decode steps run the decode profile. A step of the linear cache that comes again and again is recorded as a CUDA graph
after its first run: its addresses and shapes never change, only what lies there.

TensorRT's names that are used here are held by a test against both TensorRTs; the logic is tested with stand-ins. What
ran on a GPU is a matter of the machine that has one.
"""

from __future__ import annotations

import mmap
from collections.abc import Mapping, Sequence
from types import TracebackType
from typing import Any, Self

import numpy as np

from artifacts.backend import load, logger
from artifacts.contract import INPUT_IDS, WRITE_INDICES, TensorSpec, signature
from artifacts.errors import refuse
from runtime.cuda import Device, DeviceMemory
from runtime.memory import Memory, zeros
from runtime.plan_check import PlanFile
from runtime.session import Array, Feeds, numpy_type

ONLY_RTX = ("Runtime.get_engine_validity", "IExecutionContext.is_stream_capturable")

Place = Memory | DeviceMemory
"""What has an address on the GPU."""

Shapes = Mapping[str, tuple[int, ...]]


class EngineSession:
    """A plan, opened; used as a context manager.

    Args:
        plan: a plan that was checked (see `PlanFile.check`).
    """

    on_host = False

    def __init__(self, plan: PlanFile) -> None:
        self._plan = plan
        contract = signature(plan.folder.config(), plan.form, capacity=plan.capacity)
        self.inputs: Mapping[str, TensorSpec] = {spec.name: spec for spec in contract.inputs}
        self.outputs: Mapping[str, TensorSpec] = {spec.name: spec for spec in contract.outputs}
        self._contexts: list[Any] = []
        self._staging: dict[str, DeviceMemory] = {}

    def __enter__(self) -> Self:
        trt = load(self._plan.backend)
        self.device = Device()
        self._runtime = trt.Runtime(logger(trt))
        with self._plan.path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
            self._check_validity(trt, data)
            self._engine = self._runtime.deserialize_cuda_engine(data)
        if self._engine is None:
            raise self._refusal("TensorRT gave no reason beyond its log")
        self._check_names()
        for profile in range(self._engine.num_optimization_profiles):
            context = self._engine.create_execution_context()
            context.set_optimization_profile_async(profile, int(self.device.stream))
            self._contexts.append(context)
        self.device.wait()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._contexts.clear()
        self._staging.clear()
        self._engine = self._runtime = None
        self.device.close()

    def run(self, feeds: Feeds) -> dict[str, Array]:
        """Run once with arrays of the host; a linear cache is copied back into what was fed."""
        tensors = {name: Memory.of(array) for name, array in feeds.items()}
        sizes = _axes(self.inputs, {name: memory.shape for name, memory in tensors.items()})
        for name, spec in self.outputs.items():
            past = name.replace("present.", "past_key_values.")
            in_place = WRITE_INDICES in self.inputs and past in tensors
            tensors[name] = tensors[past] if in_place else zeros(spec, [_length(axis, sizes) for axis in spec.axes])
        self.bind(tensors).run()
        return {name: tensors[name].host for name in self.outputs}

    def allocate(self, spec: TensorSpec, shape: Sequence[int]) -> Memory:
        """Give zeroed memory of the GPU."""
        dtype = numpy_type(spec)
        owner = self.device.allocate(int(np.prod(shape)) * dtype.itemsize)
        return Memory(dtype, tuple(shape), owner.address, None, owner)

    def bind(self, tensors: Mapping[str, Memory]) -> EngineBound:
        """Put every tensor in its place; those of the host get a place on the GPU that they are copied to and from."""
        shapes = {name: tensors[name].shape for name in self.inputs}
        context = self._contexts[self._profile(shapes)]
        # Steps of one token of the linear cache come again with the same addresses, which is what a recording needs.
        repeats = WRITE_INDICES in self.inputs and shapes[INPUT_IDS][1] == 1
        return EngineBound(self, context, tensors, self._places(tensors), record=repeats)

    def _places(self, tensors: Mapping[str, Memory]) -> dict[str, Place]:
        """Give where each tensor is on the GPU; what is one tensor of the host is one there too."""
        places: dict[str, Place] = {}
        staged: dict[int, Place] = {}
        for name in [*self.inputs, *self.outputs]:
            memory = tensors[name]
            if not memory.on_host:
                places[name] = memory
                continue
            if memory.address not in staged:
                staged[memory.address] = self._stage(name, memory.nbytes)
            places[name] = staged[memory.address]
        return places

    def _stage(self, name: str, size: int) -> DeviceMemory:
        """Give room on the GPU for a tensor of the host; it is kept, and grows where a step wants more."""
        known = self._staging.get(name)
        if known is None or known.size < size:
            known = self._staging[name] = self.device.allocate(2 * size)
        return known

    def _profile(self, shapes: Shapes) -> int:
        """Give the profile with the fewest most new tokens that takes these shapes."""
        fitting = []
        for profile in range(len(self._contexts)):
            bounds = {name: self._engine.get_tensor_profile_shape(name, profile) for name in shapes}
            if all(_within(shape, bounds[name]) for name, shape in shapes.items()):
                fitting.append((tuple(bounds[INPUT_IDS][2])[1], profile))
        if not fitting:
            raise refuse(
                "no profile of the plan takes this step",
                expected="shapes within one of the profiles in its manifest",
                found=f"{ {name: shapes[name] for name in list(shapes)[:3]} }",
                remedy=f"{self._plan.build_command} with a larger --max-batch-size, --max-context or --prefill-chunk",
            )
        return min(fitting)[1]

    def _check_validity(self, trt: Any, data: mmap.mmap) -> None:
        """Ask the plan's own header, where TensorRT can (TensorRT-RTX), whether it can run here."""
        if not hasattr(trt.Runtime, "get_engine_validity"):
            return
        validity, diagnostics = self._runtime.get_engine_validity(data)
        if validity.name == "INVALID":
            raise self._refusal(f"{validity.name}: {diagnostics}")

    def _check_names(self) -> None:
        """Insist that the engine has the contract's tensors."""
        found = {self._engine.get_tensor_name(index) for index in range(self._engine.num_io_tensors)}
        expected = {*self.inputs, *self.outputs}
        if found != expected:
            difference = f"missing {sorted(expected - found)[:5]}, unknown {sorted(found - expected)[:5]}"
            raise refuse(
                f"{self._plan.path} has other tensors than the contract",
                found=difference,
                remedy=self._plan.build_command,
            )

    def _refusal(self, reason: str) -> Exception:
        return refuse(
            f"{self._plan.backend.value} refuses {self._plan.path}",
            expected=f"a plan for {self._plan.backend.version} and this GPU",
            found=reason,
            remedy=self._plan.build_command,
        )


class EngineBound:
    """One step of an engine with all of its tensors in place."""

    def __init__(
        self,
        session: EngineSession,
        context: Any,
        tensors: Mapping[str, Memory],
        places: Mapping[str, Place],
        *,
        record: bool,
    ) -> None:
        self._device, self._context, self._tensors, self._places = session.device, context, tensors, places
        self._uploads = [name for name in session.inputs if tensors[name].on_host]
        self._downloads = [name for name in session.outputs if tensors[name].on_host]
        self._inputs = list(session.inputs)
        self._record = record
        self._runs = 0
        self._recording: Any = None

    def run(self) -> None:
        """Copy what the host has, run, and copy what the host wants."""
        for name in self._uploads:
            memory = self._tensors[name]
            self._device.upload(self._places[name].address, memory.address, memory.nbytes)
        self._execute()
        for name in self._downloads:
            memory = self._tensors[name]
            self._device.download(memory.address, self._places[name].address, memory.nbytes)
        self._device.wait()
        self._runs += 1

    def _execute(self) -> None:
        if self._recording is not None:
            self._device.launch(self._recording)
            return
        self._enqueue()
        # TensorRT prepares itself in a step whose shapes are new to the context, which a recording must not hold. So
        # the recording follows a step of the same shapes, and only for those that come at least twice.
        if self._record and self._runs == 1 and self._capturable():
            self._device.begin_capture()
            self._enqueue()
            self._recording = self._device.end_capture()

    def _capturable(self) -> bool:
        """Whether TensorRT lets its work be recorded; only TensorRT-RTX, which compiles while it runs, may not."""
        ask = getattr(self._context, "is_stream_capturable", None)
        return ask is None or bool(ask(int(self._device.stream)))

    def _enqueue(self) -> None:
        """Set every shape and address, and put the step on the stream."""
        good = all(self._context.set_input_shape(name, self._tensors[name].shape) for name in self._inputs)
        good = good and all(
            self._context.set_tensor_address(name, place.address) for name, place in self._places.items()
        )
        if not good or not self._context.execute_async_v3(int(self._device.stream)):
            raise refuse("TensorRT did not take the step", found="a shape or an address that it refused; see its log")

    def __del__(self) -> None:
        if self._recording is not None:
            self._device.forget(self._recording)


def _within(shape: Sequence[int], bounds: Sequence[Sequence[int]]) -> bool:
    """Whether a shape lies within a profile's minimum and maximum."""
    low, _, high = (tuple(bound) for bound in bounds)
    return all(least <= size <= most for least, size, most in zip(low, shape, high, strict=True))


def _axes(specs: Mapping[str, TensorSpec], shapes: Shapes) -> dict[str, int]:
    """Give the length of every symbolic axis."""
    return {
        axis: size
        for name, shape in shapes.items()
        for axis, size in zip(specs[name].axes, shape, strict=True)
        if isinstance(axis, str)
    }


def _length(axis: int | str, sizes: Mapping[str, int]) -> int:
    return axis if isinstance(axis, int) else sizes[axis]
