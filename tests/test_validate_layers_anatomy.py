"""Every named tensor is compared, in graph order, and the raw export's own names for them are found."""

import onnx
import pytest

from artifacts.contract import Form, present_name
from artifacts.errors import StageError
from artifacts.layout import ModelFolder
from tests.raw_graph import write_raw_folder
from validate.layers.anatomy import OTHER, every, made_by_nodes, narrow, parts
from validate.layers.raw_names import raw_names
from validate.layers.strangers import strangers


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> ModelFolder:
    from surgery import fuse

    folder = write_raw_folder(tmp_path_factory.mktemp("anatomy") / "hand")
    fuse(folder.root, 128)
    return folder


def test_every_layer_has_its_parts_and_nope_layers_no_rotation(folder: ModelFolder) -> None:
    config = folder.config()
    known = {part.name: part for part in parts(config)}
    assert len(known) == 4 + 3 * 14 + 2 * 2
    assert "model.layers.0.self_attn.k_rotary" in known
    assert "model.layers.1.self_attn.k_rotary" not in known
    assert known["present.1.key"].feeds == ("model.layers.1.self_attn.k_proj",)
    assert known["model.layers.1.input_layernorm"].feeds == ("model.layers.0",)


def test_a_part_stands_after_what_feeds_it(folder: ModelFolder) -> None:
    seen = {"input_ids", "attention_mask"}
    for part in parts(folder.config()):
        assert seen.issuperset(part.feeds)
        seen.add(part.name)


def test_the_raw_exports_own_names_are_found(folder: ModelFolder) -> None:
    graph = folder.graph(Form.EXPORT)
    config = folder.config()
    found = raw_names(onnx.load(str(graph), load_external_data=False), config)
    assert found["model.layers.0.self_attn.q_rotary"] == "model.layers.0.self_attn/q_rotated"
    assert found["model.layers.0.self_attn.k_rotary"] == "model.layers.0.self_attn/k_rotated"
    assert found["model.layers.1.self_attn.attention"] == "model.layers.1.self_attn/MatMul_1"
    assert found["model.layers.2.residual"] == "model.layers.2.residual"
    assert "model.layers.1.self_attn.q_rotary" not in found


def test_a_raw_export_that_is_built_otherwise_is_refused(folder: ModelFolder) -> None:
    graph = folder.graph(Form.EXPORT)
    model = onnx.load(str(graph), load_external_data=False)
    next(node for node in model.graph.node if node.op_type == "Softmax").op_type = "Hardmax"
    with pytest.raises(StageError, match="has no MatMul before"):
        raw_names(model, folder.config())


def test_all_takes_every_tensor_that_varies(folder: ModelFolder) -> None:
    config = folder.config()
    made = made_by_nodes(folder.graph(Form.MODEL, twin=True))
    whole = every(parts(config), made)
    others = [part for part in whole if part.kind == OTHER]
    assert {part.name for part in parts(config)} <= {part.name for part in whole}
    assert any(part.name == "model.layers.1.mlp.act_fn" and part.layer == 1 for part in others)
    assert not any(part.name.endswith((".fp32", "/bf16")) for part in others)


def test_layers_and_names_narrow_it(folder: ModelFolder) -> None:
    known = parts(folder.config())
    assert {part.layer for part in narrow(known, "0,2")} == {0, 2}
    assert [part.name for part in narrow(known, present_name(1, "key"))] == ["present.1.key"]
    assert narrow(known, "all") == known


@pytest.mark.parametrize("asked", ["3", "model.layers.9", "", "1,nothing"])
def test_what_is_not_there_is_refused(folder: ModelFolder, asked: str) -> None:
    with pytest.raises(StageError, match="there is no layer or tensor"):
        narrow(parts(folder.config()), asked)


def test_a_rotation_on_a_nope_layer_is_a_stranger(folder: ModelFolder) -> None:
    config = folder.config()
    assert strangers(config, {"model.layers.0.self_attn.q_rotary"}, "x") == []
    assert "layer 1 does not rotate" in strangers(config, {"model.layers.1.self_attn.q_rotary"}, "x")[0]
