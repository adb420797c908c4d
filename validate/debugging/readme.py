"""The README of a folder: what differs, what lies there, and commands that work on it as they stand."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

import numpy as np

from artifacts import __version__
from artifacts.backend import Backend
from artifacts.contract import Form
from artifacts.versions import versions
from runtime.session import Array
from validate.debugging.comparison import BF16_TOLERANCE, TOLERANCE, Reading, conclusion
from validate.debugging.folder import Piece

TEMPLATE = Path(__file__).with_name("readme.md.jinja")
TOOLS = ("polygraphy", "onnxruntime-gpu", "tensorrt", "tensorrt-rtx", "onnx")
ROOT = Path(__file__).parents[2]


def write_readme(piece: Piece, place: Path) -> None:
    """Write README.md.

    Args:
        piece: what the folder holds, and where it is while it is written.
        place: where the folder will be; the commands count on it.
    """
    import jinja2

    environment = jinja2.Environment(undefined=jinja2.StrictUndefined, keep_trailing_newline=True)
    template = environment.from_string(TEMPLATE.read_text(encoding="utf-8"))
    text = template.render(**_facts(piece), **_commands(piece, place.resolve()))
    (piece.folder / "README.md").write_text(text, encoding="utf-8")


def _facts(piece: Piece) -> dict[str, object]:
    """Give what the prose says."""
    installed = [f"{name} {version}" for name, version in versions(*TOOLS).items() if version != "absent"]
    return {
        "title": piece.cut.title.replace("~", "/"),
        "graph": piece.request.form.file_name(),
        "model": piece.model.name,
        "nodes": piece.nodes,
        "inputs": piece.cut.inputs,
        "outputs": piece.cut.outputs,
        "left_out": piece.cut.left_out,
        "call": piece.call.name,
        "first": piece.request.first,
        "renamed": piece.request.form is Form.EXPORT,
        "padded": not piece.call.real.all(),
        "raw": piece.raw,
        "readings": piece.readings,
        "reference_words": f"ONNX Runtime on the {'raw export' if piece.raw else 'graph'}'s FP32 twin",
        "conclusion": conclusion(piece.readings, piece.unlike),
        "versions": ", ".join([f"this project's version {__version__}", *installed]),
        "tolerance": TOLERANCE,
        "bf16_tolerance": BF16_TOLERANCE,
        "bf16_slope": max(reading.limit for reading in piece.readings if reading.bf16),
    }


def _commands(piece: Piece, place: Path) -> dict[str, object]:
    """Give what the commands need."""
    source = piece.model.graph(piece.request.form, twin=True).resolve()
    return {
        "switch": int(Backend.preferred() is Backend.RTX),
        "root": os.path.relpath(ROOT, place),
        "source": os.path.relpath(source, place),
        "right": _right(piece.readings),
        "atol": tolerances(piece.expected, TOLERANCE),
        "bf16_atol": tolerances(piece.expected, BF16_TOLERANCE),
        "input_metadata": " ".join(_metadata(name, piece.feeds[name]) for name in piece.cut.inputs),
        "output_metadata": " ".join(f"{name}:{array.dtype}" for name, array in piece.expected.items()),
    }


def _right(readings: tuple[Reading, ...]) -> dict[str, bool]:
    """Say which of Polygraphy's comparisons pass, which look at the largest difference only, and who is right in all.

    `reduce` is whether the twin's own values can stand for what is right.
    """
    limits = {"twin": TOLERANCE, "network": TOLERANCE, "bf16": BF16_TOLERANCE}
    sides = dict(zip(limits, dict.fromkeys(reading.side for reading in readings), strict=True))
    found = {
        name: all(r.error <= limits[name] and not r.problem for r in readings if r.side == side)
        for name, side in sides.items()
    }
    whole = {f"{name}_all": all(r.right for r in readings if r.side == side) for name, side in sides.items()}
    found |= whole | {"reduce": whole["twin_all"]}
    return found | {"slope": all(abs(r.slope - 1) <= r.limit for r in readings if r.bf16)}


def tolerances(expected: Mapping[str, Array], part: float) -> str:
    """Spell Polygraphy's absolute tolerance of each output: a part of its largest magnitude, a bool's is none."""
    return " ".join(
        f"{name}:{part * float(np.abs(array.astype(np.float32)).max()):.3g}" for name, array in expected.items()
    )


def _metadata(name: str, array: Array) -> str:
    return f"{name}:[{','.join(map(str, array.shape))}]:{array.dtype}"
