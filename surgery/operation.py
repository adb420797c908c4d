"""One raw export becomes six graphs, which appear together with the manifest that vouches for them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import onnx
import onnx_graphsurgeon as gs
from google.protobuf.message import DecodeError  # type: ignore[import-untyped]  # protobuf ships no types
from onnx_graphsurgeon.logger import G_LOGGER

from artifacts.contract import Form
from artifacts.digest import Digests
from artifacts.errors import Problem, StageError
from artifacts.external import external_problems
from artifacts.layout import DATA_FILE, ROTARY_FILE, ModelFolder
from artifacts.manifest import FileRecord, Manifest
from artifacts.names import FP32_SUFFIX, ROTARY_COS, ROTARY_SIN
from artifacts.twin import fp32_twin
from artifacts.versions import own_version, versions
from artifacts.writing import Writing
from surgery.inventory import check_fused, check_onnx, check_raw, operators
from surgery.options import SurgeryOptions
from surgery.pipeline import FOR_TENSORRT, FORMS, FUSE, operate
from surgery.subject import Subject
from surgery.tables import holder, rotary_tables, rotating

MANIFEST = "surgery.manifest.json"
TOOLS = ("onnx", "onnx-graphsurgeon", "numpy")


@dataclass(frozen=True)
class FusedModel:
    """The fused graphs of one model, and what their manifest says.

    Attributes:
        folder: the model's folder.
        manifest: the manifest of this run, or of the earlier one that made the same.
        up_to_date: whether nothing had to be done.
    """

    folder: ModelFolder
    manifest: Manifest
    up_to_date: bool


@dataclass(frozen=True)
class Graph:
    """One graph that is ready to be written."""

    name: str
    model: onnx.ModelProto
    passes: Mapping[str, int]


def fuse(root: Path, capacity: int | None = None, tell: Callable[[str], None] = lambda text: None) -> FusedModel:
    """Make every form of the fused graph and its FP32 twin from `onnx/export.onnx`.

    Args:
        root: the model's folder, `OUT/<model>`.
        capacity: slots of the linear cache; if not given, what the graphs there have, else 4096, or the model's
            positions where it has fewer.
        tell: is told what is being done.

    Raises:
        StageError: the export is missing, was changed, or is not a graph that the passes fit (see the message).
    """
    folder = ModelFolder(root)
    made = folder.export_manifest()
    digests = folder.digests()
    names = [f"onnx/{name}" for name in (Form.EXPORT.file_name(), DATA_FILE, ROTARY_FILE, "config.json")]
    raw = _read(folder, made, digests, names)
    inputs = {name: made.outputs[name] for name in names}
    if capacity is None:
        capacity = _chosen_before(folder, made)
    options = asdict(SurgeryOptions.for_model(folder.config(), capacity))
    tools = {**own_version("surgery"), **versions(*TOOLS)}
    known = _current(folder, digests, options=options, checkpoint=made.checkpoint, inputs=inputs, tools=tools)
    if known:
        return FusedModel(folder, known, up_to_date=True)
    facts: dict[str, Any] = {"capacity": options["capacity"]}
    with Writing(folder.onnx) as writing:
        outputs = {}
        for graph in _operate(folder, raw, made.facts, options["capacity"], facts, tell):
            path = writing.path(graph.name)
            path.write_bytes(graph.model.SerializeToString())
            check_onnx(path, graph.name)
            outputs[f"onnx/{graph.name}"] = FileRecord.written(path)
            facts["graphs"][graph.name] = _facts(graph)
        manifest = Manifest("surgery", options, made.checkpoint, inputs, outputs, tools, facts)
        manifest.write(writing.path(MANIFEST))
    for name, record in outputs.items():
        digests.remember(folder.root / name, record.sha256)
    return FusedModel(folder, manifest, up_to_date=False)


def _chosen_before(folder: ModelFolder, made: Manifest) -> int | None:
    """Give the capacity of the graphs that lie there: whoever chose one keeps it until another is given."""
    try:
        known = folder.surgery_manifest()
    except StageError:
        return None
    capacity = known.options.get("capacity")
    return capacity if known.checkpoint == made.checkpoint and isinstance(capacity, int) else None


def _read(folder: ModelFolder, made: Manifest, digests: Digests, names: list[str]) -> onnx.ModelProto:
    """Read the raw export, without its data, after everything about its files was checked."""
    problems: list[Problem] = []
    try:
        made.check_outputs(folder.root, digests, made_by=folder.command("export"), only=names)
    except StageError as error:
        problems.extend(error.problems)
    model = onnx.ModelProto()
    path = folder.graph(Form.EXPORT)
    try:
        model = onnx.load(str(path), load_external_data=False)
    except FileNotFoundError:
        pass
    except DecodeError as error:
        problems.append(Problem(f"{path} is not an ONNX graph", "a protobuf", str(error), folder.command("export")))
    problems += external_problems(model, folder.onnx, folder.command("export"))
    if problems:
        raise StageError(problems)
    return model


def _current(folder: ModelFolder, digests: Digests, **wanted: Any) -> Manifest | None:
    """Give the manifest of an earlier run that made what this one would make, or nothing."""
    if not (folder.onnx / MANIFEST).exists():
        return None
    try:
        known = folder.surgery_manifest()
    except StageError:
        return None
    return known if known.is_current(folder.root, digests, **wanted) else None


def _operate(
    folder: ModelFolder,
    raw: onnx.ModelProto,
    made: Mapping[str, Any],
    capacity: int,
    facts: dict[str, Any],
    tell: Callable[[str], None],
) -> Iterator[Graph]:
    """Yield every graph, checked; `facts` gets what the common passes did."""
    # graphsurgeon has a line to say about every BF16 tensor.
    G_LOGGER.severity = G_LOGGER.ERROR
    config = folder.config()
    tables = rotary_tables(made, config, folder.command("export"))
    problems = external_problems(holder(tables), folder.onnx, folder.command("export"))
    if problems:
        raise StageError(problems)
    check_onnx(folder.graph(Form.EXPORT), Form.EXPORT.file_name())
    check_raw(raw, config)
    tell("fusing")
    subject = Subject(gs.import_onnx(raw), config, rotating(tables, config))
    facts |= {"passes": operate(subject, FUSE), "stripped": subject.stripped, "graphs": {}}
    subject.to_current_opset()
    wide = {name: tables[name + FP32_SUFFIX] for name in (ROTARY_COS, ROTARY_SIN)}
    for form, steps in FORMS.items():
        tell(form.file_name())
        patient = subject.copy(capacity if form.linear else None)
        yield from _pair(patient, form, operate(patient, steps), wide)


def _pair(
    patient: Subject, form: Form, passes: dict[str, int], wide: Mapping[str, onnx.TensorProto]
) -> Iterator[Graph]:
    """Yield a graph and the FP32 twin of what it is before the last steps."""
    twin = fp32_twin(gs.export_onnx(patient.graph, do_type_check=False), patient.config, wide)
    last = operate(patient, FOR_TENSORRT)
    model = gs.export_onnx(patient.graph, do_type_check=False)
    for graph, of_twin, made in ((model, False, last | passes), (twin, True, passes)):
        check_fused(graph, patient.config, form, twin=of_twin, capacity=patient.capacity)
        yield Graph(form.file_name(twin=of_twin), graph, made)


def _facts(graph: Graph) -> dict[str, Any]:
    """Give what a manifest says of one graph."""
    counts = operators(graph.model)
    return {"nodes": counts.total(), "operators": dict(counts.most_common()), "passes": dict(graph.passes)}
