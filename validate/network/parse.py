"""TensorRT's own parser makes the network: `tensorrt` where it is installed, else `tensorrt-rtx`; no GPU is needed."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from artifacts.backend import Backend, load, logger
from artifacts.errors import Problem, StageError, refuse

WARNINGS = ("WARNING", "ERROR", "INTERNAL_ERROR")


@dataclass
class Parsed:
    """A network and what has to live as long as it does.

    Attributes:
        trt: the library's module.
        network: its INetworkDefinition.
        notes: the parser's warnings, each once.
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
        backend: the library; TensorRT if it is installed, else TensorRT-RTX, if not given.

    Raises:
        StageError: there is no such file, no such library, or the parser refuses the graph (all its errors).
    """
    if not source.is_file():
        raise refuse(f"{source} is missing", expected="an ONNX graph", remedy="make export surgery")
    trt = load(backend or Backend.preferred())
    log, said = logger(trt), list[str]()
    before, log.listener = (
        log.listener,
        lambda severity, message: said.append(message) if severity in WARNINGS else None,
    )
    try:
        builder = trt.Builder(log)
        network = builder.create_network()
        parser = trt.OnnxParser(network, log)
        if not parser.parse_from_file(str(source)):
            errors = [parser.get_error(index) for index in range(parser.num_errors)]
            raise StageError([_problem(source, trt, error) for error in errors] or _unexplained(source, trt, said))
    finally:
        log.listener = before
    return Parsed(source, trt, network, tuple(dict.fromkeys(said)), [builder, parser])


def _problem(source: Path, trt: Any, error: Any) -> Problem:
    node = f"node {error.node_name()!r} ({error.node_operator()})" if error.node_operator() else "the graph"
    return Problem(
        f"{trt.__name__} cannot parse {source}: {node}",
        expected="operators that TensorRT's parser takes (docs/importer.md)",
        found=error.desc(),
    )


def _unexplained(source: Path, trt: Any, said: list[str]) -> Problem:
    return Problem(f"{trt.__name__} cannot parse {source}", found="; ".join(said) or "no reason given")
