"""The passes that make the heads' layout, the cache's form, the logits and the mask: each fuses, and each can miss."""

from pathlib import Path

import pytest

from artifacts.contract import LOGITS, SEQUENCE
from surgery.clean_up import CLEAN_UP
from surgery.logits import FP32_LOGITS, LAST_LOGITS
from surgery.mask import MASK_OF_SLOTS
from surgery.naming import NAMES
from surgery.pipeline import FORMS, FUSE, operate
from surgery.reshape import RESHAPE
from surgery.subject import Subject
from surgery.tensor_scatter import TENSOR_SCATTER
from tests.subjects import count, refusal, subject_of


@pytest.fixture
def fused(tmp_path: Path) -> Subject:
    """Give a subject on which all common passes have been run."""
    subject = subject_of(tmp_path)
    operate(subject, FUSE)
    return subject


def test_heads_get_constant_shapes_and_no_shape_is_computed(tmp_path: Path) -> None:
    subject = subject_of(tmp_path, before=RESHAPE)
    assert RESHAPE.run(subject) == 12
    shapes = {tuple(node.inputs[1].values) for node in subject.graph.cleanup().nodes if node.op == "Reshape"}
    assert shapes == {(0, 0, 4, 16), (0, 0, 2, 16), (0, 0, 64)}


def test_another_order_of_axes_is_a_miss(tmp_path: Path) -> None:
    subject = subject_of(tmp_path, before=RESHAPE)
    turned = next(node for node in subject.graph.nodes if node.name == "model.layers.1.self_attn/v/Transpose")
    turned.attrs["perm"] = [0, 2, 3, 1]
    assert "11 matches" in refusal(RESHAPE, subject)


def test_the_clean_up_leaves_what_outputs_need_in_order(tmp_path: Path) -> None:
    subject = subject_of(tmp_path, before=NAMES)
    ready = {tensor.name for tensor in subject.graph.inputs} | {"fused/mask"}
    for node in subject.graph.nodes:
        assert all(tensor.name in ready for tensor in node.inputs if tensor.inputs)
        ready |= {tensor.name for tensor in node.outputs}
    assert CLEAN_UP.run(subject) == 0


def test_the_linear_form_writes_each_cache_in_place(fused: Subject) -> None:
    linear = fused.copy(64)
    assert TENSOR_SCATTER.run(linear) == 6
    assert (count(linear, "TensorScatter"), count(linear, "Concat")) == (6, 0)
    assert count(fused, "Concat") == 6
    names = [tensor.name for tensor in linear.graph.inputs]
    assert names[:4] == ["input_ids", "attention_mask", "position_ids", "write_indices"]
    assert linear.output("present.2.value").shape == ["batch", 2, 64, 16]


def test_a_cache_joined_the_other_way_round_is_a_miss(fused: Subject) -> None:
    linear = fused.copy(64)
    join = linear.output("present.1.key").inputs[0]
    join.inputs = [join.inputs[1], join.inputs[0]]
    assert "5 matches; the nearest miss is past_key_values.1.key" in refusal(TENSOR_SCATTER, linear)


def test_logits_are_fp32_and_of_the_last_position(fused: Subject) -> None:
    last = fused.copy(None)
    operate(last, (FP32_LOGITS, LAST_LOGITS))
    logits = last.output(LOGITS)
    assert (str(logits.dtype), logits.shape) == ("float32", ["batch", 1, 256])
    assert logits.inputs[0].inputs[0].name == "lm_head"
    assert fused.output(LOGITS).shape == ["batch", SEQUENCE, 256]


def test_logits_that_do_not_come_from_a_norm_are_a_miss(fused: Subject) -> None:
    norm = next(node for node in fused.graph.nodes if node.name.startswith("model.norm/"))
    norm.op = "LayerNormalization"
    assert "should come from RMSNormalization, but LayerNormalization" in refusal(LAST_LOGITS, fused)


def test_all_layers_share_one_mask(fused: Subject) -> None:
    for form, steps in FORMS.items():
        subject = fused.copy(64 if form.linear else None)
        operate(subject, steps)
        masks = {id(node.inputs[3]) for node in subject.graph.nodes if node.op == "Attention"}
        assert len(masks) == 1
        assert count(subject, "Or") == 1


def test_a_mask_without_attention_is_a_miss(tmp_path: Path) -> None:
    assert "no Attention asks for a mask" in refusal(MASK_OF_SLOTS, subject_of(tmp_path))
