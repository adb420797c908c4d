"""Query heads that share a key head become its rows: the same numbers, in the BF16 graphs alone."""

from pathlib import Path

import numpy as np
import onnx
import pytest

from artifacts.contract import Form
from artifacts.names import MASK
from artifacts.twin import fp32_twin
from surgery import fuse
from surgery.grouped_queries import GROUPED_QUERIES
from surgery.pipeline import FORMS, FUSE, operate
from surgery.subject import Subject
from tests.raw_graph import write_raw_folder
from tests.steps import Steps, Tokens, distance
from tests.subjects import count, refusal, subject_of

FUSED = (Form.MODEL, Form.MODEL_LINEAR, Form.MODEL_ALL)


def fused(root: Path, key_heads: int = 2) -> Subject:
    """Give a subject that has become the concatenated form."""
    subject = subject_of(root, num_key_value_heads=key_heads)
    operate(subject, (*FUSE, *FORMS[Form.MODEL]))
    return subject


def test_one_in_each_layer_and_one_mask_for_all(tmp_path: Path) -> None:
    subject = fused(tmp_path)
    before = count(subject, "Reshape"), count(subject, "Concat")
    assert GROUPED_QUERIES.run(subject) == 3
    assert (count(subject, "Reshape"), count(subject, "Concat")) == (before[0] + 6, before[1] + 1)
    nodes = [node for node in subject.graph.nodes if node.op == "Attention"]
    assert {node.inputs[3].name for node in nodes} == {f"{MASK}/Concat"}
    assert [list(node.inputs[0].inputs[0].inputs[1].values) for node in nodes] == [[0, 2, -1, 16]] * 3
    result = nodes[1].outputs[0].outputs[0].outputs[0]
    assert (result.name, result.shape[1]) == ("model.layers.1.self_attn.attention", 4)


def test_a_model_without_groups_stays_as_it_is(tmp_path: Path) -> None:
    subject = fused(tmp_path, key_heads=4)
    operators = [node.op for node in subject.graph.nodes]
    assert GROUPED_QUERIES.run(subject) == 0
    assert [node.op for node in subject.graph.nodes] == operators


def test_queries_of_other_heads_or_another_mask_are_misses(tmp_path: Path) -> None:
    subject = fused(tmp_path)
    nodes = [node for node in subject.graph.nodes if node.op == "Attention"]
    nodes[0].inputs[0].shape = ["batch", 8, "sequence", 8]
    assert "should have 4 heads of 16, but is ['batch', 8, 'sequence', 8]" in refusal(GROUPED_QUERIES, subject)
    nodes[0].inputs[0].shape = ["batch", 4, "sequence", 16]
    nodes[1].inputs = [*nodes[1].inputs[:3], subject.input("attention_mask")]
    assert f"should take {MASK}, not attention_mask" in refusal(GROUPED_QUERIES, subject)


@pytest.mark.parametrize("form", FUSED)
def test_a_padded_batch_in_cuts_gives_what_whole_heads_give(tmp_path: Path, form: Form) -> None:
    """The twin of the BF16 graph, grouped, against the twin that surgery writes, which is not."""
    folder = write_raw_folder(tmp_path / "hand")
    fuse(folder.root, 64)
    graph = onnx.load(str(folder.graph(form)), load_external_data=False)
    whole = onnx.load(str(folder.graph(form, twin=True)), load_external_data=False)
    tables = {table.name.removesuffix(".fp32"): table for table in whole.graph.initializer if "rotary" in table.name}
    path = folder.onnx / "grouped.onnx"
    path.write_bytes(fp32_twin(graph, folder.config(), tables).SerializeToString())
    tokens = Tokens.draw(20, pads=(0, 4, 9))
    found, wanted = (Steps(name).logits(tokens, [14, 4, 1, 1]) for name in (path, folder.graph(form, twin=True)))
    assert np.isfinite(found).all()
    assert distance(found, wanted) < 1e-5
