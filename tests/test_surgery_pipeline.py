"""Forms differ where they should; a pass that does not fit says how near it came."""

from pathlib import Path

import onnx
import pytest

from artifacts.config import ModelConfig
from artifacts.contract import Form
from artifacts.errors import StageError
from artifacts.layout import ModelFolder
from surgery import fuse
from surgery.fusion import Pass, nearest
from surgery.inventory import check_fused, check_raw, expected_operators, operators
from surgery.options import SurgeryOptions
from surgery.tables import rotary_tables
from surgery.walk import Miss, Walk
from tests.raw_graph import RAW, YARN, save_raw, write_export_manifest, write_raw_folder
from tests.subjects import subject_of


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> ModelFolder:
    written = write_raw_folder(tmp_path_factory.mktemp("surgery") / "hand")
    fuse(written.root, 128)
    return written


def load(folder: ModelFolder, form: Form, *, twin: bool = False) -> onnx.ModelProto:
    return onnx.load(str(folder.graph(form, twin=twin)), load_external_data=False)


@pytest.mark.parametrize("form", [Form.MODEL, Form.MODEL_LINEAR, Form.MODEL_ALL])
def test_the_counts_of_the_design(folder: ModelFolder, form: Form) -> None:
    counts = operators(load(folder, form))
    assert (counts["Attention"], counts["RMSNormalization"], counts["RotaryEmbedding"]) == (3, 7, 4)
    # One Concat more is the mask, for each query head of a group.
    assert (counts["TensorScatter"], counts["Concat"]) == ((6, 1) if form.linear else (0, 7))
    assert counts == expected_operators(folder.config(), form)
    assert operators(load(folder, form, twin=True))["Concat"] == counts["Concat"] - 1
    names = [node.name for node in load(folder, form).graph.node]
    assert len(names) == len(set(names))
    model = load(folder, form)
    assert [(entry.domain, entry.version) for entry in model.opset_import] == [("", 24)]
    assert sum(256 in tensor.dims for tensor in model.graph.initializer) == 1


def test_only_what_transformers_computes_in_bf16_is_bf16(folder: ModelFolder) -> None:
    graph = load(folder, Form.MODEL_ALL).graph
    kinds = {value.name: value.type.tensor_type.elem_type for value in (*graph.value_info, *graph.output)}
    wide = {name for name, kind in kinds.items() if kind == onnx.TensorProto.FLOAT}
    scaling = {f"model.layers.{layer}.self_attn/{op}" for layer in range(3) for op in ("Cast", "Mul")}
    assert wide == scaling | {"logits"}
    for node in graph.node:
        if node.name.startswith("attention_mask"):
            assert kinds[node.output[0]] in (onnx.TensorProto.INT64, onnx.TensorProto.BOOL)


@pytest.mark.parametrize("form", [Form.MODEL, Form.MODEL_LINEAR, Form.MODEL_ALL])
def test_the_counts_with_an_attention_factor(folder: ModelFolder, tmp_path: Path, form: Form) -> None:
    yarn = write_raw_folder(tmp_path / "yarn", rope_parameters=YARN)
    fuse(yarn.root, 128)
    plain, found = operators(load(folder, form)), operators(load(yarn, form))
    # q and k of two layers, each between two Casts.
    assert found - plain == {"Cast": 8}
    assert not plain - found
    assert operators(load(yarn, form, twin=True)) == operators(load(folder, form, twin=True))


def test_every_graph_of_the_table_is_written_and_none_else(folder: ModelFolder) -> None:
    graphs = {form.file_name(twin=twin) for form in Form if form is not Form.EXPORT for twin in (False, True)}
    assert {path.name for path in folder.onnx.glob("*.onnx")} == graphs | {"export.onnx"}
    assert folder.surgery_manifest().outputs.keys() == {f"onnx/{name}" for name in graphs}
    assert not list(folder.onnx.glob(".writing*"))


def test_one_node_too_many_is_seen_in_the_fused_graph(folder: ModelFolder) -> None:
    model = load(folder, Form.MODEL)
    model.graph.node.append(onnx.helper.make_node("Attention", ["a"], ["b"]))
    with pytest.raises(StageError, match=r"more \{'Attention': 1\}, fewer \{\}"):
        check_fused(model, folder.config(), Form.MODEL, twin=False, capacity=None)


def test_a_head_stored_twice_is_seen(folder: ModelFolder) -> None:
    model = load(folder, Form.MODEL)
    table = next(tensor for tensor in model.graph.initializer if 256 in tensor.dims)
    model.graph.initializer.append(table)
    with pytest.raises(StageError, match="vocabulary-sized weights more than once"):
        check_fused(model, folder.config(), Form.MODEL, twin=False, capacity=None)


