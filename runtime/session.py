"""A session is one way to run the model: feeds in, outputs out, under the names of the tensor contract.

Everything that runs the model, whatever computes it, has this one shape, so that any two of them can be compared.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Literal, Protocol, Self

import numpy as np
from numpy.typing import NDArray

from artifacts.contract import TensorSpec
from artifacts.doctor import find_gpus
from artifacts.errors import refuse
from artifacts.layout import ModelFolder

Array = NDArray[Any]
Feeds = Mapping[str, Array]
Provider = Literal["cpu", "cuda"]


class Session(Protocol):
    """One graph or plan, ready to run inside a `with` block; nothing is loaded before it is entered.

    A graph with `write_indices` updates its cache in place: what was fed as `past_key_values.*` is written, and is
    also what `present.*` gives.
    """

    @property
    def inputs(self) -> Mapping[str, TensorSpec]:
        """Inputs by name, with the axes that the graph itself declares."""
        ...

    @property
    def outputs(self) -> Mapping[str, TensorSpec]:
        """Outputs by name, likewise."""
        ...

    def run(self, feeds: Feeds) -> dict[str, Array]:
        """Run once.

        Args:
            feeds: an array for every input, of its type, C-contiguous.

        Raises:
            StageError: feeds are missing, unknown or of another type (all of them), or the run failed.
        """
        ...

    def __enter__(self) -> Self: ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...


def open_session(graph: Path, *, provider: Provider = "cpu") -> Session:
    """Give the session that runs a file; enter it to load it.

    Args:
        graph: an `.onnx` file, or the `.plan` in a model's `build/<target>/`.
        provider: where ONNX Runtime computes; its CPU provider has no BF16 arithmetic and takes the FP32 twins.

    Raises:
        StageError: nothing here runs a file of that kind, or the plan is not for this machine.
    """
    # Imported here because the implementations import this module's types.
    from runtime.engine_session import EngineSession
    from runtime.onnxruntime_session import OnnxRuntimeSession
    from runtime.plan_check import PlanFile

    if graph.suffix == ".onnx":
        return OnnxRuntimeSession(graph, provider=provider)
    if graph.suffix == ".plan":
        plan = PlanFile(ModelFolder(graph.resolve().parents[2]), graph.resolve().parent.name)
        plan.check(find_gpus())
        return EngineSession(plan)
    raise refuse(f"{graph} is nothing that can be run", expected="an .onnx or a .plan", found=repr(graph.suffix))


def numpy_type(spec: TensorSpec) -> np.dtype[Any]:
    """Give the numpy element type of a tensor; BF16 is `ml_dtypes.bfloat16`."""
    import ml_dtypes  # noqa: F401  # registers "bfloat16" with numpy

    return np.dtype(spec.precision.value)
