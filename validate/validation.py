"""The stage: open the inputs, run the runners, judge, and put the report in its place."""

from __future__ import annotations

import hashlib
import os
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from artifacts.backend import Backend
from artifacts.command import stderr
from artifacts.errors import refuse
from artifacts.manifest import FileRecord, Manifest
from artifacts.versions import own_version, versions
from artifacts.writing import Writing, cannot_write, is_refusal_of_the_disk
from validate.exam import read_text
from validate.inputs import Inputs, open_inputs
from validate.layers import ENGINE, NAMED
from validate.prompt import DEFAULT_PROMPT
from validate.report import REPORT, Report, read_report

TOOLS = ("onnxruntime-gpu", "torch", "transformers", "tokenizers", "numpy", "tensorrt", "tensorrt-rtx", "python")
MANIFEST = "manifest.json"
SHOWN_BY = "TensorRT shown by"
"""What a manifest calls the subject that stands for TensorRT: a report of a network is none of an engine."""
_WORK = ".work."


@dataclass(frozen=True)
class Options:
    """What a validation may be told.

    Attributes:
        prompt: the text that every runner continues; without a tokenizer seeded ids stand for it.
        tokens: how many tokens it is continued by.
        layers: what is compared layer by layer: `named`, `all`, layers such as `3,7`, or tensors by name.
        thorough: evaluate TensorRT's networks through every scenario at any size.
        text: a file whose perplexity is measured, instead of the text of the checkpoint's exam.
    """

    prompt: str = DEFAULT_PROMPT
    tokens: int = 32
    layers: str = NAMED
    thorough: bool = False
    text: Path | None = None

    def __post_init__(self) -> None:
        if self.tokens < 1:
            found = f"--tokens {self.tokens}"
            raise refuse("there is nothing to continue", expected="at least 1 token", found=found, remedy="--tokens 32")
        if not self.prompt:
            raise refuse("the prompt is empty", expected="a text", found="--prompt ''", remedy="give a --prompt")

    def record(self) -> dict[str, Any]:
        """Give plain JSON values; of the text its digest, which says whether it is the same still.

        Raises:
            StageError: the text cannot be read.
        """
        digest = None if self.text is None else hashlib.sha256(read_text(self.text).encode()).hexdigest()
        return {**asdict(self), "text": digest}


def validate(root: Path, options: Options | None = None) -> Report:
    """Compare every way to run a model with PyTorch in FP32.

    Args:
        root: `OUT/<model>`, with export and surgery done.
        options: what to continue, and how far.

    Returns:
        The report, which lies in `OUT/<model>/validate/<target>/`.

    Raises:
        StageError: an input is not what it should be, or a runner could not do it.
    """
    from validate.layers.engine import shown_by

    options = options or Options()
    record = options.record()
    inputs = open_inputs(root)
    tools = {**own_version("build", "runtime", "validate"), **versions(*TOOLS), SHOWN_BY: shown_by()}
    target = target_name(tools)
    place = inputs.folder.target("validate", target)
    earlier = _earlier(inputs, place, record, tools)
    if earlier is not None:
        return earlier
    with _work_folder(place.parent) as work:
        report = _examine(inputs, target, options, work)
    outputs = _write_page(inputs, report, tools)
    with Writing(place) as writing:
        report.write(writing.path(REPORT))
        written = FileRecord.written(writing.path(REPORT))
        outputs[inputs.folder.relative(place / REPORT)] = written
        tensors, elements = report.compared
        facts = {"verdict": "yes" if report.verdict else "no", "tensors": tensors, "elements": elements}
        manifest = Manifest("validate", record, inputs.identity, inputs.records, outputs, tools, facts)
        manifest.write(writing.path(MANIFEST))
    inputs.digests.remember(place / REPORT, written.sha256)
    return report


def target_name(tools: Mapping[str, str]) -> str:
    """Name a report after what ran: ONNX Runtime on the CPU, and TensorRT on a GPU where there is one."""
    name = f"onnxruntime-{tools['onnxruntime-gpu']}-cpu"
    if not tools[SHOWN_BY].startswith(ENGINE):
        return name
    backend = Backend.preferred().value
    return f"{name}_{backend}-{tools[backend]}-gpu"


