"""The whole comparison of one model: reference, ONNX Runtime, TensorRT's networks; one model in memory at a time."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from artifacts.config import ModelConfig
from artifacts.contract import Form
from artifacts.layout import ModelFolder
from validate.layers import ALL, NAMED
from validate.layers.anatomy import Part, every, made_by_nodes, narrow, parts
from validate.layers.calls import calls
from validate.layers.comparison import Comparison
from validate.layers.engine import tensorrt
from validate.layers.examination import Examination
from validate.layers.findings import LayerFindings
from validate.layers.last_word import keep_marked, last_word, record
from validate.layers.raw_names import raw_names
from validate.layers.record import Record
from validate.layers.strangers import strangers
from validate.layers.subject import NetworkSubject, OnnxRuntimeSubject, Subject

STEPS = 4
"""Things that are run one after another: the reference, ONNX Runtime, TensorRT's two networks."""
REFERENCE = "ONNX Runtime on the raw export's FP32 twin, which is held against PyTorch"
CAST = "ONNX Runtime and Polygraphy take no BF16: the cache that is fed holds values of BF16, widened to FP32 for them"
MARKED = "a graph with marked tensors is optimised as another graph: the last word is the unmarked graph's logits"
BRIEF = (
    "a large model is loaded seldom: ONNX Runtime's fused twin, and the twins' logits with nothing marked, were "
    "compared with PyTorch above and not once more here; --thorough does both"
)

Progress = Callable[[int], None]
"""Is told how many of the steps are done."""


@dataclass(frozen=True)
class Graphs:
    """The graphs of one comparison: which is the reference, and what stands beside it."""

    raw_twin: Path
    twin: Path
    network: Path

    @classmethod
    def of(cls, folder: ModelFolder) -> Graphs:
        """Take the raw export's twin, and the graph that build takes with its twin."""
        form = Form.MODEL
        return cls(folder.graph(Form.EXPORT, twin=True), folder.graph(form, twin=True), folder.graph(form))


def compare(
    config: ModelConfig,
    graphs: Graphs,
    work: Path,
    asked: str = NAMED,
    progress: Progress = lambda step: None,
    *,
    brief: bool = False,
) -> LayerFindings:
    """Compare layer by layer.

    Args:
        config: the model's facts.
        graphs: what is compared.
        work: a folder for what the reference and the BF16 network make; 0.6 GB for 135M parameters, 4 GB for 3B.
        asked: `named`, `all`, layers (`3,7`) or tensors by name.
        progress: is told how far it is.
        brief: see `Comparison.brief`, and what `BRIEF` says of it.

    Raises:
        StageError: a graph cannot be opened or parsed, or nothing of that name is there.
    """
    wanted, reference = asked_parts(config, graphs, asked), Record(work / "reference")
    comparison = Comparison(config, wanted, calls(config), reference, brief)
    progress(0)
    run_reference(comparison, graphs.raw_twin)
    return judge_graphs(comparison, graphs, Record(work / "network"), asked, progress)


def judge_graphs(
    comparison: Comparison, graphs: Graphs, network: Record, asked: str = NAMED, progress: Progress = lambda step: None
) -> LayerFindings:
    """Judge a fused graph and its twin against a reference that has been run; one model in memory at a time."""
    examination, config = Examination(comparison), comparison.config
    progress(1)
    if comparison.brief:
        examination.notes.append(BRIEF)
    else:
        fused = OnnxRuntimeSubject(graphs.twin, comparison.by_name)
        with fused:
            examination.structure(fused)
        examination.last.append(last_word(comparison, fused, twin=True))
    progress(2)
    bf16 = tensorrt(graphs.network, comparison)
    with bf16:
        comparison.record(bf16, network)
        said = network if isinstance(bf16, NetworkSubject) else None
        examination.last.append(last_word(comparison, bf16, twin=False, said=said))
        notes, backend, problems = [*bf16.notes], bf16.backend, strangers(config, bf16.names, bf16.label)
    progress(3)
    with NetworkSubject(graphs.twin) as blocks, _beside(blocks, graphs.twin, comparison) as twin:
        examination.structure(twin)
        examination.precision(blocks, network, bf16.label)
        if not comparison.brief:
            examination.last.append(last_word(comparison, twin, twin=True))
        notes += blocks.notes
        problems += strangers(config, blocks.names, twin.label)
    ties = filter(None, (word.note for word in examination.last))
    return LayerFindings(
        asked=asked,
        reference=REFERENCE,
        backend=backend,
        scenarios=tuple(call.name for call in comparison.calls),
        tensors=tuple(sorted(examination.rows, key=lambda row: row.order)),
        first=examination.first,
        last_word=tuple(examination.last),
        problems=(*examination.problems, *problems),
        notes=(*examination.notes, *ties, *dict.fromkeys(notes), CAST, MARKED),
    )


@contextmanager
def _beside(blocks: NetworkSubject, graph: Path, comparison: Comparison) -> Iterator[Subject]:
    """Give TensorRT's view of the twin that computes blocks: that network itself, or an engine of the same graph."""
    subject = tensorrt(graph, comparison)
    if isinstance(subject, NetworkSubject):
        yield blocks
    else:
        with subject:
            yield subject


def run_reference(comparison: Comparison, raw_twin: Path) -> None:
    """Let the reference make every call, marked and then, if it is not to be brief, unmarked."""
    import onnx

    called = raw_names(onnx.load(str(raw_twin), load_external_data=False), comparison.config)
    reference = OnnxRuntimeSubject(raw_twin, comparison.by_name, called)
    with reference:
        comparison.record(reference)
    if comparison.brief:
        keep_marked(comparison)
    else:
        record(comparison, reference)


def asked_parts(config: ModelConfig, graphs: Graphs, asked: str) -> tuple[Part, ...]:
    """Give the tensors that were asked for, in graph order; only the fused twin's own file is read.

    Raises:
        StageError: there is no such layer or tensor.
    """
    known = parts(config)
    if asked == NAMED:
        return known
    whole = every(known, made_by_nodes(graphs.twin))
    return whole if asked == ALL else narrow(whole, asked)
