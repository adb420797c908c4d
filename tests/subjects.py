"""Puts a hand-made raw export on the table, in memory, so that one pass can be tried alone."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import onnx
import onnx_graphsurgeon as gs
import pytest

from artifacts.contract import Form
from artifacts.errors import StageError
from surgery.fusion import Pass
from surgery.pipeline import FUSE
from surgery.subject import Subject
from surgery.tables import rotary_tables, rotating
from tests.raw_graph import Deviation, write_raw_folder


def subject_of(
    root: Path, deviation: Deviation | None = None, *, before: Pass[Any, Any] | None = None, **changes: object
) -> Subject:
    """Give a subject on which the passes that stand before one have been run."""
    folder = write_raw_folder(root / "hand", deviation, **changes)
    model = onnx.load(str(folder.graph(Form.EXPORT)), load_external_data=False)
    tables = rotary_tables(folder.export_manifest().facts, folder.config(), "")
    subject = Subject(gs.import_onnx(model), folder.config(), rotating(tables, folder.config()))
    if before is not None:
        for step in FUSE[: FUSE.index(before)]:
            step.run(subject)
    return subject


def count(subject: Subject, op: str) -> int:
    """Count the nodes of one operator that an output needs."""
    return sum(node.op == op for node in subject.graph.copy().cleanup().nodes)


def refusal(step: Pass[Any, Any], subject: Subject) -> str:
    """Give what a pass says when it does not fit."""
    with pytest.raises(StageError) as error:
        step.run(subject)
    return str(error.value)
