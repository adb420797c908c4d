"""The ways to run the model that are compared, in order: a short list, the reference first."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum

from artifacts.checkpoint import Checkpoint
from artifacts.config import ModelConfig
from artifacts.contract import Form
from artifacts.layout import ModelFolder
from runtime import Session, open_session
from validate.network import LABEL, NetworkSession
from validate.pytorch_session import PyTorchSession


class Role(Enum):
    """What a runner's results are for."""

    REFERENCE = "reference"
    """What the others are compared with."""
    NOISE = "noise"
    """Measured, to know what the arithmetic itself does; judged for finiteness only."""
    JUDGED = "judged"
    """Must be equal to the reference."""


@dataclass(frozen=True)
class Runner:
    """One way to run the model.

    Attributes:
        form: the graph that it runs; nothing for PyTorch.
        bytes_per_parameter: what its weights take; a graph of 4 bytes is an FP32 twin.
        network: whether TensorRT's network of the graph is evaluated, and not the graph run in ONNX Runtime.
    """

    name: str
    role: Role
    form: Form | None = None
    bytes_per_parameter: int = 4
    network: bool = False

    @property
    def twin(self) -> bool:
        """Whether it runs an FP32 twin."""
        return self.bytes_per_parameter == 4

    def memory(self, config: ModelConfig) -> int:
        """Bytes that it will take, rounded up: weights, a sixth more while they are loaded, and the calls."""
        return config.num_parameters * self.bytes_per_parameter * 7 // 6 + (1 << 30)

    def open(self, folder: ModelFolder, checkpoint: Checkpoint) -> Session:
        """Give its session, not yet entered."""
        if self.form is None:
            return PyTorchSession(checkpoint, "float32" if self.twin else "bfloat16")
        graph = folder.graph(self.form, twin=self.twin)
        return NetworkSession(graph) if self.network else open_session(graph)


RUNNERS = (
    Runner("PyTorch FP32", Role.REFERENCE),
    Runner("PyTorch BF16", Role.NOISE, bytes_per_parameter=2),
    Runner("export_fp32", Role.JUDGED, Form.EXPORT),
    Runner("model_fp32", Role.JUDGED, Form.MODEL),
    Runner("model_all_fp32", Role.JUDGED, Form.MODEL_ALL),
    Runner("model_linear_fp32", Role.JUDGED, Form.MODEL_LINEAR),
    Runner(f"{LABEL}: model_fp32", Role.JUDGED, Form.MODEL, network=True),
    Runner(f"{LABEL}: model_linear_fp32", Role.JUDGED, Form.MODEL_LINEAR, network=True),
    Runner(f"{LABEL}: model", Role.NOISE, Form.MODEL, bytes_per_parameter=2, network=True),
    Runner(f"{LABEL}: model_all", Role.NOISE, Form.MODEL_ALL, bytes_per_parameter=2, network=True),
    Runner(f"{LABEL}: model_linear", Role.NOISE, Form.MODEL_LINEAR, bytes_per_parameter=2, network=True),
)

LARGE = 1_000_000_000
"""Parameters from which an evaluation of TensorRT's network through every scenario is left out, if not asked for.

It computes small calls in one thread: at 3 billion parameters each of the four would take longer than all of ONNX
Runtime's. What TensorRT understood of the same graphs is compared layer by layer at any size.
"""


def left_out(config: ModelConfig, *, thorough: bool) -> Mapping[str, str]:
    """Say which runners are not run for a model, and why."""
    if thorough or config.num_parameters < LARGE:
        return {}
    reason = f"{config.num_parameters:,} parameters; the layers of it are compared, and --thorough runs it too"
    return {runner.name: reason for runner in RUNNERS if runner.network}
