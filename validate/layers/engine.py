"""A TensorRT engine as a subject: the one class that differs where a GPU is.

A plan shows nothing but its outputs, so an engine with marked tensors is built for the comparison, from the same graph
by the same options, through Polygraphy. Marks change what is fused, so the last word is said by a second engine, of the
graph with nothing marked. Neither is the plan, whose file is not opened here.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import numpy as np

from artifacts.backend import Backend, load, logger
from artifacts.doctor import find_gpus
from runtime.session import Array
from validate.layers import ENGINE
from validate.layers.comparison import Comparison
from validate.layers.strangers import rotations
from validate.layers.subject import NetworkSubject, Observer, Run, Subject, wide
from validate.network import LABEL

BACKEND = Backend.preferred()


def tensorrt(graph: Path, comparison: Comparison) -> Subject:
    """Give TensorRT's view of a graph: an engine where there is a GPU, else the network on the CPU."""
    return EngineSubject(graph, comparison) if find_gpus() else NetworkSubject(graph)


def shown_by() -> str:
    """Say what `tensorrt` gives on this machine: an engine on which GPU, or the network."""
    gpus = find_gpus()
    return f"{ENGINE} on {gpus[0].name}, driver {gpus[0].driver}" if gpus else LABEL


class EngineSubject:
    """A graph built with marked tensors and run on the GPU through Polygraphy's `TrtRunner`."""

    notes: tuple[str, ...] = ()

    def __init__(self, graph: Path, comparison: Comparison) -> None:
        """Name a graph and the comparison whose tensors it shows and whose calls it takes."""
        self.label = f"{ENGINE}: {graph.stem}"
        self._graph, self._comparison = graph, comparison

    @property
    def backend(self) -> str:
        """The library and its version."""
        return f"{BACKEND.value} {BACKEND.version}"

    @property
    def names(self) -> Collection[str]:
        """What the engine shows: of what it was asked to, all that the network has, and the graph's own outputs."""
        return self._names

    def __enter__(self) -> Self:
        self._runner = self._build(self._asked())
        self._runner.activate()
        engine, given = self._runner.engine, self._runner.get_input_metadata(use_numpy_dtypes=False)
        shown = map(engine.get_tensor_name, range(engine.num_io_tensors))
        self._names = frozenset(name for name in shown if name not in given)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._runner.deactivate()

    def stream(self, feeds: Mapping[str, Array], wanted: Sequence[str], observe: Observer) -> None:
        """Run once; an engine gives all that it shows, of which the wanted ones are told."""
        found = self._infer(self._runner, feeds)
        for name in wanted:
            observe(name, found[name])

    @contextmanager
    def unmarked(self) -> Iterator[Run]:
        """Build the graph as it is, and run that."""
        with self._build(()) as runner:
            yield lambda feeds: self._infer(runner, feeds)

    def _asked(self) -> frozenset[str]:
        """Name what is compared, what blocks are computed from again, and what must not be there."""
        feeds = {name for part in self._comparison.parts for name in part.feeds}
        return frozenset({*self._comparison.by_name, *feeds, *rotations(self._comparison.config)})

    def _build(self, marked: Collection[str]) -> Any:
        logger(load(BACKEND))
        from polygraphy.backend.trt import (
            CreateConfig,
            EngineFromNetwork,
            NetworkFromOnnxPath,
            PostprocessNetwork,
            Profile,
            TrtRunner,
        )

        profile = Profile()
        for name, shapes in self._shapes().items():
            profile.add(name, min=_bound(shapes, min), opt=shapes[0], max=_bound(shapes, max))
        # FP32 attention has no kernel of its own, so a twin's may be taken apart.
        network = PostprocessNetwork(NetworkFromOnnxPath(str(self._graph), strongly_typed=True), func=_decomposable)
        network = PostprocessNetwork(network, func=partial(_mark, marked=marked), name="mark")
        return TrtRunner(EngineFromNetwork(network, config=CreateConfig(profiles=[profile])), name=self.label)

    def _shapes(self) -> dict[str, list[tuple[int, ...]]]:
        """Give the shapes that every input takes in the calls."""
        shapes: dict[str, list[tuple[int, ...]]] = {}
        for call in self._comparison.calls:
            feeds = {**call.feeds, **self._comparison.reference.past(call, self._comparison.config)}
            for name, array in feeds.items():
                shapes.setdefault(name, []).append(array.shape)
        return shapes

    def _infer(self, runner: Any, feeds: Mapping[str, Array]) -> dict[str, Array]:
        """Run; a BF16 tensor is torch's on the way in and out, because numpy, and so Polygraphy, has no other."""
        import torch
        from polygraphy.datatype import DataType

        # In numpy's types, which are Polygraphy's default here, BF16 is None.
        inputs = runner.get_input_metadata(use_numpy_dtypes=False)
        fed = {}
        for name, array in feeds.items():
            tensor = torch.from_numpy(np.array(array))
            narrow = inputs[name].dtype == DataType.BFLOAT16
            fed[name] = tensor.to(torch.bfloat16) if narrow else tensor
        return {name: wide(value) for name, value in runner.infer(fed, copy_outputs_to_host=True).items()}


def _bound(shapes: Sequence[tuple[int, ...]], choose: Callable[[tuple[int, ...]], int]) -> tuple[int, ...]:
    return tuple(choose(sizes) for sizes in zip(*shapes, strict=True))


def _decomposable(network: Any) -> None:
    """Let every attention of FP32 be taken apart into products and a softmax."""
    trt = load(BACKEND)
    for index in range(network.num_layers):
        layer = network.get_layer(index)
        if layer.type.name == "ATTENTION_INPUT" and layer.get_input(0).dtype == trt.float32:
            layer.__class__ = trt.IAttentionInputLayer
            layer.attention.decomposable = True


def _mark(network: Any, marked: Collection[str]) -> None:
    """Let an engine show more tensors than the graph's outputs; a name that the network lacks is left out."""
    for index in range(network.num_layers):
        layer = network.get_layer(index)
        for tensor in map(layer.get_output, range(layer.num_outputs)):
            if tensor.name in marked and not tensor.is_network_output:
                network.mark_output(tensor)
