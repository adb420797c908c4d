"""What goes wrong while exporting: one message, exit code 2, and what was there before is there still.

Tracing has no part in these faults, so graphs and tables are stand-ins here and a run takes milliseconds.
"""

from __future__ import annotations

import errno
import io
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import onnx
import pytest
import torch
from rich.console import Console

from artifacts import names
from artifacts.digest import HashingFile
from artifacts.errors import StageError
from artifacts.layout import DATA_FILE, ROTARY_FILE
from export import pipeline, rotary, skeleton
from export.options import ExportOptions
from export.pipeline import OnnxModel, export_onnx
from export.summary import print_summary
from tests.checkpoint_folder import small_config, tensors_of, write_checkpoint

STAND_INS = """
from pathlib import Path
import onnx
from export import pipeline, rotary, skeleton
def tables(path, model, config):
    path.write_bytes(b"tables")
    return "0" * 64, {}
skeleton.untouched_model = lambda raw, config: None
rotary.write = tables
pipeline._make_graphs = lambda model, checkpoint, progress: {"export.onnx": onnx.ModelProto()}
"""


@pytest.fixture
def _stand_ins(monkeypatch: pytest.MonkeyPatch) -> None:
    """Graphs and tables that cost nothing."""

    def tables(path: Path, model: object, config: object) -> tuple[str, dict[str, Any]]:
        path.write_bytes(b"tables")
        return "0" * 64, {}

    monkeypatch.setattr(skeleton, "untouched_model", lambda raw, config: None)
    monkeypatch.setattr(rotary, "write", tables)
    monkeypatch.setattr(pipeline, "_make_graphs", lambda *given: {"export.onnx": onnx.ModelProto()})


@pytest.fixture
def source(tmp_path: Path) -> Path:
    """A good checkpoint."""
    return write_checkpoint(tmp_path / "source", small_config())


def export(source: Path, out: Path) -> OnnxModel:
    return export_onnx(ExportOptions(str(source), out, name="model"))


def contents(out: Path) -> dict[str, bytes]:
    """Every file but the memory of digests."""
    return {str(path): path.read_bytes() for path in out.rglob("*") if path.is_file() and path.name[0] != "."}


def test_missing_reshaped_and_unexpected_tensors_are_all_named(tmp_path: Path) -> None:
    tensors = tensors_of(small_config())
    query, key = (names.layer(0, f"{part}.weight") for part in (names.Q_PROJ, names.K_PROJ))
    del tensors[query]
    tensors[key] = torch.zeros(3, 5)
    tensors["model.layers.2.mlp.up_proj.weight"] = torch.zeros(2)
    source = write_checkpoint(tmp_path / "source", small_config(), tensors)
    with pytest.raises(StageError) as caught:
        export(source, tmp_path / "out")
    assert [problem.what for problem in caught.value.problems] == [
        f"tensor {query} is missing",
        f"tensor {key} has another shape",
        "tensor model.layers.2.mlp.up_proj.weight is unexpected",
    ]
    assert contents(tmp_path / "out") == {}


def test_companions_that_are_no_json_are_named_with_all_else_before_any_work(source: Path, tmp_path: Path) -> None:
    config = json.loads((source / "config.json").read_text())
    (source / "config.json").write_text(json.dumps({**config, "eos_token_id": "foo"}))
    (source / "generation_config.json").write_text("{oops")
    (source / "tokenizer.json").write_bytes(b'{"a": "\xff"}')
    (source / "special_tokens_map.json").write_text("{}")
    (source / "chat_template.jinja").write_text("{oops")
    (source / "exam.json").write_text('{"cases": []}')
    tensors = tensors_of(small_config())
    write_checkpoint(source, {**config, "eos_token_id": "foo"}, {**tensors, "more": torch.zeros(2)})
    with pytest.raises(StageError) as caught:
        export(source, tmp_path / "out")
    assert [problem.what for problem in caught.value.problems] == [
        "Transformers does not take this config.json",
        f"{source / 'generation_config.json'} is no JSON",
        f"{source / 'tokenizer.json'} is no JSON",
        f"{source / 'exam.json'} is no exam",
        "tensor more is unexpected",
    ]
    assert not (tmp_path / "out").exists() or not contents(tmp_path / "out")


@pytest.mark.usefixtures("_stand_ins")
@pytest.mark.parametrize("head_stored", [False, True])
def test_weights_that_are_no_numbers_end_the_export_and_leave_nothing(tmp_path: Path, head_stored: bool) -> None:
    """A stored head with the embedding's own NaN is still the embedding."""
    tensors = tensors_of(small_config())
    tensors[names.EMBEDDING_WEIGHT][7, 7] = float("nan")
    if head_stored:
        tensors[names.HEAD_WEIGHT] = tensors[names.EMBEDDING_WEIGHT].clone()
    with pytest.raises(StageError, match=rf"(?s)tensor {names.EMBEDDING_WEIGHT} holds values.*1 NaN"):
        export(write_checkpoint(tmp_path / "source", small_config(), tensors), tmp_path / "out")
    assert contents(tmp_path / "out") == {}
    assert not (tmp_path / "out" / "model" / "onnx").exists()


