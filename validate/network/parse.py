"""TensorRT's own parser makes the network: `tensorrt` where it is installed, else `tensorrt_rtx`; no GPU is needed."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from artifacts.errors import Problem, StageError, refuse

Backend = Literal["tensorrt", "tensorrt_rtx"]
BACKENDS: tuple[Backend, ...] = ("tensorrt", "tensorrt_rtx")


@dataclass
class Parsed:
    """A network and what has to live as long as it does.

    Attributes:
        trt: the library's module.
        network: its INetworkDefinition.
        notes: the parser's warnings.
    """

    source: Path
    trt: Any
    network: Any
    notes: tuple[str, ...]
    keep: list[Any] = field(repr=False)

    @property
    def backend(self) -> str:
        """The library and its version."""
        return f"{self.trt.__name__} {self.trt.__version__}"


def parse(source: Path, backend: Backend | None = None) -> Parsed:
    """Parse an ONNX file, its external data beside it.

    Args:
        source: the graph.
        backend: the library; the first of `BACKENDS` that is installed if not given.

    Raises:
        StageError: there is no such file, no such library, or the parser refuses the graph (all its errors).
    """
    if not source.is_file():
        raise refuse(f"{source} is missing", expected="an ONNX graph", remedy="make export surgery")
    trt = library(backend)
    logger = _logger(trt)
    builder = trt.Builder(logger)
    network = builder.create_network()
    parser = trt.OnnxParser(network, logger)
    if not parser.parse_from_file(str(source)):
        raise StageError(
            [_problem(source, trt, parser.get_error(index)) for index in range(parser.num_errors)]
            or Problem(f"{trt.__name__} cannot parse {source}", found="\n".join(logger.said))
        )
    notes = tuple(dict.fromkeys(logger.said))
    logger.said.clear()
    return Parsed(source, trt, network, notes, [logger, builder, parser])


def library(backend: Backend | None = None) -> Any:
    """Import TensorRT.

    Raises:
        StageError: it is not installed.
    """
    import importlib

    for name in [backend] if backend else BACKENDS:
        try:
            module = importlib.import_module(name)
        except ImportError:
            continue
        # On a machine without NVIDIA's own index, `tensorrt` may be a source stub with nothing in it.
        if hasattr(module, "OnnxParser"):
            return module
    raise refuse(
        "no TensorRT is installed", expected=f"{backend or ' or '.join(BACKENDS)}", remedy="pip install tensorrt-rtx"
    )


def _logger(trt: Any) -> Any:
    """Make a logger that remembers warnings and prints nothing."""
    base: Callable[..., Any] = trt.ILogger

    class Listener(base):  # type: ignore[valid-type, misc]  # the base class is known at run time only
        """Remembers what TensorRT says."""

        def __init__(self) -> None:
            super().__init__()
            self.said: list[str] = []

        def log(self, severity: Any, message: str) -> None:
            if severity.value <= trt.ILogger.Severity.WARNING.value:
                self.said.append(message)

    return Listener()


def _problem(source: Path, trt: Any, error: Any) -> Problem:
    node = f"node {error.node_name()!r} ({error.node_operator()})" if error.node_operator() else "the graph"
    return Problem(
        f"{trt.__name__} cannot parse {source}: {node}",
        expected="operators that TensorRT's parser takes (docs/importer.md)",
        found=error.desc(),
    )
