"""The FP32 twin keeps the data file and the names, and computes in FP32 with the config's scale."""

from pathlib import Path

import ml_dtypes
import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from artifacts.config import ModelConfig
from artifacts.contract import Form
from artifacts.twin import fp32_twin
from tests.fused_graph import CONFIG
from tests.raw_graph import write_raw_folder
from tests.steps import Steps, Tokens

BF16, FP32 = TensorProto.BFLOAT16, TensorProto.FLOAT
ML_BF16 = ml_dtypes.bfloat16
WIDTH, ROWS = 8, 5
SIZES = {"head_dim": 24, "hidden_size": 96}
"""A head_dim whose scale BF16 cannot hold: 24 ** -0.5 = 0.20412, in BF16 0.20410."""


@pytest.fixture
def graph(tmp_path: Path) -> Path:
    """Write x = table[ids]; y = Cast(BF16)(Cast(FP32)(x) * 2) @ weight * scale + table of cosines."""
    rng = np.random.default_rng(0)
    arrays = {
        "table": rng.standard_normal((ROWS, WIDTH)).astype(ML_BF16),
        "weight": rng.standard_normal((WIDTH, WIDTH)).astype(ML_BF16),
        "cos": rng.standard_normal(WIDTH).astype(ML_BF16),
        "cos.fp32": rng.standard_normal(WIDTH).astype(np.float32),
    }
    data, initializers = bytearray(), []
    for name, array in arrays.items():
        initializers.append(_external(name, array, len(data)))
        data += array.tobytes()
    (tmp_path / "data").write_bytes(data)
    scale = np.array(ModelConfig.from_raw({**CONFIG, **SIZES}).scale).astype(ML_BF16)
    small = [numpy_helper.from_array(scale, "scale"), numpy_helper.from_array(np.array(2, np.float32), "two")]
    nodes = [
        helper.make_node("Gather", ["table", "ids"], ["embed"], name="embed/Gather"),
        helper.make_node("Cast", ["embed"], ["norm/Cast"], name="norm/Cast", to=FP32),
        helper.make_node("Mul", ["norm/Cast", "two"], ["norm/Mul"], name="norm/Mul"),
        helper.make_node("Cast", ["norm/Mul"], ["norm"], name="norm/Cast_1", to=BF16),
        helper.make_node("MatMul", ["norm", "weight"], ["proj"], name="proj/MatMul"),
        helper.make_node("Mul", ["proj", "scale"], ["scaled"], name="scaled/Mul"),
        helper.make_node("Add", ["scaled", "cos"], ["lm_head"], name="lm_head/Add"),
        helper.make_node("Cast", ["lm_head"], ["logits"], name="logits/Cast", to=FP32),
    ]
    model = helper.make_model(
        helper.make_graph(
            nodes,
            "small",
            [helper.make_tensor_value_info("ids", TensorProto.INT64, ["s"])],
            [helper.make_tensor_value_info("logits", FP32, ["s", WIDTH])],
            initializers[:3] + small,
        ),
        opset_imports=[helper.make_opsetid("", 24)],
        ir_version=11,
    )
    onnx.save(model, tmp_path / "bf16.onnx")
    onnx.save(helper.make_model(helper.make_graph([], "t", [], [], initializers[3:])), tmp_path / "tables.onnx")
    for name, array in arrays.items():
        np.save(tmp_path / f"{name}.npy", array.astype(np.float32))
    return tmp_path


def _external(name: str, array: np.ndarray, offset: int) -> TensorProto:
    kind = BF16 if array.dtype == ML_BF16 else FP32
    tensor = TensorProto(name=name, data_type=kind, dims=array.shape, data_location=TensorProto.EXTERNAL)
    for key, value in (("location", "data"), ("offset", offset), ("length", array.nbytes)):
        tensor.external_data.add(key=key, value=str(value))
    return tensor


def _twin(folder: Path) -> onnx.ModelProto:
    model = onnx.load(str(folder / "bf16.onnx"), load_external_data=False)
    (table,) = onnx.load(str(folder / "tables.onnx"), load_external_data=False).graph.initializer
    twin = fp32_twin(model, ModelConfig.from_raw({**CONFIG, **SIZES}), {"cos": table})
    onnx.save(twin, folder / "fp32.onnx")
    onnx.checker.check_model(str(folder / "fp32.onnx"), full_check=True)
    return twin


def test_weights_stay_where_they_are_with_one_cast_behind_each(graph: Path) -> None:
    twin = _twin(graph).graph
    places = {tensor.name: (tensor.data_type, tensor.data_location) for tensor in twin.initializer}
    assert places["table"] == places["weight"] == (BF16, TensorProto.EXTERNAL)
    assert places["cos.fp32"] == (FP32, TensorProto.EXTERNAL)
    assert "cos" not in places
    casts = {(node.input[0], node.output[0]) for node in twin.node if node.op_type == "Cast"}
    assert casts == {("weight", "weight.fp32"), ("embed/bf16", "embed")}


def test_what_computes_keeps_its_name_and_an_output_has_the_last_word(graph: Path) -> None:
    made = [name for node in _twin(graph).graph.node for name in node.output]
    assert made == ["embed/bf16", "embed", "norm", "weight.fp32", "proj", "scaled", "logits"]


def test_the_scale_is_the_configs(graph: Path) -> None:
    (scale,) = (tensor for tensor in _twin(graph).graph.initializer if tensor.name == "scale")
    assert numpy_helper.to_array(scale) == np.float32(24**-0.5)


def test_onnx_runtime_computes_it_in_fp32(graph: Path) -> None:
    import onnxruntime

    _twin(graph)
    session = onnxruntime.InferenceSession(str(graph / "fp32.onnx"), providers=["CPUExecutionProvider"])
    table, weight, cos = (np.load(graph / f"{name}.npy") for name in ("table", "weight", "cos.fp32"))
    ids = np.array([3, 0, 4])
    wanted = (table[ids] * 2) @ weight * np.float32(24**-0.5) + cos
    # The order of eight additions is all that may differ: measured 2e-7.
    np.testing.assert_allclose(session.run(None, {"ids": ids})[0], wanted, rtol=0, atol=2e-6)


def test_the_graph_that_was_given_stays_as_it_was(graph: Path) -> None:
    before = (graph / "bf16.onnx").read_bytes()
    model = onnx.load(str(graph / "bf16.onnx"), load_external_data=False)
    fp32_twin(model, ModelConfig.from_raw({**CONFIG, **SIZES}))
    assert model.SerializeToString() == before


def test_a_table_of_another_shape_or_type_is_refused(graph: Path) -> None:
    model = onnx.load(str(graph / "bf16.onnx"), load_external_data=False)
    table = TensorProto(name="cos.fp32", data_type=FP32, dims=[WIDTH + 1])
    with pytest.raises(ValueError, match="cannot take the place of cos"):
        fp32_twin(model, ModelConfig.from_raw({**CONFIG, **SIZES}), {"cos": table})


def test_a_raw_exports_twin_has_no_bf16_but_its_weights(tmp_path: Path) -> None:
    folder = write_raw_folder(tmp_path / "hand")
    model = onnx.load(str(folder.graph(Form.EXPORT)), load_external_data=False)
    twin = fp32_twin(model, folder.config())
    path = folder.graph(Form.EXPORT, twin=True)
    onnx.save(twin, path)
    onnx.checker.check_model(str(path), full_check=True)
    kinds = {value.type.tensor_type.elem_type for value in (*twin.graph.input, *twin.graph.output)}
    assert BF16 not in kinds
    assert np.isfinite(Steps(path).logits(Tokens.draw(6, pads=(0,)), [6])).all()
