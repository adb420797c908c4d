"""The contract's tensors, written out once by hand for each form."""

from __future__ import annotations

import pytest

from artifacts.config import ModelConfig
from artifacts.contract import Form, Precision, signature
from artifacts.random_model import preset_config

CONFIG = ModelConfig.from_raw(preset_config("tiny"))


def spelled(
    form: Form, *, twin: bool = False, capacity: int | None = None
) -> dict[str, tuple[str, tuple[object, ...]]]:
    return {
        spec.name: (spec.precision.value, spec.axes) for spec in signature(CONFIG, form, twin=twin, capacity=capacity)
    }


def test_the_concatenated_form() -> None:
    found = spelled(Form.MODEL)
    assert list(found)[:5] == [
        "input_ids",
        "attention_mask",
        "position_ids",
        "past_key_values.0.key",
        "past_key_values.0.value",
    ]
    assert found["attention_mask"] == ("int64", ("batch", "total_sequence"))
    assert found["past_key_values.7.value"] == ("bfloat16", ("batch", 2, "past_sequence", 32))
    assert found["present.7.key"] == ("bfloat16", ("batch", 2, "total_sequence", 32))
    assert found["logits"] == ("float32", ("batch", 1, 512))
    assert len(found) == 3 + 16 + 1 + 16


def test_the_raw_export_keeps_the_models_type_and_every_position() -> None:
    assert spelled(Form.EXPORT)["logits"] == ("bfloat16", ("batch", "sequence", 512))
    assert spelled(Form.EXPORT, twin=True)["logits"] == ("float32", ("batch", "sequence", 512))


def test_the_linear_form_has_a_capacity_and_write_indices() -> None:
    found = spelled(Form.MODEL_LINEAR, capacity=64)
    assert found["write_indices"] == ("int64", ("batch",))
    assert found["attention_mask"] == ("int64", ("batch", 64))
    assert found["past_key_values.0.key"] == found["present.0.key"] == ("bfloat16", ("batch", 2, 64, 32))


def test_twins_are_fp32_throughout() -> None:
    kinds = {spec.precision for spec in signature(CONFIG, Form.MODEL, twin=True)}
    assert kinds == {Precision.INT64, Precision.FP32}


def test_a_capacity_belongs_to_the_linear_form_alone() -> None:
    with pytest.raises(ValueError, match="capacity"):
        signature(CONFIG, Form.MODEL, capacity=64)
    with pytest.raises(ValueError, match="capacity"):
        signature(CONFIG, Form.MODEL_LINEAR)


def test_file_names() -> None:
    assert [form.file_name(twin=True) for form in Form] == [
        "export_fp32.onnx",
        "model_fp32.onnx",
        "model_linear_fp32.onnx",
        "model_all_fp32.onnx",
    ]
