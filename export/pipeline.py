"""The export stage from checkpoint to manifest; `export_onnx` reads top to bottom."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from artifacts.checkpoint import Checkpoint
from artifacts.config_judgement import nope_source
from artifacts.contract import Form
from artifacts.digest import Digests, sha256_of
from artifacts.errors import Problem, StageError
from artifacts.layout import DATA_FILE, ROTARY_FILE, ModelFolder
from artifacts.manifest import FileRecord, Manifest
from artifacts.versions import own_version, versions
from artifacts.writing import Writing
from export import companions, data_file, room, rotary, skeleton, source, weight_check
from export.background import weights_being_written
from export.options import ExportOptions
from export.progress import Progress

if TYPE_CHECKING:
    import onnx
    from transformers import SmolLM3ForCausalLM

MANIFEST = "export.manifest.json"
TOOLS = ("python", "torch", "transformers", "onnx", "onnx-ir", "onnxscript", "safetensors")


@dataclass(frozen=True)
class OnnxModel:
    """What export made: the folder, its manifest, and whether it was there before."""

    folder: ModelFolder
    manifest: Manifest
    was_current: bool


def export_onnx(options: ExportOptions, progress: Progress | None = None) -> OnnxModel:
    """Export a checkpoint to ONNX; nothing is done where the same export lies there already.

    Args:
        options: which checkpoint, and where to.
        progress: told what is going on; nobody is, if not given.

    Raises:
        StageError: with every reason why this checkpoint cannot be exported, or why it cannot be written.
    """
    progress = progress or Progress()
    folder = options.folder
    progress.step("looking at the checkpoint")
    checkpoint = source.resolve(options.model, options.revision)
    config = checkpoint.config
    digests = folder.digests()
    identity, tools = checkpoint.identity(digests), {**own_version("export"), **versions(*TOOLS)}
    room.check_owner(folder, checkpoint, identity)
    known = _current(folder, digests, identity, tools)
    if known is not None:
        return OnnxModel(folder, known, was_current=True)
    _judge(checkpoint)
    with Writing(folder.onnx) as writing:
        # Once more, now that nobody else writes here: another run may have ended since.
        room.check_owner(folder, checkpoint, identity)
        room.check_space(folder, data_file.total_bytes(data_file.plan(config)), config)
        facts, hashes = _write_files(checkpoint, writing, progress)
        outputs = {
            f"{folder.onnx.name}/{name}": FileRecord.written(writing.path(name), sha) for name, sha in hashes.items()
        }
        manifest = Manifest("export", {}, identity, {}, outputs, tools, facts)
        manifest.write(writing.path(MANIFEST))
        # Before the new files appear: killed in between, the old manifest misses a file, and export runs again.
        companions.sweep(folder.onnx, hashes)
    for name, record in outputs.items():
        digests.remember(folder.root / name, record.sha256)
    return OnnxModel(folder, manifest, was_current=False)


def _judge(checkpoint: Checkpoint) -> None:
    """Look at config, companions and the weights' headers before any work, and give all that is wrong with them."""
    checks: tuple[Callable[[], object], ...] = (
        lambda: skeleton.transformers_config(checkpoint.raw_config),
        lambda: companions.check(checkpoint),
        lambda: weight_check.check(checkpoint.weights(), checkpoint.config),
    )
    problems = list[Problem]()
    for check in checks:
        try:
            check()
        except StageError as error:
            problems += error.problems
    if problems:
        raise StageError(problems)


def _current(folder: ModelFolder, digests: Digests, identity: dict[str, Any], tools: dict[str, str]) -> Manifest | None:
    """Give the manifest of the export that lies there, if this run would make the same one."""
    if not (folder.onnx / MANIFEST).is_file():
        return None
    manifest = folder.export_manifest()
    same = manifest.is_current(folder.root, digests, options={}, checkpoint=identity, inputs={}, tools=tools)
    written = {Path(name).name for name in manifest.outputs}
    return manifest if same and not companions.others(folder.onnx, written) else None


def _write_files(checkpoint: Checkpoint, writing: Writing, progress: Progress) -> tuple[dict[str, Any], dict[str, str]]:
    """Write everything but the manifest.

    Returns:
        The manifest's facts, and each file's sha256.
    """
    config = checkpoint.config
    hashes = {name: sha256_of(writing.path(name)) for name in companions.copy(checkpoint, writing)}
    with weights_being_written(writing.path(DATA_FILE), checkpoint, progress) as weights:
        progress.step("building the model without its weights")
        model = skeleton.untouched_model(checkpoint.raw_config, config)
        progress.step("writing rotary tables")
        hashes[ROTARY_FILE], rotary_facts = rotary.write(writing.path(ROTARY_FILE), model, config)
        graphs = _make_graphs(model, checkpoint, progress)
        for name, graph in graphs.items():
            writing.path(name).write_bytes(graph.SerializeToString(deterministic=True))
            hashes[name] = sha256_of(writing.path(name))
        progress.step("waiting for the weights")
        hashes[DATA_FILE], rounding = weights.result()
    facts = {
        "parameters": config.num_parameters,
        "nope_layers": list(config.nope_layers),
        "nope_source": nope_source(checkpoint.raw_config),
        "max_positions": config.max_positions,
        "nodes": len(graphs[Form.EXPORT.file_name()].graph.node),
        "rounding": rounding.facts(),
        "rotary": rotary_facts,
        "data_sha256": hashes[DATA_FILE],
    }
    return facts, hashes


def _make_graphs(model: SmolLM3ForCausalLM, checkpoint: Checkpoint, progress: Progress) -> dict[str, onnx.ModelProto]:
    """Make the raw export and its FP32 twin, by file name."""
    from artifacts.twin import fp32_twin
    from export.graph import finish
    from export.trace import trace

    config = checkpoint.config
    progress.step(f"tracing {config.num_hidden_layers} layers")
    traced = trace(model, config)
    progress.step("finishing the graph")
    graph = finish(traced, config, data_file.plan(config))
    return {Form.EXPORT.file_name(): graph, Form.EXPORT.file_name(twin=True): fp32_twin(graph, config)}
