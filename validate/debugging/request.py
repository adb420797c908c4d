"""What is asked for: a layer, a tensor, or the first wrong tensor of the last report."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from artifacts.contract import Form
from artifacts.errors import refuse
from artifacts.layout import ModelFolder
from artifacts.manifest import Manifest
from validate.layers.findings import FirstWrong
from validate.report import REPORT, read_report

FORMS = tuple(form for form in Form if not form.linear)
"""Graphs that a sub-graph may be cut from: the comparison's calls are made for a cache that grows."""
SHOWN = 4
"""Reasons for a no that a message quotes; report.json has all."""


@dataclass(frozen=True)
class Request:
    """What a folder is made for; exactly one of layer and tensor.

    Attributes:
        form: the graph that the piece is cut from.
        call: the call of the comparison whose values are taken; nothing for the usual one.
        first: what the report says of the tensor, if it comes from a report.
    """

    layer: int | None = None
    tensor: str | None = None
    form: Form = Form.MODEL
    call: str | None = None
    first: FirstWrong | None = None


def last_report(folder: ModelFolder) -> Path | None:
    """Give the folder of the report that was written last."""
    reports = sorted((folder.root / "validate").glob(f"*/{REPORT}"), key=lambda path: path.stat().st_mtime)
    return reports[-1].parent if reports else None


def first_wrong(folder: ModelFolder) -> Request:
    """Ask for the first wrong tensor of the last report.

    Raises:
        StageError: there is no report, it is of other graphs, it compared no layers, or it names no wrong tensor.
    """
    place = last_report(folder)
    known = None if place is None else read_report(place, remedy=folder.command("validate"))
    if place is None or known is None or known.layers is None:
        raise refuse(
            f"no report of {folder.root} compares its layers",
            expected="a report that names the first wrong tensor, or --layer or --tensor",
            found=f"{place / REPORT}, without layers" if place else "no report",
            remedy=f"{folder.command('validate')} LAYERS=all, or {folder.command('debug')} LAYER=7",
        )
    _check_graphs(folder, place)
    if known.layers.first is None:
        compared = f"{known.layers.compared[0]} tensors compared, all right"
        raise refuse(
            f"no tensor is the first wrong one in {place}" if known.problems else f"nothing is wrong in {place}",
            expected="a first wrong tensor, or --layer or --tensor",
            found="; ".join([*known.problems[:SHOWN], f"see {place / REPORT}"]) if known.problems else compared,
            remedy=f"{folder.command('debug')} LAYER=7, or TENSOR=<name>, to look at one all the same",
        )
    return of_finding(folder, known.layers.first)


def _check_graphs(folder: ModelFolder, place: Path) -> None:
    """Insist that a report is of the graphs that lie there now; plans may have changed."""
    remedy, digests = folder.command("validate"), folder.digests()
    manifest = Manifest.read(place / "manifest.json", made_by=remedy)
    kinds = (".onnx", ".onnx_data")
    graphs = {name for name in manifest.inputs if (folder.root / name).parent == folder.onnx and name.endswith(kinds)}
    changed = [name for name in manifest.changed_inputs(folder.root, digests) if name in graphs]
    if changed or not graphs:
        raise refuse(
            f"the report in {place} is of other graphs",
            expected="a report of the graphs that lie there now",
            found=f"another {', '.join(changed)}" if changed else "a manifest that names no graph",
            remedy=remedy,
        )


def of_finding(folder: ModelFolder, first: FirstWrong) -> Request:
    """Ask for the tensor that a report names, in the graph and the call in which it was wrong.

    One that could be compared in no call, because it is missing, has no value to look at: then it is its layer.
    """
    stem = first.subject.rpartition(": ")[2].removesuffix("_fp32")
    forms = {form.value: form for form in FORMS}
    if stem not in forms:
        raise refuse(
            f"{first.name} was wrong in {first.subject}, which no piece is cut from",
            expected=f"one of {', '.join(forms)}",
            remedy=f"{folder.command('debug')} TENSOR={first.name}, which cuts it from {Form.MODEL.value}",
        )
    if not first.scenario and first.layer is not None:
        return Request(layer=first.layer, form=forms[stem], first=first)
    return Request(tensor=first.name, form=forms[stem], call=first.scenario or None, first=first)
