"""Opens graphs without their weights, under the names of the contract, and parts of them in ONNX Runtime."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import onnx

from artifacts.contract import Form
from artifacts.errors import refuse
from artifacts.layout import ModelFolder
from validate.debugging.cut import needed
from validate.layers.raw_names import raw_names
from validate.layers.subject import open_bytes


def load_graph(folder: ModelFolder, form: Form, *, twin: bool) -> onnx.ModelProto:
    """Load a graph, its external data left alone; a raw export gets the names that the fused graphs have.

    Raises:
        StageError: it is not there, or is no graph.
    """
    path = folder.graph(form, twin=twin)
    if not path.is_file():
        raise refuse(
            f"{path} is missing", expected="a model with export and surgery done", remedy=folder.command("surgery")
        )
    try:
        model = onnx.load(str(path), load_external_data=False)
    except Exception as error:  # protobuf's own
        remedy = folder.command("surgery")
        raise refuse(f"{path} is no graph", expected="an ONNX file", found=str(error), remedy=remedy) from error
    if form is Form.EXPORT:
        renamed = {own: name for name, own in raw_names(model, folder.config()).items()}
        rename(model.graph, renamed)
    return model


def rename(graph: onnx.GraphProto, renamed: dict[str, str]) -> None:
    """Give tensors inside a graph other names."""
    for node in graph.node:
        node.input[:] = [renamed.get(name, name) for name in node.input]
        node.output[:] = [renamed.get(name, name) for name in node.output]
    for value in graph.value_info:
        value.name = renamed.get(value.name, value.name)


def part_of(model: onnx.ModelProto, outputs: Sequence[str]) -> onnx.ModelProto:
    """Give the part of a graph that some of its tensors need, with these as its outputs."""
    nodes, given = needed(model.graph, outputs)
    used = {name for node in nodes for name in node.input}
    known = {value.name: value for value in (*model.graph.value_info, *model.graph.output)}
    part = onnx.ModelProto(ir_version=model.ir_version, opset_import=model.opset_import)
    graph = part.graph
    graph.name = model.graph.name
    graph.node.extend(nodes)
    graph.input.extend(value for value in model.graph.input if value.name in given)
    graph.initializer.extend(tensor for tensor in model.graph.initializer if tensor.name in used)
    graph.output.extend(known.get(name, onnx.ValueInfoProto(name=name)) for name in outputs)
    return part


def open_in_memory(model: onnx.ModelProto, data_folder: Path) -> Any:
    """Open a graph in ONNX Runtime that was never written; its external data lies in the folder that is given.

    Raises:
        StageError: it cannot be opened, as where its data is not whole.
    """
    return open_bytes(model.SerializeToString(), data_folder / "a part of a graph")
