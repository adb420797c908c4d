"""TensorRT's parser takes the BF16 graphs and sees one IAttention a layer and two IRotaryEmbedding in a RoPE layer."""

from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from artifacts.contract import Form
from artifacts.layout import ModelFolder
from surgery import fuse
from tests.raw_graph import write_raw_folder

trt = pytest.importorskip("tensorrt_rtx")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> ModelFolder:
    written = write_raw_folder(tmp_path_factory.mktemp("surgery") / "hand")
    fuse(written.root, 128)
    return written


def parse(path: Path) -> Any:
    logger = trt.Logger(trt.Logger.ERROR)
    network = trt.Builder(logger).create_network(0)
    parser = trt.OnnxParser(network, logger)
    parsed = parser.parse_from_file(str(path))
    assert parsed, [parser.get_error(index).desc() for index in range(parser.num_errors)]
    return network


@pytest.mark.parametrize("form", [Form.MODEL, Form.MODEL_LINEAR, Form.MODEL_ALL])
def test_the_parser_makes_the_operators_that_we_mean(folder: ModelFolder, form: Form) -> None:
    network = parse(folder.graph(form))
    kinds = Counter(str(network.get_layer(index).type).rpartition(".")[2] for index in range(network.num_layers))
    assert kinds["ATTENTION_INPUT"] == kinds["ATTENTION_OUTPUT"] == 3
    assert kinds["ROTARY_EMBEDDING"] == 4
    assert kinds["KV_CACHE_UPDATE"] == (6 if form.linear else 0)
    logits = network.get_output(0)
    assert logits.name == "logits"
    assert tuple(logits.shape) == (-1, 1 if form.last_only else -1, 256)


def test_the_twin_of_a_weight_is_not_what_tensorrt_is_given(folder: ModelFolder) -> None:
    network = parse(folder.graph(Form.MODEL))
    kinds = {network.get_input(i).name: str(network.get_input(i).dtype) for i in range(network.num_inputs)}
    assert kinds["past_key_values.0.key"].endswith("BF16")
    assert kinds["input_ids"].endswith("INT64")