def test_a_head_of_its_own_is_a_second_weight(tmp_path: Path) -> None:
    untied = write_raw_folder(tmp_path / "hand", tie_word_embeddings=False)
    fuse(untied.root, 128)
    model = load(untied, Form.MODEL)
    assert {t.name for t in model.graph.initializer if 256 in t.dims} == {"model.embed_tokens.weight", "lm_head.weight"}
    assert operators(model)["Transpose"] == 12


def test_everything_wrong_with_a_raw_export_is_told_at_once(folder: ModelFolder) -> None:
    model = load(folder, Form.EXPORT)
    model.graph.input[1].type.tensor_type.shape.dim[1].dim_param = "s53"
    model.graph.node.append(onnx.helper.make_node("Attention", ["a"], ["b"], domain="org.pytorch.aten"))
    model.opset_import[0].version = 13
    with pytest.raises(StageError) as refusal:
        check_raw(model, folder.config())
    text = str(refusal.value)
    assert "the raw export: attention_mask among its inputs" in text
    assert "expected: INT64 (batch, total_sequence)" in text
    assert "found:    INT64 (batch, s53)" in text
    assert "org.pytorch.aten::Attention" in text
    assert "18 to 24" in text


def test_a_raw_export_that_is_not_valid_onnx_is_refused(tmp_path: Path) -> None:
    written = write_raw_folder(tmp_path / "hand")
    facts = dict(written.export_manifest().facts)
    model = load(written, Form.EXPORT)
    next(node for node in model.graph.node if node.op_type == "Softmax").attribute[0].name = "axes"
    save_raw(written, model)
    write_export_manifest(written, facts)
    with pytest.raises(StageError, match=r"export\.onnx is not valid ONNX"):
        fuse(written.root, 128)


def test_a_graph_that_does_not_fit_leaves_nothing_behind(tmp_path: Path) -> None:
    written = write_raw_folder(tmp_path / "hand")
    facts = dict(written.export_manifest().facts)
    model = load(written, Form.EXPORT)
    next(node for node in model.graph.node if node.op_type == "Softmax").attribute[0].i = 1
    save_raw(written, model)
    write_export_manifest(written, facts)
    before = sorted(path.name for path in written.onnx.iterdir())
    with pytest.raises(StageError, match="the pass that makes Attention does not fit this graph"):
        fuse(written.root, 128)
    assert before == sorted(path.name for path in written.onnx.iterdir())


def test_the_nearest_miss_is_the_one_that_came_furthest() -> None:
    assert nearest([("a", Miss("early", 1)), ("b", Miss("late", 5))]) == (
        "; the nearest miss is b, 5 steps in: late (and 1 more: a)"
    )
    assert nearest([]) == "; no other candidate"


def test_a_pass_that_finds_too_many_fails_too(tmp_path: Path) -> None:
    subject = subject_of(tmp_path)
    step: Pass[int, int] = Pass(
        "a thing", lambda _: [("x", 1), ("y", 2)], lambda walk, anchor, _: anchor, lambda *_: None, lambda _: 1
    )
    with pytest.raises(StageError, match="2 matches; no other candidate"):
        step.run(subject)


def test_a_walk_counts_the_steps_that_held() -> None:
    walk = Walk()
    walk.insist(True, "held")
    with pytest.raises(Miss) as miss:
        walk.insist(False, "did not")
    assert (miss.value.steps, miss.value.reason) == (1, "did not")


@pytest.mark.parametrize("capacity", [0, -1, 513])
def test_a_capacity_that_does_not_suit_is_refused(capacity: int) -> None:
    with pytest.raises(StageError, match="1 to 512 slots"):
        SurgeryOptions.for_model(ModelConfig.from_raw(RAW), capacity)


def test_the_capacity_of_choice_is_4096_or_all_positions() -> None:
    assert SurgeryOptions.for_model(ModelConfig.from_raw(RAW), None).capacity == 512
    large = ModelConfig.from_raw({**RAW, "max_position_embeddings": 65536})
    assert SurgeryOptions.for_model(large, None).capacity == 4096


def test_rotary_tables_that_do_not_go_with_the_config_are_refused(folder: ModelFolder) -> None:
    facts = folder.export_manifest().facts
    longer = ModelConfig.from_raw({**RAW, "max_position_embeddings": 1024})
    with pytest.raises(StageError, match="the rotary tables have another shape"):
        rotary_tables(facts, longer, "make export")
    with pytest.raises(StageError) as refusal:
        rotary_tables({}, folder.config(), "make export")
    assert len(refusal.value.problems) == 5
