"""A subject is one way to run one graph that shows tensors inside it; each has one class, and nothing else knows which.

ONNX Runtime and TensorRT's network on the CPU stand here; an engine stands in `engine.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Protocol, Self

import numpy as np

from artifacts.errors import refuse
from artifacts.versions import versions
from runtime.session import Array
from validate.network import LABEL, Program, load_program
from validate.network.arrays import to_tensor

if TYPE_CHECKING:
    import torch

RUNTIME = "ONNX Runtime"
"""What its subjects are called."""
GROUP_BYTES = 1 << 31
"""Tensors that ONNX Runtime gives at once, by a rough count of bytes; it runs again for the next ones."""

Observer = Callable[[str, Array], None]
Run = Callable[[Mapping[str, Array]], dict[str, Array]]


class Subject(Protocol):
    """A graph that runs inside a `with` block and tells what it makes."""

    label: str

    @property
    def names(self) -> Collection[str]:
        """Every tensor that can be asked for."""
        ...

    @property
    def backend(self) -> str:
        """The library that runs it, with its version."""
        ...

    @property
    def notes(self) -> tuple[str, ...]:
        """What the library had to say of the graph."""
        ...

    def stream(self, feeds: Mapping[str, Array], wanted: Sequence[str], observe: Observer) -> None:
        """Run and tell each wanted tensor, FP32 where it is BF16; FP32 feeds are rounded where BF16 is wanted."""
        ...

    def unmarked(self) -> AbstractContextManager[Run]:
        """Give a function that runs with nothing marked and gives the graph's own outputs."""
        ...

    def __enter__(self) -> Self: ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...


class OnnxRuntimeSubject:
    """A graph in ONNX Runtime with more outputs; what they are called in the graph may differ from their names here."""

    def __init__(self, graph: Path, wanted: Collection[str], called: Mapping[str, str] | None = None) -> None:
        """Name a graph, what will be asked for, and what that is called in it."""
        self.label = f"{RUNTIME}: {graph.stem}"
        self._graph, self._wanted, self._called = graph, wanted, called or {}

    @property
    def names(self) -> Collection[str]:
        """The graph's tensors, by the names of the contract."""
        return self._names

    @property
    def backend(self) -> str:
        """ONNX Runtime's version."""
        return f"onnxruntime {versions('onnxruntime-gpu')['onnxruntime-gpu']}"

    @property
    def notes(self) -> tuple[str, ...]:
        """Nothing: what it says is of no use here."""
        return ()

    def __enter__(self) -> Self:
        import onnx

        model = onnx.load(str(self._graph), load_external_data=False)
        own = {value.name for value in model.graph.output}
        made = {name for node in model.graph.node for name in node.output if name}
        back = {graph: name for name, graph in self._called.items()}
        self._names = {back.get(name, name) for name in made}
        asked = {self._called.get(name, name) for name in self._wanted} & made
        model.graph.output.extend(onnx.ValueInfoProto(name=name) for name in sorted(asked - own))
        self._session = open_bytes(model.SerializeToString(), self._graph)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        del self._session

    def stream(self, feeds: Mapping[str, Array], wanted: Sequence[str], observe: Observer) -> None:
        """Run once for every group of tensors."""
        tokens = feeds["input_ids"].size
        size = max(1, GROUP_BYTES // (4 * tokens * 4096))
        for start in range(0, len(wanted), size):
            group = list(wanted[start : start + size])
            called = [self._called.get(name, name) for name in group]
            for name, array in zip(group, self._session.run(called, dict(feeds)), strict=True):
                observe(name, array)

    @contextmanager
    def unmarked(self) -> Iterator[Run]:
        """Run the graph as it is, in a session of its own; the marked one should be closed, for the memory's sake."""
        session = open_bytes(self._graph.read_bytes(), self._graph)
        own = [value.name for value in session.get_outputs()]
        yield lambda feeds: dict(zip(own, session.run(own, dict(feeds)), strict=True))


def open_bytes(model: bytes, graph: Path) -> Any:
    """Open a graph in ONNX Runtime that is given as bytes; `graph` is what it is called, beside its data files.

    Raises:
        StageError: it cannot be opened.
    """
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    options.add_session_config_entry("session.model_external_initializers_file_folder_path", str(graph.parent))
    try:
        return onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])
    except Exception as error:  # ONNX Runtime's exceptions share no base class of their own
        found = str(error).strip().split("\n")[0]
        raise refuse(f"ONNX Runtime cannot open {graph}", found=found, remedy="make export surgery") from error


class NetworkSubject:
    """What TensorRT's parser understood of a graph, evaluated on the CPU."""

    def __init__(self, graph: Path) -> None:
        self.label = f"{LABEL}: {graph.stem}"
        self._graph = graph

    @property
    def names(self) -> Collection[str]:
        """Every tensor that a run computes."""
        return frozenset(self.program.tensors)

    @property
    def backend(self) -> str:
        """The library whose parser made the network."""
        return self.program.network.backend

    @property
    def notes(self) -> tuple[str, ...]:
        """The parser's warnings."""
        return self.program.network.notes

    @property
    def program(self) -> Program:
        """The compiled network."""
        return self._program

    def __enter__(self) -> Self:
        self._program = load_program(self._graph)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        del self._program

    def stream(self, feeds: Mapping[str, Array], wanted: Sequence[str], observe: Observer) -> None:
        """Run once."""
        self.program.stream(self._tensors(feeds), wanted, lambda name, tensor: observe(name, wide(tensor)))

    @contextmanager
    def unmarked(self) -> Iterator[Run]:
        """Use the same program: asking for tensors changes nothing here, but an engine's marks would."""
        yield lambda feeds: {name: wide(value) for name, value in self.program.run(self._tensors(feeds)).items()}

    def between(self, feeds: Mapping[str, Array], wanted: Iterable[str]) -> dict[str, Array]:
        """Compute tensors from any others, inputs or inside, which are fed."""
        found = self.program.run(self._tensors(feeds), tuple(wanted))
        return {name: wide(tensor) for name, tensor in found.items()}

    def _tensors(self, feeds: Mapping[str, Array]) -> dict[str, torch.Tensor]:
        """Give what is fed as tensors of their own, in the type that the network declares."""
        import torch

        fed = {name: to_tensor(np.array(array)) for name, array in feeds.items()}
        narrow = {name for name in fed if self._declared(name) == "BF16"}
        return {name: value.to(torch.bfloat16) if name in narrow else value for name, value in fed.items()}

    def _declared(self, name: str) -> str:
        if name in self.program.inputs:
            return self.program.inputs[name].dtype
        return self.program.layer_of(name).outputs[0].dtype if name in self.names else ""


def wide(tensor: torch.Tensor) -> Array:
    """Give a tensor as an array: FP32 where it is BF16, which numpy has not; every other type as it is."""
    import torch

    array: Array = (tensor.float() if tensor.dtype is torch.bfloat16 else tensor).contiguous().numpy()
    return array
