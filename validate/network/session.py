"""A session that evaluates TensorRT's network on the CPU: the same feeds and outputs as every other way to run."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

from artifacts.backend import Backend
from artifacts.contract import INPUT_IDS, Precision, TensorSpec
from artifacts.errors import refuse
from build.profiles import StepProfile
from runtime.session import Array, Feeds
from validate.network.arrays import to_array, to_tensor
from validate.network.layers import LABEL, TensorFacts
from validate.network.profiles import check_profiles
from validate.network.program import Program, load_program

PRECISIONS = {"BF16": Precision.BF16, "FLOAT": Precision.FP32, "INT64": Precision.INT64}

FEW = 64
"""Up to so many new tokens a call keeps to one thread.

Its products are too small to share: on two busy cores a second thread made 32 tokens take 10.9 s instead of 0.8.
"""


class NetworkSession:
    """What TensorRT's parser understood of a graph, run on the CPU; nothing is loaded before it is entered."""

    label = LABEL

    def __init__(self, graph: Path, *, backend: Backend | None = None, profiles: Sequence[StepProfile] = ()) -> None:
        """Name a graph.

        Args:
            graph: an ONNX file, its data files beside it.
            backend: whose parser; TensorRT's if it is installed, else TensorRT-RTX's, if not given.
            profiles: limits that every call has to keep, as an engine built with them would insist.
        """
        self._graph, self._backend, self._profiles = graph, backend, tuple(profiles)
        self._program: Program | None = None
        self.inputs: Mapping[str, TensorSpec] = {}
        self.outputs: Mapping[str, TensorSpec] = {}

    @property
    def program(self) -> Program:
        """The compiled network, for whoever wants other tensors than the outputs."""
        assert self._program is not None, "the session is entered first"
        return self._program

    def __enter__(self) -> Self:
        self._program = load_program(self._graph, self._backend)
        self.inputs = {spec.name: spec for spec in self._specs(self._program.inputs.values())}
        self.outputs = {spec.name: spec for spec in self._specs(self._program.outputs.values())}
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._program = None

    def run(self, feeds: Feeds) -> dict[str, Array]:
        """Run once; a linear cache is written where it lies, and is itself what `present.*` gives.

        Raises:
            StageError: feeds that do not fit, no profile that takes them, or a layer that cannot work on them.
        """
        tensors = {name: to_tensor(array) for name, array in feeds.items()}
        check_profiles(
            self._profiles,
            self.inputs.values(),
            {name: array.shape for name, array in feeds.items() if name in self.inputs},
        )
        owners = {tensor.data_ptr(): name for name, tensor in tensors.items() if tensor.numel()}
        results = {}
        few = INPUT_IDS in feeds and feeds[INPUT_IDS].size <= FEW
        for name, tensor in self.program.run(tensors, threads=1 if few else None).items():
            owner = owners.get(tensor.data_ptr())
            whole = owner is not None and tensor.shape == tensors[owner].shape
            results[name] = feeds[owner] if owner is not None and whole else to_array(tensor)
        return results

    def _specs(self, tensors: Iterable[TensorFacts]) -> Iterable[TensorSpec]:
        for facts in tensors:
            if facts.dtype not in PRECISIONS:
                known = ", ".join(PRECISIONS)
                raise refuse(f"{facts.name} of {self._graph} has a type of its own", expected=known, found=facts.dtype)
            yield TensorSpec(facts.name, PRECISIONS[facts.dtype], facts.axes)
