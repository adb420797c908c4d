"""The whole stage: two models are exported, ONNX Runtime computes what PyTorch computes, and faults leave no trace.

The first is `random:tiny-d128` (the session's `exported`); the second has all that it lacks: YaRN, an untied head, FP32
weights in shards, a tokenizer.
"""

from __future__ import annotations

import json
import resource
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import onnx
import pytest
import torch
from onnx import TensorProto, external_data_helper

from artifacts import names
from artifacts.checkpoint import Checkpoint
from artifacts.contract import ATTENTION_MASK, INPUT_IDS, KINDS, LOGITS, POSITION_IDS, Form, past_name, signature
from artifacts.layout import DATA_FILE, ROTARY_FILE, ModelFolder
from artifacts.parameters import is_linear
from export import export_onnx
from export.__main__ import main
from export.options import ExportOptions
from export.pipeline import MANIFEST
from tests.checkpoint_folder import small_config, tensors_of, write_checkpoint
from validate.pytorch_session import PyTorchSession

YARN = {"rope_type": "yarn", "rope_theta": 5e6, "factor": 2.0, "original_max_position_embeddings": 512}
ODD_CONFIG = small_config(
    rope_parameters=YARN, rope_theta=..., rope_scaling=..., max_position_embeddings=512, tie_word_embeddings=False
)


