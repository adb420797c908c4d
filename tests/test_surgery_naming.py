"""Whatever an exporter called it, after surgery it has the contract's name, and a graph of another model has none."""

from pathlib import Path

import onnx

from artifacts import names
from artifacts.contract import Form
from surgery import fuse
from surgery.naming import NAMES
from tests.raw_graph import save_raw, write_export_manifest, write_raw_folder
from tests.subjects import refusal, subject_of


def test_the_names_of_the_contract_are_there_whatever_the_exporter_called_them(tmp_path: Path) -> None:
    folder = write_raw_folder(tmp_path / "hand")
    facts = dict(folder.export_manifest().facts)
    model = onnx.load(str(folder.graph(Form.EXPORT)), load_external_data=False)
    _rename_everything(model)
    save_raw(folder, model)
    write_export_manifest(folder, facts)
    fuse(folder.root, 128)
    parts = (
        names.NORM, names.Q_PROJ, names.K_PROJ, names.V_PROJ, names.ATTENTION, names.O_PROJ, names.RESIDUAL,
        names.POST_NORM, names.GATE_PROJ, names.UP_PROJ, names.DOWN_PROJ, "",
    )  # fmt: skip
    wanted = {names.layer(index, part) for index in range(3) for part in parts}
    wanted |= {names.layer(index, part) for index in (0, 2) for part in (names.Q_ROTARY, names.K_ROTARY)}
    wanted |= {names.EMBEDDING, names.FINAL_NORM, names.MASK}
    weights = {names.layer(index, part) for index in range(3) for part in (*names.LINEAR_WEIGHTS, *names.NORM_WEIGHTS)}
    weights |= {names.EMBEDDING_WEIGHT, f"{names.FINAL_NORM}.weight"}
    for form in (Form.MODEL, Form.MODEL_LINEAR, Form.MODEL_ALL):
        for twin in (False, True):
            graph = onnx.load(str(folder.graph(form, twin=twin)), load_external_data=False).graph
            assert wanted <= {name for node in graph.node for name in node.output}
            assert weights <= {tensor.name for tensor in graph.initializer}
            assert not [node.name for node in graph.node if "thing" in node.name or "thing" in node.output[0]]


def _rename_everything(model: onnx.ModelProto) -> None:
    """Call every tensor but the inputs and outputs `thing_<n>`, with the contract's names among the wrong ones."""
    graph = model.graph
    kept = {value.name for value in (*graph.input, *graph.output)}
    new: dict[str, str] = {"": ""}

    def name(old: str) -> str:
        if old in kept:
            return old
        return new.setdefault(old, "model.layers.0" if len(new) == 9 else f"thing_{len(new)}")

    for tensor in (*graph.initializer, *graph.value_info):
        tensor.name = name(tensor.name)
    for node in graph.node:
        node.name = f"node_{node.name}"
        for part in (node.input, node.output):
            part[:] = [name(old) for old in part]


def test_a_weight_of_another_shape_is_a_miss(tmp_path: Path) -> None:
    subject = subject_of(tmp_path, before=NAMES)
    weight = next(t for t in subject.graph.tensors().values() if t.name == "model.layers.1.mlp.up_proj.weight")
    weight._values.shape = [64, 64]
    text = refusal(NAMES, subject)
    assert "should be model.layers.1.mlp.up_proj.weight, [64, 128], but is [64, 64]" in text


def test_projections_that_changed_places_are_a_miss(tmp_path: Path) -> None:
    subject = subject_of(tmp_path, before=NAMES)
    product = next(node for node in subject.graph.nodes if node.name.startswith("model.layers.1.mlp/Mul_1"))
    sigmoid = next(t for t in product.inputs if t.name.endswith("Mul"))
    product.inputs = [sigmoid, sigmoid.inputs[0].inputs[0]]
    assert "the nearest miss is the model" in refusal(NAMES, subject)
