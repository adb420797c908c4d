"""network.json: every layer as TensorRT parsed it, a line each, so that two builds can be compared with diff."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

Record = dict[str, Any]


def read_tensor(tensor: Any) -> Record:
    """Name, type and shape of a tensor as TensorRT knows it; -1 is an axis that varies."""
    return {"name": tensor.name, "type": tensor.dtype.name, "shape": list(tensor.shape)}


def read_interface(network: Any) -> dict[str, list[Record]]:
    """The network's inputs and outputs, in order."""
    return {
        "inputs": [read_tensor(network.get_input(index)) for index in range(network.num_inputs)],
        "outputs": [read_tensor(network.get_output(index)) for index in range(network.num_outputs)],
    }


def read_layers(network: Any) -> list[Record]:
    """Every layer in TensorRT's order, which is not always that of the data; an input that is left out is null."""
    return [_read_layer(index, network.get_layer(index)) for index in range(network.num_layers)]


def _read_layer(index: int, layer: Any) -> Record:
    inputs = [layer.get_input(number) for number in range(layer.num_inputs)]
    outputs = [layer.get_output(number) for number in range(layer.num_outputs)]
    return {
        "index": index,
        "kind": layer.type.name,
        "name": layer.name,
        "inputs": [None if tensor is None else read_tensor(tensor) for tensor in inputs],
        "outputs": [read_tensor(tensor) for tensor in outputs],
    }


def count_kinds(layers: Sequence[Record]) -> dict[str, int]:
    """How many layers of each kind there are, most first."""
    return dict(Counter(layer["kind"] for layer in layers).most_common())


def write_network(path: Path, interface: dict[str, list[Record]], layers: Sequence[Record]) -> None:
    """Write interface, totals and layers as JSON."""
    head = {**interface, "kinds": count_kinds(layers), "count": len(layers)}
    lines = ",\n".join(json.dumps(layer, ensure_ascii=False) for layer in layers)
    text = json.dumps(head, indent=1, ensure_ascii=False)
    path.write_text(f'{text[:-2]},\n "layers": [\n{lines}\n]}}\n', encoding="utf-8")