@pytest.mark.usefixtures("_stand_ins")
def test_a_stored_tied_head_must_be_the_embedding(tmp_path: Path) -> None:
    tensors = tensors_of(small_config())
    tensors[names.HEAD_WEIGHT] = tensors[names.EMBEDDING_WEIGHT].clone()
    assert export(write_checkpoint(tmp_path / "good", small_config(), tensors), tmp_path / "out").manifest
    tensors[names.HEAD_WEIGHT][7, 7] += 1
    with pytest.raises(StageError, match="is not the embedding"):
        export(write_checkpoint(tmp_path / "bad", small_config(), tensors), tmp_path / "out2")


def test_a_loaded_model_that_differs_from_the_config_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """Planted: Transformers reads the NoPE list and theta otherwise than we do."""
    from artifacts.config import ModelConfig

    raw = small_config()
    other = ModelConfig.from_raw({**raw, "no_rope_layers": [0, 1], "rope_theta": 1e4})
    with pytest.raises(StageError) as caught:
        skeleton.untouched_model(raw, other)
    assert [problem.what.rpartition(": ")[2] for problem in caught.value.problems] == [
        "which layers rotate",
        "rope parameters",
    ]


@pytest.mark.parametrize(
    ("key", "value"), [("eos_token_id", "foo"), ("bos_token_id", [1]), ("dtype", "float99"), ("id2label", 5)]
)
def test_what_only_transformers_insists_on_is_refused_with_its_reason(
    source: Path, tmp_path: Path, key: str, value: object
) -> None:
    config = source / "config.json"
    config.write_text(json.dumps({**json.loads(config.read_text()), key: value}))
    with pytest.raises(StageError, match=r"Transformers does not take this config\.json") as caught:
        export_onnx(ExportOptions(str(source), tmp_path / "out"))
    assert caught.value.problems[0].found
    assert not (tmp_path / "out").exists() or not list((tmp_path / "out").rglob("*.onnx*"))


def test_an_exporter_that_fails_is_refused_and_not_a_traceback(monkeypatch: pytest.MonkeyPatch) -> None:
    from transformers.exporters.exporter_onnx import OnnxExporter

    from artifacts.config import ModelConfig
    from export.trace import trace

    def fail(*given: object, **named: object) -> None:
        cause = RuntimeError("a guard was violated\nand much more")
        raise ValueError("advice") from cause

    monkeypatch.setattr(OnnxExporter, "export", fail)
    raw = small_config()
    config = ModelConfig.from_raw(raw)
    with pytest.raises(StageError, match="RuntimeError: a guard was violated\n"):
        trace(skeleton.untouched_model(raw, config), config)


def test_rotary_tables_of_another_theta_are_refused(tmp_path: Path) -> None:
    from artifacts.config import ModelConfig

    raw = small_config()
    model = skeleton.untouched_model(raw, ModelConfig.from_raw(raw))
    with pytest.raises(StageError, match="rotary tables"):
        rotary.write(tmp_path / "r", model, ModelConfig.from_raw({**raw, "rope_theta": 4.99e6}))


@pytest.mark.usefixtures("_stand_ins")
@pytest.mark.parametrize(
    ("flags", "words"),
    [
        ([1, 0], "NoPE layers 1 (no_rope_layers of config.json)"),
        (..., "NoPE layers none (every 4th layer, the default of SmolLM3Config: config.json does not say which)"),
    ],
)
def test_the_summary_says_where_the_nope_list_comes_from(tmp_path: Path, flags: object, words: str) -> None:
    raw = small_config(no_rope_layers=flags, no_rope_layer_interval=...)
    made = export(write_checkpoint(tmp_path / "source", raw), tmp_path / "out")
    console = Console(file=io.StringIO(), record=True, width=120)
    print_summary(made, console)
    assert words in console.export_text()


@pytest.mark.usefixtures("_stand_ins")
def test_another_checkpoint_under_the_same_name_is_refused(source: Path, tmp_path: Path) -> None:
    export(source, tmp_path / "out")
    before = contents(tmp_path / "out")
    tensors = tensors_of(small_config())
    tensors[names.EMBEDDING_WEIGHT][0, 0] += 1
    other = write_checkpoint(tmp_path / "other", small_config(), tensors)
    with pytest.raises(StageError, match="already holds another checkpoint"):
        export(other, tmp_path / "out")
    assert contents(tmp_path / "out") == before


@pytest.mark.usefixtures("_stand_ins")
def test_the_same_folder_with_other_weights_is_exported_again(source: Path, tmp_path: Path) -> None:
    first = export(source, tmp_path / "out")
    assert export(source, tmp_path / "out").was_current
    tensors = tensors_of(small_config())
    tensors[names.EMBEDDING_WEIGHT][0, 0] += 1
    write_checkpoint(source, small_config(), tensors)
    again = export(source, tmp_path / "out")
    assert not again.was_current
    assert again.manifest.facts["data_sha256"] != first.manifest.facts["data_sha256"]


