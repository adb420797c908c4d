"""What is asked for: a layer, a tensor, or the first wrong tensor of the last report."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

from artifacts.contract import Form
from artifacts.errors import refuse
from artifacts.layout import ModelFolder
from validate.layers.findings import FirstWrong, LayerFindings
from validate.report import REPORT

FORMS = tuple(form for form in Form if not form.linear)
"""Graphs that a sub-graph may be cut from: the comparison's calls are made for a cache that grows."""


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
        StageError: there is no report, it compared no layers, or nothing is wrong in it.
    """
    command = f"make validate LAYERS=all NAME={folder.name} OUT={folder.root.parent}"
    place = last_report(folder)
    findings = read_layers(place) if place else None
    if findings is None:
        raise refuse(
            f"no report of {folder.root} compares its layers",
            expected="a report that names the first wrong tensor, or --layer or --tensor",
            found=f"{place / REPORT}, without layers" if place else "no report",
            remedy=f"{command}, or make debug LAYER=7",
        )
    if findings.first is None:
        raise refuse(
            f"nothing is wrong in {place}",
            expected="a first wrong tensor, or --layer or --tensor",
            found=f"{findings.compared[0]} tensors compared, all right",
            remedy="make debug LAYER=7, or TENSOR=<name>, to look at one all the same",
        )
    return of_finding(findings.first)


def of_finding(first: FirstWrong) -> Request:
    """Ask for the tensor that a report names, in the graph and the call in which it was wrong."""
    stem = first.subject.rpartition(": ")[2].removesuffix("_fp32")
    forms = {form.value: form for form in FORMS}
    if stem not in forms:
        raise refuse(
            f"{first.name} was wrong in {first.subject}, which no piece is cut from",
            expected=f"one of {', '.join(forms)}",
            remedy=f"make debug TENSOR={first.name}, which cuts it from {Form.MODEL.value}",
        )
    return Request(tensor=first.name, form=forms[stem], call=first.scenario or None, first=first)


def read_layers(report: Path) -> LayerFindings | None:
    """Read what a report's folder holds of the layer-by-layer comparison."""
    raw = json.loads((report / REPORT).read_text(encoding="utf-8")).get("layers")
    return LayerFindings.from_json(raw) if raw else None