@pytest.fixture(scope="module")
def odd_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A checkpoint with YaRN, an untied head, FP32 weights in shards, and files that go along."""
    noise = torch.Generator().manual_seed(3)
    tensors = {
        name: tensor.mul(1 + 1e-2 * torch.rand(tensor.shape, generator=noise))
        for name, tensor in tensors_of(ODD_CONFIG, torch.float32).items()
    }
    folder = write_checkpoint(tmp_path_factory.mktemp("source") / "odd", ODD_CONFIG, tensors, shards=2)
    (folder / "tokenizer.json").write_text('{"odd":\n\n1}')
    (folder / "chat_template.jinja").write_text("{{ messages }}")
    (folder / "generation_config.json").write_text('{"eos_token_id": 2}')
    (folder / "pytorch_model.bin").write_text("stays behind")
    return folder


@pytest.fixture(scope="module")
def odd(odd_folder: Path, tmp_path_factory: pytest.TempPathFactory) -> ModelFolder:
    """Its export."""
    return export_onnx(ExportOptions(str(odd_folder), tmp_path_factory.mktemp("out"), name="odd")).folder


@pytest.fixture(params=["exported", pytest.param("odd", marks=pytest.mark.slow)])
def model(request: pytest.FixtureRequest) -> ModelFolder:
    """Each of the two exports."""
    folder: ModelFolder = request.getfixturevalue(request.param)
    return folder


def load(model: ModelFolder, *, twin: bool = False) -> onnx.ModelProto:
    return onnx.load(str(model.graph(Form.EXPORT, twin=twin)), load_external_data=False)


def weights_of(proto: onnx.ModelProto) -> Iterator[TensorProto]:
    return (tensor for tensor in proto.graph.initializer if external_data_helper.uses_external_data(tensor))


def test_every_axis_of_both_graphs_is_the_contracts(model: ModelFolder) -> None:
    for twin in (False, True):
        proto = load(model, twin=twin)
        onnx.checker.check_model(str(model.graph(Form.EXPORT, twin=twin)))
        found = {
            value.name: tuple(axis.dim_param or axis.dim_value for axis in value.type.tensor_type.shape.dim)
            for value in (*proto.graph.input, *proto.graph.output)
        }
        expected = {spec.name: spec.axes for spec in signature(model.config(), Form.EXPORT, twin=twin)}
        assert list(found.items()) == list(expected.items())


def test_every_weight_is_the_checkpoints_bits_at_its_place(model: ModelFolder) -> None:
    weights = Checkpoint.from_identity(model.export_manifest().checkpoint).weights()
    data = np.memmap(model.onnx / DATA_FILE, dtype=np.uint8, mode="r")
    stored = {tensor.name: tensor for tensor in weights_of(load(model))}
    assert set(stored) == set(weights.names())
    for name, tensor in stored.items():
        place = {entry.key: entry.value for entry in tensor.external_data}
        raw = data[int(place["offset"]) : int(place["offset"]) + int(place["length"])]
        expected = weights.tensor(name).to(torch.bfloat16)
        expected = expected.T.contiguous() if is_linear(name) else expected
        assert tuple(tensor.dims) == tuple(expected.shape)
        assert (place["location"], int(place["offset"]) % 4096) == (DATA_FILE, 0)
        assert raw.tobytes() == expected.view(torch.uint8).numpy().tobytes()


@pytest.mark.slow
def test_a_tied_head_is_stored_once(exported: ModelFolder, odd: ModelFolder) -> None:
    for folder, expected in ((exported, [names.EMBEDDING_WEIGHT]), (odd, [names.EMBEDDING_WEIGHT, names.HEAD_WEIGHT])):
        size = folder.config().vocab_size
        assert [t.name for t in load(folder).graph.initializer if size in t.dims] == expected


def test_weights_are_in_the_data_file_and_nowhere_else(model: ModelFolder) -> None:
    proto = load(model)
    inline = [t for t in proto.graph.initializer if not external_data_helper.uses_external_data(t)]
    assert sum(len(tensor.SerializeToString()) for tensor in inline) < 4096
    assert len(inline) < 40


def test_modules_outputs_bear_their_names(model: ModelFolder) -> None:
    config = model.config()
    for twin in (False, True):
        values = {output for node in load(model, twin=twin).graph.node for output in node.output}
        parts = [name.removesuffix(".weight") for name in (*names.LINEAR_WEIGHTS, *names.NORM_WEIGHTS)]
        wanted = {names.layer(i, part) for i in range(config.num_hidden_layers) for part in (*parts, "")}
        assert wanted | {names.EMBEDDING, names.FINAL_NORM, LOGITS} <= values


def test_nothing_of_this_machine_is_in_the_graph(model: ModelFolder) -> None:
    data = model.graph(Form.EXPORT).read_bytes()
    assert b"site-packages" not in data
    assert str(Path.cwd()).encode() not in data


def test_softmax_is_fp32_and_nope_layers_have_no_rotation(model: ModelFolder) -> None:
    config, graph = model.config(), load(model).graph
    made_by = {output: node for node in graph.node for output in node.output}
    softmaxes = [node for node in graph.node if node.op_type == "Softmax"]
    assert len(softmaxes) == config.num_hidden_layers
    for node in softmaxes:
        cast = made_by[node.input[0]]
        assert (cast.op_type, cast.attribute[0].i) == ("Cast", TensorProto.FLOAT)
    rotated = {node.name.split(".")[2] for node in graph.node if node.op_type == "Neg"}
    assert rotated == {str(layer) for layer in config.rope_layers}


def test_the_twin_computes_what_pytorch_computes(model: ModelFolder) -> None:
    """Batch 2, the second row left-padded, a past; measured: 4e-6 of the largest logit for both models."""
    import onnxruntime as ort

    config = model.config()
    checkpoint = Checkpoint.from_identity(model.export_manifest().checkpoint)
    session = ort.InferenceSession(str(model.graph(Form.EXPORT, twin=True)), providers=["CPUExecutionProvider"])
    outputs = [value.name for value in session.get_outputs()]
    ids = np.random.default_rng(0).integers(3, config.vocab_size, (2, 300))
    mask = np.ones((2, 300), np.int64)
    mask[1, :4] = 0
    positions = np.maximum(mask.cumsum(1) - 1, 0)
    cache = {
        past_name(layer, kind): np.zeros((2, config.num_key_value_heads, 0, config.head_dim), np.float32)
        for layer in range(config.num_hidden_layers)
        for kind in KINDS
    }
    with PyTorchSession(checkpoint, "float32") as reference:
        for start, end in ((0, 293), (293, 299), (299, 300)):
            feeds = {
                INPUT_IDS: ids[:, start:end],
                ATTENTION_MASK: mask[:, :end],
                POSITION_IDS: positions[:, start:end],
                **cache,
            }
            expected = reference.run(feeds)
            found = dict(zip(outputs, session.run(None, feeds), strict=True))
            for name, value in expected.items():
                seen = (slice(None), slice(None), slice(4, None)) if name != LOGITS else ...
                rows = 1 if start == 0 and name == LOGITS else 2
                difference = np.abs(found[name][seen][:rows] - value[seen][:rows]).max()
                assert difference <= 2e-5 * np.abs(value).max(), name
            cache = {key.replace("present", "past_key_values"): v for key, v in found.items() if key != LOGITS}


@pytest.mark.slow
def test_rotary_tables_are_the_modules_at_every_position(odd: ModelFolder) -> None:
    facts = odd.export_manifest().facts["rotary"]
    assert (facts["rows"], facts["columns"]) == (1024, 16)
    data = (odd.onnx / ROTARY_FILE).read_bytes()
    place = facts["tensors"]["rotary.cos.fp32"]
    cos = np.frombuffer(data[place["offset"] :][: place["length"]], np.float32).reshape(1024, 16)
    assert cos[0] == pytest.approx(0.1 * np.log(2) + 1, abs=1e-6)
    assert 0 < facts["distance_from_fp64"] < 1e-4


@pytest.mark.slow
def test_companions_are_copied_byte_for_byte(odd: ModelFolder, odd_folder: Path) -> None:
    for name in ("config.json", "generation_config.json", "tokenizer.json", "chat_template.jinja"):
        assert (odd.onnx / name).read_bytes() == (odd_folder / name).read_bytes()
    assert not (odd.onnx / "pytorch_model.bin").exists()


@pytest.mark.slow
def test_rounding_is_accounted_for(exported: ModelFolder, odd: ModelFolder) -> None:
    """BF16 keeps 8 bits, so that rounding changes an element by at most 1/257 of it."""
    assert exported.export_manifest().facts["rounding"]["tensors"] == 0
    rounding = odd.export_manifest().facts["rounding"]
    assert rounding["tensors"] == 21
    assert 0 < rounding["elements"] <= odd.export_manifest().facts["parameters"]
    assert 1e-3 < rounding["max_relative"] <= 1 / 257
    assert 0 < rounding["max_abs"] < 0.01


def test_the_manifest_names_every_file(model: ModelFolder) -> None:
    manifest = model.export_manifest()
    files = {model.relative(path) for path in model.onnx.iterdir() if path.name != MANIFEST}
    assert files == set(manifest.outputs)
    manifest.check_outputs(model.root, model.digests(), made_by="")
    config, facts = model.config(), manifest.facts
    assert (facts["parameters"], facts["nope_layers"]) == (config.num_parameters, list(config.nope_layers))
    assert facts["nodes"] == len(load(model).graph.node)


def test_a_second_run_is_up_to_date_and_changes_nothing(exported: ModelFolder) -> None:
    before = {path: path.stat().st_mtime_ns for path in exported.onnx.iterdir()}
    again = export_onnx(ExportOptions("random:tiny-d128", exported.root.parent))
    assert again.was_current
    assert {path: path.stat().st_mtime_ns for path in exported.onnx.iterdir()} == before


def test_up_to_date_comes_within_five_seconds_and_without_torch(exported: ModelFolder) -> None:
    program = (
        "import sys; from export.__main__ import main; main(sys.argv[1:])\n"
        "print(sorted({'torch', 'transformers', 'onnx'} & set(sys.modules)))"
    )
    arguments = ["--model", "random:tiny-d128", "--out", str(exported.root.parent)]
    # Processor seconds: the clock of a busy machine says nothing about the command. Measured: 0.4.
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    ended = subprocess.run([sys.executable, "-c", program, *arguments], capture_output=True, text=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    assert after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime < 5
    assert ended.stdout.splitlines() == [f"up to date: {exported.onnx}", "[]"]


def test_main_gives_done(exported: ModelFolder, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--model", "random:tiny-d128", "--out", str(exported.root.parent)]) == 0
    assert capsys.readouterr().out.startswith("up to date")


@pytest.mark.slow
def test_a_changed_output_is_made_again(exported: ModelFolder, tmp_path: Path) -> None:
    """The graph is traced again and comes out the same, byte for byte."""
    shutil.copytree(exported.root, tmp_path / exported.name)
    copy = ModelFolder(tmp_path / exported.name)
    graph = copy.graph(Form.EXPORT)
    original = graph.read_bytes()
    graph.write_bytes(original[:-1] + b"x")
    made = export_onnx(ExportOptions("random:tiny-d128", tmp_path))
    assert not made.was_current
    assert graph.read_bytes() == original
    assert json.loads((copy.onnx / MANIFEST).read_text()) == json.loads((exported.onnx / MANIFEST).read_text())