@pytest.mark.usefixtures("_stand_ins")
def test_a_checkpoint_that_has_moved_is_still_the_same(source: Path, tmp_path: Path) -> None:
    export(source, tmp_path / "out")
    moved = source.rename(tmp_path / "moved")
    assert export(moved, tmp_path / "out").manifest.checkpoint["origin"] == str(moved)


@pytest.mark.usefixtures("_stand_ins")
def test_a_file_that_the_checkpoint_no_longer_has_goes_away(source: Path, tmp_path: Path) -> None:
    (source / "chat_template.jinja").write_text("{{ messages }}")
    folder = export(source, tmp_path / "out").folder
    assert (folder.onnx / "chat_template.jinja").is_file()
    (source / "chat_template.jinja").unlink()
    again = export(source, tmp_path / "out")
    assert not (folder.onnx / "chat_template.jinja").exists()
    assert export(source, tmp_path / "out").was_current
    assert "onnx/chat_template.jinja" not in again.manifest.outputs


@pytest.mark.usefixtures("_stand_ins")
def test_a_disk_that_fills_up_leaves_what_was_there(
    source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    export(source, tmp_path / "out")
    (tmp_path / "out" / "model" / "onnx" / "config.json").write_text("{}")
    before = contents(tmp_path / "out")
    written = HashingFile.write

    def full(self: HashingFile, data: bytes | memoryview) -> None:
        if len(data) > 60_000:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        written(self, data)

    monkeypatch.setattr(HashingFile, "write", full)
    with pytest.raises(StageError, match=r"No space left(.|\n)*larger disk"):
        export(source, tmp_path / "out")
    assert contents(tmp_path / "out") == before
    monkeypatch.undo()


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A disk of one megabyte; skipped where this user may not mount one."""
    disk = tmp_path / "disk"
    disk.mkdir()
    if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", str(disk)], capture_output=True).returncode:
        pytest.skip("mounting a small disk needs root")
    yield disk
    subprocess.run(["umount", str(disk)], check=True)


def test_a_disk_without_room_is_refused_before_the_work(source: Path, small_disk: Path) -> None:
    with pytest.raises(StageError, match="too little room"):
        export(source, small_disk)
    assert contents(small_disk) == {}


def test_a_companion_that_is_no_file_is_refused_and_not_left_out(source: Path, tmp_path: Path) -> None:
    """As in a hub's snapshot whose blob is gone."""
    (source / "chat_template.jinja").symlink_to(tmp_path / "gone")
    (source / "merges.txt").mkdir()
    with pytest.raises(StageError) as refusal:
        export(source, tmp_path / "out")
    assert [problem.what for problem in refusal.value.problems] == [
        f"{source / 'merges.txt'} is no file",
        f"{source / 'chat_template.jinja'} is no file",
    ]


@pytest.mark.usefixtures("_stand_ins")
def test_a_tokenizer_that_lies_there_and_is_not_the_checkpoints_is_not_up_to_date(source: Path, tmp_path: Path) -> None:
    made = export(source, tmp_path / "out")
    assert export(source, tmp_path / "out").was_current
    stranger = made.folder.onnx / "tokenizer.json"
    stranger.write_text("{}")
    assert not export(source, tmp_path / "out").was_current
    assert not stranger.exists()


@pytest.mark.usefixtures("_stand_ins")
def test_a_manifest_that_names_no_checkpoint_is_refused(source: Path, tmp_path: Path) -> None:
    made = export(source, tmp_path / "out")
    path = made.folder.onnx / "export.manifest.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "checkpoint": {}}))
    with pytest.raises(StageError, match="does not say of which checkpoint it is"):
        export(source, tmp_path / "out")


def test_an_output_folder_that_is_a_file_is_refused(source: Path, tmp_path: Path) -> None:
    (tmp_path / "out").write_text("in the way")
    with pytest.raises(StageError, match="cannot be written"):
        export(source, tmp_path / "out")


@pytest.mark.slow
def test_a_killed_run_leaves_what_was_there_and_the_next_one_completes(source: Path, tmp_path: Path) -> None:
    program = f"""{STAND_INS}
import os, signal, sys
from export import data_file
from export.options import ExportOptions
if sys.argv[3] == "kill":
    data_file.Rounding.round = lambda *given: os.kill(os.getpid(), signal.SIGKILL)
pipeline.export_onnx(ExportOptions(sys.argv[1], Path(sys.argv[2]), name="model"))
"""

    def run(how: str) -> int:
        return subprocess.run([sys.executable, "-c", program, str(source), str(tmp_path / "out"), how]).returncode

    assert run("kill") == -9
    assert contents(tmp_path / "out") == {}
    assert list((tmp_path / "out" / "model" / "onnx").iterdir()), "a killed run leaves hidden files"
    assert run("complete") == 0
    files = {path.name for path in (tmp_path / "out" / "model" / "onnx").iterdir()}
    made = {DATA_FILE, ROTARY_FILE, "export.onnx", "config.json", pipeline.MANIFEST}
    assert files == made
