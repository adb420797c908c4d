"""Polygraphy compares ONNX Runtime and TensorRT's network on the CPU side by side, by name, output by output."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from artifacts.contract import Form, Precision, TensorSpec
from artifacts.layout import ModelFolder
from tests.test_validate_network_session import feeds_for, folder  # noqa: F401  # the same graphs and feeds
from validate.network import LABEL
from validate.network.runner import NetworkRunner


def reference(folder: ModelFolder, form: Form) -> Any:  # noqa: F811  # the fixture, passed on
    from polygraphy.backend.onnxrt import OnnxrtRunner, SessionFromOnnx

    return OnnxrtRunner(SessionFromOnnx(str(folder.graph(form, twin=True))), name="ONNX Runtime")


@pytest.mark.parametrize("twin", [True, False])
@pytest.mark.parametrize("form", [Form.MODEL, Form.MODEL_LINEAR])
def test_comparator_runs_both_side_by_side(folder: ModelFolder, form: Form, twin: bool) -> None:  # noqa: F811
    """The twin's network is held to 1e-4; the BF16 network to its own noise, 0.1 (measured 0.03)."""
    from polygraphy.comparator import Comparator, SimpleCompareFunc

    runner = NetworkRunner(folder.graph(form, twin=twin))
    with reference(folder, form) as session:
        feeds = feeds_for(inputs_of(session), 2, 3, 5)
    results = Comparator.run([reference(folder, form), runner], data_loader=[feeds])
    assert [name for name, _ in results] == ["ONNX Runtime", LABEL]
    first, second = (iterations[0] for _, iterations in results)
    assert list(first) == list(second)
    assert "logits" in first
    check = SimpleCompareFunc(atol=1e-4 if twin else 0.1, rtol=1e-4 if twin else 0.1)
    compared = Comparator.compare_accuracy(results, compare_func=check)
    assert bool(compared)
    assert compared.output_names() == list(first)


def inputs_of(runner: Any) -> dict[str, TensorSpec]:
    """Give Polygraphy's metadata of a runner's inputs as our records: FP32 caches, whatever the graph has."""
    metadata = runner.get_input_metadata(use_numpy_dtypes=False)
    return {
        name: TensorSpec(name, Precision(np.dtype(facts.dtype.numpy()).name), tuple(facts.shape))
        for name, facts in metadata.items()
    }


def test_bf16_inputs_are_fp32_outside_and_named(folder: ModelFolder) -> None:  # noqa: F811
    with NetworkRunner(folder.graph(Form.MODEL)) as runner:
        metadata = runner.get_input_metadata(use_numpy_dtypes=False)
        assert metadata["past_key_values.0.key"].dtype.name == "float32"
        assert runner.casts == tuple(f"past_key_values.{i}.{kind}" for i in (0, 1) for kind in ("key", "value"))
        assert metadata["past_key_values.0.key"].shape == ["batch", 2, "past_sequence", 16]


def test_feeds_are_left_as_they_were(folder: ModelFolder) -> None:  # noqa: F811
    with NetworkRunner(folder.graph(Form.MODEL_LINEAR, twin=True)) as runner:
        feeds = feeds_for(inputs_of(runner), 2, 3, 5)
        before = {name: array.copy() for name, array in feeds.items()}
        found = runner.infer(feeds)
    assert all(np.array_equal(feeds[name], before[name]) for name in feeds)
    assert not np.array_equal(found["present.0.key"], before["past_key_values.0.key"])
    assert runner.last_inference_time is not None


def test_inner_tensors_can_be_outputs_without_being_marked(folder: ModelFolder) -> None:  # noqa: F811
    names = ("model.layers.0", "logits")
    with NetworkRunner(folder.graph(Form.MODEL), outputs=names) as runner:
        feeds = feeds_for(inputs_of(runner), 1, 2, 0)
        found = runner.infer(feeds)
    assert tuple(found) == names
    assert found["model.layers.0"].dtype == np.float32
