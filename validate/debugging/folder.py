"""Makes the folder: cut, capture, evaluate, compare, and write everything under Polygraphy's own file formats."""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import onnx

from artifacts import names
from artifacts.backend import Backend, load
from artifacts.config import ModelConfig
from artifacts.contract import Form
from artifacts.layout import ModelFolder
from artifacts.writing import cannot_write
from runtime.session import Array
from validate.debugging.comparison import Reading, read_all, slope_limit
from validate.debugging.cut import Cut, around_layer, around_tensor, producers, unlike
from validate.debugging.graphs import load_graph
from validate.debugging.readings import (
    change_by_scores,
    every_tensor,
    network_outputs,
    save_feeds,
    save_outputs,
    with_aliases,
)
from validate.debugging.request import Request, first_wrong, last_report
from validate.debugging.subgraph import extract, fp32_border, last_position, save
from validate.debugging.truth import capture, choose_call
from validate.layers.anatomy import ATTENTION, parts
from validate.layers.calls import Call
from validate.network import LABEL

REFERENCE = "reference, ONNX Runtime on the CPU"
TWIN = "twin.onnx, ONNX Runtime on the CPU"


@dataclass(frozen=True)
class Piece:
    """What a folder holds.

    Attributes:
        folder: where everything was written.
        model: the model that it is a piece of.
        cut: the borders of twin.onnx.
        unlike: that bf16.onnx begins elsewhere, in words; nothing if it does not.
        request: what it was made for.
        call: the call whose values it holds.
        readings: how far each side's outputs are from the reference's.
        nodes: nodes of twin.onnx.
        raw: whether the reference is a piece of the raw export (else it is twin.onnx itself).
        feeds: what all its graphs are fed.
        expected: the reference's outputs.
    """

    folder: Path
    model: ModelFolder
    cut: Cut
    unlike: str
    request: Request
    call: Call
    readings: tuple[Reading, ...]
    nodes: int
    raw: bool
    feeds: Mapping[str, Array]
    expected: Mapping[str, Array]


def debug(root: Path, request: Request | None = None) -> Piece:
    """Make a folder for a Polygraphy session.

    Args:
        root: `OUT/<model>`, with export and surgery done.
        request: what to cut out; the first wrong tensor of the last report if not given.

    Raises:
        StageError: nothing is wrong in the last report, or there is no such layer, tensor or call.
    """
    from validate.debugging.readme import write_readme

    _load_polygraphy()
    model = ModelFolder(root)
    request = request or first_wrong(model)
    config = model.config()
    graph, bf16 = (load_graph(model, request.form, twin=twin) for twin in (True, False))
    if request.layer is not None:
        cut = around_layer(graph.graph, bf16.graph, config, request.layer)
    else:
        cut = around_tensor(graph.graph, bf16.graph, config, request.tensor or "")
    call = choose_call(config, request.call)
    place = (last_report(model) or root / "validate" / "unreported") / "polygraphy" / _folder_name(cut, request, call)
    with _whole_folder(place) as folder:
        piece = _fill(folder, model, config, (graph, bf16), cut, request, call)
        write_readme(piece, place)
    return replace(piece, folder=place)


def _folder_name(cut: Cut, request: Request, call: Call) -> str:
    """Name a folder by what it is a piece of, the graph and the call: two of them never share one."""
    return "@".join((cut.title, request.form.value, re.sub(r"[^a-z0-9]+", "-", call.name)))


