"""What a plan is for: which TensorRT, which GPUs, which form of the graph; its folder is named after it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from artifacts.backend import Backend
from artifacts.contract import Form
from artifacts.doctor import Gpu, has_bf16
from artifacts.errors import StageError, refuse

RTX_KNOWS = ("7.5", "8.0", "8.6", "8.9", "12.0", "12.1")
"""Compute capabilities that TensorRT-RTX 1.7.1 can build for; Hopper (9.0) is TensorRT proper's."""
RTX_DEFAULT = ("8.0", "8.6", "8.9", "12.0")
"""What TensorRT-RTX itself builds for if it is told nothing. A plan does not grow with their number (32 bytes)."""


@dataclass(frozen=True)
class Target:
    """One plan's destination.

    Attributes:
        backend: the TensorRT that builds and runs the plan.
        version: its full version.
        capabilities: compute capabilities that the plan is for, such as `8.9`.
        linear: whether the cache is linear.
        current: whether it is built for the GPU that this machine has.
    """

    backend: Backend
    version: str
    capabilities: tuple[str, ...]
    linear: bool
    current: bool

    @property
    def name(self) -> str:
        """Name of the plan's folder, such as `tensorrt_rtx-1.7.1-sm89-sm120` or `tensorrt-11.4-sm90-linear`."""
        parts = 3 if self.backend is Backend.RTX else 2
        version = ".".join(self.version.split(".")[:parts])
        chips = [f"sm{capability.replace('.', '')}" for capability in self.capabilities]
        return "-".join([self.backend.module, version, *chips, *(["linear"] if self.linear else [])])


def choose_target(
    backend: str, capabilities: Sequence[str], form: Form, gpus: Sequence[Gpu], version: str | None = None
) -> Target:
    """Decide what to build with and for.

    Args:
        backend: `auto` is TensorRT proper where it is installed and sees a GPU, else TensorRT-RTX.
        capabilities: what the user asked for; nothing means the GPU that is here, or TensorRT-RTX's own default.
        form: the graph.
        gpus: the GPUs of this machine.
        version: the backend's version, looked up if not given.

    Raises:
        StageError: the backend is not there, or cannot build this model for one of the capabilities.
    """
    chosen = _choose_backend(backend, bool(gpus))
    found = chosen.version if version is None else version
    if found == "absent":
        raise _not_installed(chosen, gpus)
    if chosen is Backend.TENSORRT:
        wanted = _of_this_gpu(capabilities, gpus)
    else:
        wanted = tuple(dict.fromkeys(capabilities)) or _rtx_default(gpus)
        _check_rtx(wanted)
        wanted = tuple(sorted(wanted, key=RTX_KNOWS.index))
    current = bool(gpus) and (chosen is Backend.TENSORRT or not capabilities)
    return Target(chosen, found, wanted, form.linear, current)


def _not_installed(backend: Backend, gpus: Sequence[Gpu]) -> StageError:
    """Say what to do; set-up installs TensorRT proper only where there is a GPU."""
    if backend is Backend.TENSORRT and not gpus:
        return refuse(
            f"{backend.value} is not installed",
            expected="its Python package, on a machine with an NVIDIA GPU",
            found="no GPU, and make setup installs it only where there is one",
            remedy="--backend tensorrt-rtx, which builds without a GPU, or build on a machine with one",
        )
    return refuse(f"{backend.value} is not installed", expected="its Python package", remedy="make setup")


def _choose_backend(name: str, gpu: bool) -> Backend:
    if name == "auto":
        return Backend.preferred() if gpu else Backend.RTX
    try:
        return Backend(name)
    except ValueError:
        known = " | ".join(["auto", *(backend.value for backend in Backend)])
        raise refuse("--backend is unknown", expected=known, found=name, remedy="python -m build --help") from None


def _of_this_gpu(capabilities: Sequence[str], gpus: Sequence[Gpu]) -> tuple[str, ...]:
    """TensorRT proper builds for the first GPU that it sees, by running kernels on it."""
    if not gpus:
        raise refuse(
            "TensorRT builds on the GPU that it builds for",
            expected="an NVIDIA GPU",
            found="none",
            remedy="--backend tensorrt-rtx builds without one",
        )
    here = gpus[0].compute_capability
    if set(capabilities) - {here}:
        raise refuse(
            "TensorRT builds for the GPU that it sees and no other",
            expected=f"--compute-capability {here}, or none",
            found=" ".join(capabilities),
            remedy="--backend tensorrt-rtx builds for other GPUs",
        )
    if not gpus[0].has_bf16:
        raise refuse(
            "this GPU cannot do attention in BF16",
            expected="compute capability 8.0 or later",
            found=f"{gpus[0].name}, {here}",
            remedy="run the FP32 twins with ONNX Runtime on this machine",
        )
    return (here,)


def _rtx_default(gpus: Sequence[Gpu]) -> tuple[str, ...]:
    return (gpus[0].compute_capability,) if gpus else RTX_DEFAULT


def _check_rtx(capabilities: Sequence[str]) -> None:
    able = [known for known in RTX_KNOWS if has_bf16(known)]
    refused = [
        f"{capability} ({'no BF16 attention' if capability in RTX_KNOWS else 'unknown to TensorRT-RTX'})"
        for capability in capabilities
        if capability not in able
    ]
    if refused:
        remedy = (
            "--backend tensorrt on a machine with that GPU"
            if "9.0" in capabilities
            else "name others (--compute-capability)"
        )
        raise refuse(
            "TensorRT-RTX cannot build this model for every compute capability asked for",
            expected=f"some of {' '.join(able)}",
            found=", ".join(refused),
            remedy=remedy,
        )
