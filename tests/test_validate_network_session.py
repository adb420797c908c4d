"""TensorRT's network of every form gives what ONNX Runtime gives on the FP32 twin.

Tolerance 1e-4 of each tensor's largest magnitude, the one that structure is judged by; measured here: 5e-6. The
network of the BF16 graph is compared loosely (its noise is 2 to 4 % of the largest logit), to see that it runs.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import onnx
import pytest

from artifacts.contract import Form, Precision, TensorSpec
from artifacts.errors import StageError
from artifacts.layout import ModelFolder
from artifacts.twin import fp32_twin
from build.profiles import default_profiles
from runtime import open_session
from tests.fused_graph import write_model_folder
from validate.network import LABEL, NetworkSession

STEPS = {"prefill": (1, 7, 0), "chunk of a padded batch": (3, 4, 9), "decode": (2, 1, 12)}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> ModelFolder:
    made = write_model_folder(tmp_path_factory.mktemp("out") / "by-hand")
    for form in (Form.MODEL, Form.MODEL_LINEAR):
        graph = onnx.load(made.graph(form), load_external_data=False)
        onnx.save(fp32_twin(graph, made.config()), made.graph(form, twin=True))
    return made


def feeds_for(inputs: Mapping[str, TensorSpec], batch: int, new: int, past: int) -> dict[str, Any]:
    """Make feeds with a filled cache, two padding slots in the second row, and positions beyond 300."""
    random = np.random.default_rng(0)
    sizes = {"batch": batch, "sequence": new, "past_sequence": past, "total_sequence": past + new}
    feeds: dict[str, Any] = {}
    for name, spec in inputs.items():
        shape = [sizes[axis] if isinstance(axis, str) else axis for axis in spec.axes]
        if spec.precision is Precision.INT64:
            feeds[name] = np.ones(shape, np.int64)
        else:
            cache = random.standard_normal(shape).astype(ml_dtypes.bfloat16)
            feeds[name] = cache.astype(np.float32) if spec.precision is Precision.FP32 else cache
    feeds["input_ids"] = random.integers(0, 256, (batch, new))
    feeds["position_ids"] = np.tile(np.arange(300 + past, 300 + past + new), (batch, 1))
    feeds["attention_mask"][:, past + new :] = 0
    feeds["attention_mask"][1:2, :2] = 0
    if "write_indices" in feeds:
        feeds["write_indices"][:] = past
    return feeds


def relative(found: Any, expected: Any) -> float:
    return float(np.abs(found.astype(np.float32) - expected).max() / np.abs(expected).max())


@pytest.mark.parametrize("form", Form)
def test_the_network_of_a_twin_is_the_twin(fused: ModelFolder, form: Form) -> None:
    """A real export of Transformers, raw and fused, at prefill, at a chunk of a padded batch, and at decode."""
    graph = fused.graph(form, twin=True)
    with NetworkSession(graph) as network, open_session(graph) as reference:
        assert [spec.name for spec in network.inputs.values()] == list(reference.inputs)
        assert {n: s.axes for n, s in network.inputs.items()} == {n: s.axes for n, s in reference.inputs.items()}
        for step in STEPS.values():
            feeds = feeds_for(network.inputs, *step)
            expected = reference.run({name: array.copy() for name, array in feeds.items()})
            found = network.run(feeds)
            assert found.keys() == expected.keys()
            for name, array in found.items():
                assert array.shape == expected[name].shape
                assert relative(array, expected[name]) < 1e-4, name


@pytest.mark.parametrize("form", Form)
def test_the_network_of_a_bf16_graph_runs_in_bf16(fused: ModelFolder, form: Form) -> None:
    with (
        NetworkSession(fused.graph(form)) as network,
        NetworkSession(fused.graph(form, twin=True)) as twin,
    ):
        found = network.run(feeds_for(network.inputs, 3, 4, 9))
        expected = twin.run(feeds_for(twin.inputs, 3, 4, 9))
    assert found["present.0.key"].dtype == ml_dtypes.bfloat16
    assert found["logits"].dtype == (ml_dtypes.bfloat16 if form is Form.EXPORT else np.float32)
    assert 0 < relative(found["logits"], expected["logits"]) < 0.1


def test_a_linear_cache_is_updated_in_place(folder: ModelFolder) -> None:
    with NetworkSession(folder.graph(Form.MODEL_LINEAR)) as network:
        feeds = feeds_for(network.inputs, 2, 3, 5)
        before = feeds["past_key_values.1.value"].copy()
        found = network.run(feeds)
    cache = feeds["past_key_values.1.value"]
    assert found["present.1.value"] is cache
    assert np.array_equal(cache[:, :, :5], before[:, :, :5])
    assert not np.array_equal(cache[:, :, 5:8], before[:, :, 5:8])
    assert np.array_equal(cache[:, :, 8:], before[:, :, 8:])


def test_the_profiles_limits_are_enforced(folder: ModelFolder) -> None:
    profiles = default_profiles(batch=2, context=16, chunk=4)
    with NetworkSession(folder.graph(Form.MODEL), profiles=profiles) as network:
        network.run(feeds_for(network.inputs, 2, 4, 9))
        network.run(feeds_for(network.inputs, 1, 1, 0))
        with pytest.raises(StageError) as caught:
            network.run(feeds_for(network.inputs, 2, 5, 0))
    text = str(caught.value)
    for words in ("profile prefill does not take", "profile decode does not", "[1, 1] … [2, 4]", "input_ids [2, 5]"):
        assert words in text


def test_it_is_called_by_its_name(folder: ModelFolder) -> None:
    assert NetworkSession(folder.graph(Form.MODEL)).label == LABEL == "TensorRT network, evaluated on the CPU"


def test_a_graph_that_is_missing_is_refused(tmp_path: Path) -> None:
    with pytest.raises(StageError, match="is missing"), NetworkSession(tmp_path / "model.onnx"):
        pass