def _fill(
    folder: Path,
    model: ModelFolder,
    config: ModelConfig,
    graphs: tuple[onnx.ModelProto, onnx.ModelProto],
    cut: Cut,
    request: Request,
    call: Call,
) -> Piece:
    """Write everything but the README; the graphs are the FP32 twin and the one in BF16."""
    graph, bf16 = graphs
    raw = load_graph(model, Form.EXPORT, twin=True)
    is_raw = set(cut.outputs) <= producers(raw.graph).keys()
    source = raw if is_raw else graph
    truth, narrow = cut.of(source.graph), cut.of(bf16.graph)
    feeds = capture(model, config, source, call, dict.fromkeys((*cut.inputs, *truth.inputs, *narrow.inputs)))
    save(extract(graph, model.onnx, cut, feeds), folder / "twin.onnx")
    save(fp32_border(extract(bf16, model.onnx, narrow, feeds)), folder / "bf16.onnx")
    tensors = every_tensor(folder / "twin.onnx", feeds)
    own = {name: tensors[name] for name in cut.outputs}
    expected = own
    if is_raw:
        reference = extract(raw, model.onnx, truth, feeds)
        for name in cut.outputs:
            last_position(reference, name, own[name].shape)
        save(reference, folder / "reference.onnx")
        expected = every_tensor(folder / "reference.onnx", feeds)
        expected = {name: _without_padding(call, expected[name], own[name]) for name in cut.outputs}
    elif cut.outputs == (names.MASK,):
        expected = {names.MASK: call.mask}
    sides = {
        "ONNX Runtime: twin.onnx": own,
        f"{LABEL}: twin.onnx": network_outputs(folder / "twin.onnx", feeds),
        f"{LABEL}: bf16.onnx": network_outputs(folder / "bf16.onnx", feeds),
    }
    query = _query(config, cut)
    change = change_by_scores(folder / "twin.onnx", feeds, query, cut.outputs[0]) if query in cut.inputs else None
    _write_values(folder, feeds, tensors, expected, sides)
    nodes = len(onnx.load(str(folder / "twin.onnx"), load_external_data=False).graph.node)
    slope = slope_limit(int(call.real.sum()), whole_layer=request.layer is not None)
    readings = read_all(expected, sides, slope, change)
    apart = unlike(cut, narrow)
    return Piece(folder, model, cut, apart, request, call, readings, nodes, is_raw, feeds, expected)


def _query(config: ModelConfig, cut: Cut) -> str:
    """Give the query that an attention is made of; nothing where the piece is no attention alone."""
    attentions = {part.name: part.feeds[0] for part in parts(config) if part.kind == ATTENTION}
    return attentions.get(cut.outputs[0], "") if len(cut.outputs) == 1 else ""


def _write_values(
    folder: Path,
    feeds: Mapping[str, Array],
    tensors: Mapping[str, Array],
    expected: Mapping[str, Array],
    sides: Mapping[str, Mapping[str, Array]],
) -> None:
    """Write values as Polygraphy's JSON."""
    save_feeds(feeds, folder / "inputs.json")
    save_outputs(expected, REFERENCE, folder / "reference.json")
    network, network_bf16 = list(sides)[1:]
    save_outputs(sides[network], network, folder / "network.json")
    save_outputs(sides[network_bf16], network_bf16, folder / "network_bf16.json")
    every = with_aliases({**feeds, **tensors}, folder / "bf16.onnx")
    save_feeds(every, folder / "every_input.json")
    save_outputs(every, TWIN, folder / "every_output.json")


def _without_padding(call: Call, expected: Array, own: Array) -> Array:
    """Put the twin's own values where a new token is padding: graphs differ there, and nothing real depends on it."""
    axis = expected.ndim - 2
    if axis < 1 or expected.shape[axis] != call.real.shape[1] or call.real.all():
        return expected
    padding = np.expand_dims(~call.real, (*range(1, axis), expected.ndim - 1))
    found: Array = np.where(padding, own, expected)
    return found


def _load_polygraphy() -> None:
    """Import Polygraphy on the side of the TensorRT that is installed; its warnings are about its own colours."""
    load(Backend.preferred())
    from onnx_graphsurgeon.logger import G_LOGGER as SURGEON
    from polygraphy.logger import G_LOGGER as POLYGRAPHY

    SURGEON.severity = SURGEON.ERROR
    POLYGRAPHY.module_severity = POLYGRAPHY.ERROR


@contextmanager
def _whole_folder(place: Path) -> Iterator[Path]:
    """Give a folder to fill that takes its place when the block ends well, and goes away when it does not."""
    work = place.parent / f".writing.{os.getpid()}.{place.name}"
    try:
        work.mkdir(parents=True)
        yield work
        shutil.rmtree(place, ignore_errors=True)
        work.replace(place)
    except OSError as error:
        raise cannot_write(place, error) from error
    finally:
        shutil.rmtree(work, ignore_errors=True)
