"""The benchmark measures what it says, and writes its tables where they belong."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from artifacts.errors import StageError
from runtime.__main__ import main
from runtime.bench import Row, bandwidth, decode_limit, measure, overhead
from runtime.model import Model, RunOptions
from runtime.peers import Subject, _as_llama, genai
from runtime.settings import Settings
from runtime.terminal_bench import BEGIN, END
from tests.small_model import write_small_model


def test_a_decode_step_can_be_no_faster_than_its_bytes(tmp_path: Path) -> None:
    folder = write_small_model(tmp_path / "small")
    config = folder.config()
    weights = 4 * config.num_parameters
    assert decode_limit(config, 0, 1, weights) == pytest.approx(1)
    assert decode_limit(config, 0, 8, weights) == pytest.approx(8)
    cache = 4 * 4 * 2 * 2 * 16 * 100
    assert decode_limit(config, 100, 2, weights + 2 * cache) == pytest.approx(2)


@pytest.mark.slow
def test_memory_is_read_at_some_speed() -> None:
    assert 1e8 < bandwidth() < 1e13


def test_rows_of_every_length_and_batch_that_fit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = write_small_model(tmp_path / "small")
    monkeypatch.setattr("runtime.bench.ROUNDS", 1)
    with Model(folder.root, RunOptions(context=64)) as model:
        rows = list(measure(model, [16, 32, 64], [1, 3], 8, 1e9))
        assert [(row.context, row.batch) for row in rows] == [(16, 1), (32, 1), (16, 3), (32, 3)]
        assert all(row.first > 0 and row.decode > 0 for row in rows)
        share = overhead(model, Settings(max_tokens=20, ignore_stop_ids=True), [1, 2, 3])
    # A step of this model takes 0.3 ms, so that most of it may be Python; it is never all or nothing.
    assert 0 < share < 1
    assert len(rows[0].cells()) == len(Row.HEADER)


@pytest.mark.slow
def test_the_command_writes_its_tables_between_the_marks(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("runtime.terminal_bench.PROMPTS", (16, 64))
    monkeypatch.setattr("runtime.terminal_bench.NEW", 8)
    monkeypatch.setattr("runtime.bench.ROUNDS", 1)
    monkeypatch.setattr("runtime.terminal_bench.ROUNDS", 1)
    monkeypatch.setattr("runtime.terminal_bench.TURNS", 1)
    folder, document = write_small_model(tmp_path / "small"), tmp_path / "benchmarks.md"
    document.write_text(f"# Before\n{BEGIN}\nold\n{END}\nafter\n")
    arguments = ["bench", str(folder.root), "--context", "700", "--prompts", "16", "--batches", "1", "2", "--new", "4"]
    assert main([*arguments, "--streams", "2", "--write", str(document)]) == 0
    text = document.read_text()
    assert text.startswith(f"# Before\n{BEGIN}\n`small`, ")
    assert text.endswith(f"{END}\nafter\n")
    assert "old" not in text
    for part in ("| 16 | 1 |", "| 16 | 2 |", "greedily", "2 through the server"):
        assert part in text
    assert "Streams of 16 tokens in and 8 out" in capsys.readouterr().out


def test_what_cannot_run_the_model_is_left_out_of_a_comparison(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("runtime.terminal_bench.PROMPTS", (16,))
    monkeypatch.setattr("runtime.terminal_bench.NEW", 4)
    monkeypatch.setattr("runtime.terminal_bench.TURNS", 1)
    folder = write_small_model(tmp_path / "small")
    arguments = ["--context", "64", "--prompts", "8", "--batches", "1", "--new", "4", "--against", "transformers"]
    assert main(["bench", str(folder.root), *arguments]) == 0
    shown = capsys.readouterr()
    assert "transformers is left out: there is no random model 'by-hand'" in shown.err
    assert "this project" in shown.out


@pytest.mark.parametrize(
    ("flag", "value", "least"),
    [("--batches", "0", 1), ("--prompts", "-5", 1), ("--new", "1", 2), ("--streams", "x", 1)],
)
def test_numbers_that_measure_nothing_are_refused(
    capsys: pytest.CaptureFixture[str], flag: str, value: str, least: int
) -> None:
    with pytest.raises(SystemExit) as end:
        main(["bench", "out/model", f"{flag}={value}"])
    assert end.value.code == 2
    assert f"expected a number of {least} or more, found '{value}'" in capsys.readouterr().err


def test_a_document_that_is_not_there_is_refused_before_anything_is_measured(tmp_path: Path) -> None:
    folder = write_small_model(tmp_path / "small")
    with pytest.raises(StageError, match=r"there is no document .*gone\.md"):
        main(["bench", str(folder.root), "--context", "64", "--batches", "1", "--write", str(tmp_path / "gone.md")])


def test_a_subject_keeps_its_best_round_of_each_length() -> None:
    times = iter([(2.0, 5.0), (1.0, 6.0), (9.0, 9.0)])
    subject = Subject("x", lambda prompt, new: next(times))
    for prompt in ([1], [1], [1, 2]):
        subject.round(prompt, 2)
    assert subject.best == {1: (1.0, 5.0), 2: (9.0, 9.0)}


def test_a_checkpoint_is_laid_out_as_a_llama(tmp_path: Path) -> None:
    checkpoint = tmp_path / "checkpoint"
    checkpoint.mkdir()
    raw = {"model_type": "smollm3", "hidden_size": 64, "num_attention_heads": 4, "no_rope_layers": [1]}
    raw["rope_parameters"] = {"rope_theta": 5.0}
    (checkpoint / "config.json").write_text(json.dumps(raw))
    (checkpoint / "model.safetensors").write_bytes(b"weights")
    _as_llama(checkpoint, tmp_path / "llama")
    found = json.loads((tmp_path / "llama" / "config.json").read_text())
    assert (found["model_type"], found["rope_theta"], found["head_dim"]) == ("llama", 5.0, 16)
    assert "no_rope_layers" not in found
    assert (tmp_path / "llama" / "model.safetensors").read_bytes() == b"weights"


def test_genai_is_refused_where_it_cannot_be_compared(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    config = write_small_model(tmp_path / "small").config()
    monkeypatch.setattr("runtime.peers.find_spec", lambda name: None)
    with pytest.raises(StageError, match="is not installed"):
        genai(tmp_path, config, tmp_path)
    monkeypatch.setattr("runtime.peers.find_spec", lambda name: True)
    with pytest.raises(StageError, match="would rotate NoPE layers"):
        genai(tmp_path, config, tmp_path)
