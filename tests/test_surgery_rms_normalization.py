"""Norms fuse in every form of division, and not with another epsilon or axis."""

from pathlib import Path

import numpy as np
import onnx_graphsurgeon as gs

from surgery.rms_normalization import RMS_NORMALIZATION
from tests.raw_graph import Deviation
from tests.subjects import count, refusal, subject_of


def test_each_norm_becomes_one_node(tmp_path: Path) -> None:
    subject = subject_of(tmp_path)
    assert RMS_NORMALIZATION.run(subject) == 7
    assert count(subject, "RMSNormalization") == 7
    assert count(subject, "ReduceMean") == count(subject, "Reciprocal") == 0
    node = next(node for node in subject.graph.nodes if node.op == "RMSNormalization")
    assert node.attrs == {"axis": -1, "epsilon": 1e-6, "stash_type": 1}


def test_a_norm_that_divides_by_the_root_fuses_too(tmp_path: Path) -> None:
    subject = subject_of(tmp_path)
    for node in [node for node in subject.graph.nodes if node.op == "Reciprocal"]:
        product = node.outputs[0].outputs[0]
        wide = next(tensor for tensor in product.inputs if tensor is not node.outputs[0])
        product.op, product.inputs = "Div", [wide, node.inputs[0]]
    subject.graph.cleanup()
    assert RMS_NORMALIZATION.run(subject) == 7


def test_another_epsilon_is_a_miss_that_names_both(tmp_path: Path) -> None:
    text = refusal(RMS_NORMALIZATION, subject_of(tmp_path, Deviation(epsilon=1e-5)))
    assert "7 matches" in text
    assert "0 matches; the nearest miss is model.layers.0.input_layernorm/ReduceMean" in text
    assert "epsilon should be the config's 1e-06, not 1e-05" in text


def test_a_mean_over_another_axis_is_a_miss(tmp_path: Path) -> None:
    subject = subject_of(tmp_path)
    mean = next(node for node in subject.graph.nodes if node.op == "ReduceMean")
    mean.inputs[1] = gs.Constant("axis", np.array([1]))
    text = refusal(RMS_NORMALIZATION, subject)
    assert "6 matches" in text
    assert "should take the mean over the last axis, not over [1]" in text