def _write_page(inputs: Inputs, report: Report, tools: dict[str, str]) -> dict[str, FileRecord]:
    """Write the report to be looked at, and record its files."""
    from validate.page import write_page

    return {inputs.folder.relative(path): FileRecord.of(path, inputs.digests) for path in write_page(report, tools)}


def _earlier(inputs: Inputs, place: Path, record: dict[str, Any], tools: dict[str, str]) -> Report | None:
    """Give the report of an earlier run on the very same inputs, if there is one."""
    if not (place / MANIFEST).is_file():
        return None
    command = inputs.folder.command("validate")
    manifest = Manifest.read(place / MANIFEST, made_by=command)
    current = manifest.is_current(
        inputs.folder.root,
        inputs.digests,
        options=record,
        checkpoint=inputs.identity,
        inputs=inputs.records,
        tools=tools,
    )
    return read_report(place, command) if current else None


def _examine(inputs: Inputs, target: str, options: Options, work: Path) -> Report:
    """Run every runner and put what they found together."""
    from validate import kinship
    from validate.exam import paper
    from validate.layers.compare import Graphs, asked_parts
    from validate.plans import look
    from validate.prompt import Reader
    from validate.runners import left_out
    from validate.supervision import run_all, run_layers
    from validate.worker import Order

    asked_parts(inputs.config, Graphs.of(inputs.folder), options.layers)
    reader = Reader(inputs.folder.onnx, inputs.config)
    prompt = reader.encode(options.prompt)
    _check_length(len(prompt.ids), options.tokens, inputs.config.max_positions)
    asked = paper(inputs.folder.onnx, inputs.config, reader, options.text)
    unwanted = left_out(inputs.config, thorough=options.thorough)
    identity, brief = dict(inputs.identity), bool(unwanted)
    order = Order(work, inputs.folder.root, identity, prompt.ids, options.tokens, options.layers, brief, asked)
    order.write()
    findings = run_all(order, inputs.config, stderr(), unwanted)
    for sheet in filter(None, (found.sheet for found in findings)):
        sheet.texts = [reader.decode(one.tokens if one else ()) or "" for one in sheet.answers]
    layers = run_layers(order, inputs.config, stderr())
    texts = {found.runner: reader.decode(found.continuation.tokens) for found in findings}
    return Report(
        inputs.folder.name,
        target,
        inputs.config.uses_rope,
        prompt,
        tuple(findings),
        {runner: text for runner, text in texts.items() if text is not None},
        look(inputs.folder, inputs.digests),
        inputs.folder.target("validate", target),
        layers,
        unwanted,
        kinship.look(inputs.folder),
        asked,
    )


def _check_length(prompt: int, tokens: int, positions: int) -> None:
    """Insist that a prompt and its continuation have a position for each token."""
    if prompt + tokens > positions:
        raise refuse(
            "the prompt and its continuation are longer than the model's positions",
            expected=f"at most {positions} tokens",
            found=f"{prompt} + {tokens}",
            remedy="a shorter --prompt, or fewer --tokens",
        )


@contextmanager
def _work_folder(parent: Path) -> Iterator[Path]:
    """Give a folder for results between processes; it goes away, and so do those of killed runs."""
    work = parent / f"{_WORK}{os.getpid()}"
    try:
        parent.mkdir(parents=True, exist_ok=True)
        for left in parent.glob(f"{_WORK}*"):
            if not Path("/proc", left.name.removeprefix(_WORK)).exists():
                shutil.rmtree(left, ignore_errors=True)
        work.mkdir()
    except OSError as error:
        raise cannot_write(parent, error) from error
    try:
        yield work
    except OSError as error:
        if is_refusal_of_the_disk(error):
            raise cannot_write(parent, error) from error
        raise
    finally:
        shutil.rmtree(work, ignore_errors=True)
