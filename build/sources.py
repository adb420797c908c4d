"""What a plan is made from, believed only if every digest is the one that its manifest names."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from artifacts.config import ModelConfig
from artifacts.contract import Form
from artifacts.digest import Digests
from artifacts.layout import ModelFolder
from artifacts.manifest import FileRecord
from build.graph import SourceGraph, read_graph


@dataclass(frozen=True)
class Sources:
    """The inputs of one build.

    Attributes:
        folder: the model's folder.
        config: the model's facts.
        graph: the graph.
        checkpoint: identity of the checkpoint that the graph came from.
        files: size and digest of the graph, its data files and the config, as manifests name them.
        digests: the memory of digests.
    """

    folder: ModelFolder
    config: ModelConfig
    graph: SourceGraph
    checkpoint: Mapping[str, Any]
    files: Mapping[str, FileRecord]
    digests: Digests


def read_sources(folder: ModelFolder, form: Form) -> Sources:
    """Read what surgery and export made.

    Raises:
        StageError: something is missing or another file than the manifests name, or the graphs are older than the
            export; each with the command that mends it.
    """
    surgery, export, digests = folder.surgery_manifest(), folder.export_manifest(), folder.digests()
    folder.check_descent(export, surgery)
    graph_name, config_name = folder.relative(folder.graph(form)), folder.relative(folder.onnx / "config.json")
    surgery.check_outputs(folder.root, digests, made_by=folder.command("surgery"), only=[graph_name])
    export.check_outputs(folder.root, digests, made_by=folder.command("export"), only=[config_name])
    config = folder.config()
    graph = read_graph(folder, form, config)
    data = [folder.relative(folder.onnx / name) for name in graph.data_files]
    export.check_outputs(folder.root, digests, made_by=folder.command("export"), only=data)
    files = {graph_name: surgery.outputs[graph_name]}
    files |= {name: export.outputs[name] for name in (config_name, *data)}
    return Sources(folder, config, graph, surgery.checkpoint, files, digests)
