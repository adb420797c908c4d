"""A Polygraphy runner that stands where `TrtRunner` stands: an engine of the network that it is given, without a GPU.

Everything before it is real: the parser, the marks, the profile, the runner's own check of what it is fed. The engine
shows what is marked and nothing else, and is TensorRT's network, evaluated on the CPU.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
import torch

from artifacts.backend import load
from validate.layers.engine import BACKEND
from validate.network import Program
from validate.network.constants import Initializers
from validate.network.parse import Parsed
from validate.network.reading import read


class Engine:
    """Stands in for `ICudaEngine`."""

    def __init__(self, path: Path, made: tuple[Any, Any, Any]) -> None:
        """Compile a parsed network as it is, marks included."""
        from polygraphy.backend.trt import util

        builder, network, parser = made
        _, self.inputs = util.get_network_input_names_meta(network)
        self.program = Program(read(Parsed(path, load(BACKEND), network, (), [builder, parser])), Initializers(path))
        self.names = [*self.program.inputs, *self.program.outputs]
        self.num_io_tensors = len(self.names)

    def get_tensor_name(self, index: int) -> str:
        return self.names[index]


def stand_in(monkeypatch: pytest.MonkeyPatch) -> None:
    """Put the stand-in in place, and let the machine say that it has a GPU."""
    load(BACKEND)
    from polygraphy.backend import trt
    from polygraphy.backend.base import BaseRunner

    paths: list[Path] = []
    parse = trt.NetworkFromOnnxPath

    class Runner(BaseRunner):  # type: ignore[misc]  # Polygraphy comes without types
        """Stands in for `TrtRunner`: torch's tensors on the way in and out, in the network's own types."""

        def __init__(self, engine: Callable[[], Engine], name: str) -> None:
            super().__init__(name=name, prefix="stand-in")
            self._engine = engine

        def activate_impl(self) -> None:
            self.engine = self._engine()

        def get_input_metadata_impl(self) -> Any:
            return self.engine.inputs

        def infer_impl(self, feed_dict: Mapping[str, Any], copy_outputs_to_host: bool) -> Any:
            assert copy_outputs_to_host
            assert all(isinstance(value, torch.Tensor) for value in feed_dict.values())
            return OrderedDict(self.engine.program.run(feed_dict))

        def deactivate_impl(self) -> None:
            del self.engine

    def remember(path: str, **options: Any) -> Any:
        paths.append(Path(path))
        return parse(path, **options)

    def build(network: Callable[[], Any], config: Callable[..., Any]) -> Callable[[], Engine]:
        def engine() -> Engine:
            made = network()
            assert config(*made[:2]) is not None  # insists on a profile that fits the network's inputs
            return Engine(paths[-1], made)

        return engine

    monkeypatch.setattr(trt, "NetworkFromOnnxPath", remember)
    monkeypatch.setattr(trt, "EngineFromNetwork", build)
    monkeypatch.setattr(trt, "TrtRunner", Runner)
    monkeypatch.setattr("validate.layers.engine.find_gpus", lambda: ["a GPU"])
