"""A TensorRT engine as a subject: the one class that differs where a GPU is.

A plan shows nothing but its outputs, so an engine with marked tensors is built for the comparison, from the same graph
by the same options, through Polygraphy. It is another engine than the plan (marks change what is fused), which is why
the last word is the plan's own logits.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import numpy as np

from artifacts.backend import Backend, load
from artifacts.doctor import find_gpus
from runtime.session import Array
from validate.layers.comparison import Comparison
from validate.layers.subject import NetworkSubject, Observer, Run, Subject

BACKEND = Backend.TENSORRT if Backend.TENSORRT.installed else Backend.RTX


def tensorrt(graph: Path, comparison: Comparison) -> Subject:
    """Give TensorRT's view of a graph: an engine where there is a GPU, else the network on the CPU."""
    return EngineSubject(graph, comparison) if find_gpus() else NetworkSubject(graph)


class EngineSubject:
    """A graph built with marked tensors and run on the GPU through Polygraphy's `TrtRunner`."""

    notes: tuple[str, ...] = ()

    def __init__(self, graph: Path, comparison: Comparison) -> None:
        """Name a graph and the comparison whose tensors it shows and whose calls it takes."""
        self.label = f"TensorRT engine: {graph.stem}"
        self._graph, self._comparison = graph, comparison

    @property
    def backend(self) -> str:
        """The library and its version."""
        return f"{BACKEND.value} {BACKEND.version}"

    @property
    def names(self) -> Collection[str]:
        """What the engine was built to show."""
        return self._names

    def __enter__(self) -> Self:
        self._runner = self._build(tuple(self._comparison.by_name))
        self._runner.activate()
        engine = self._runner.engine
        self._names = frozenset(engine.get_tensor_name(index) for index in range(engine.num_io_tensors))
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

    def _build(self, marked: Sequence[str]) -> Any:
        load(BACKEND)
        from polygraphy.backend.trt import (
            CreateConfig,
            EngineFromNetwork,
            ModifyNetworkOutputs,
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
        if marked:
            network = ModifyNetworkOutputs(network, outputs=list(marked))
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
        """Run; a BF16 tensor is torch's on the way in and out, because Polygraphy has no other."""
        import torch

        metadata = runner.get_input_metadata()
        fed = {}
        for name, array in feeds.items():
            tensor = torch.from_numpy(np.ascontiguousarray(array))
            narrow = "BFLOAT16" in str(metadata[name].dtype).upper()
            fed[name] = tensor.to(torch.bfloat16) if narrow else tensor
        found = runner.infer(fed, copy_outputs_to_host=True)
        return {name: value.float().cpu().numpy() if hasattr(value, "cpu") else value for name, value in found.items()}


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
