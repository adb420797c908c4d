"""The benchmark measures what ran, refuses what did not, and writes only between its markers."""

from pathlib import Path

import pytest

from artifacts import benchmark
from artifacts.benchmark import BEGIN, END, Measured, measure, summary, write_into
from artifacts.errors import StageError
from artifacts.layout import ModelFolder
from artifacts.manifest import Manifest


def made(root: Path) -> ModelFolder:
    folder = ModelFolder(root / "model")
    folder.onnx.mkdir(parents=True)
    facts = {"parameters": 1000, "nodes": 7}
    Manifest("export", {}, {}, {}, {}, {}, facts).write(folder.onnx / "export.manifest.json")
    return folder


def test_a_stage_is_measured_from_outside(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "export.py").write_text("block = bytearray(200_000_000)\nsum(range(2_000_000))\n")
    monkeypatch.chdir(tmp_path)
    measured = measure("export", (), made(tmp_path))
    assert measured.peak_bytes > 200_000_000
    assert measured.processor_seconds > 0
    assert measured.made == "1,000 parameters, 7 nodes"


def test_a_stage_that_fails_gives_no_numbers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "export.py").write_text("raise SystemExit(2)\n")
    monkeypatch.chdir(tmp_path)
    with pytest.raises(StageError, match="export failed"):
        measure("export", (), made(tmp_path))


def test_a_model_that_is_there_already_is_refused(tmp_path: Path) -> None:
    with pytest.raises(StageError, match="is there already"):
        benchmark.benchmark("random:tiny", made(tmp_path))


def test_only_what_stands_between_the_markers_is_replaced(tmp_path: Path) -> None:
    document = tmp_path / "benchmarks.md"
    document.write_text(f"before\n{BEGIN}\nold\n{END}\nafter\n")
    write_into(document, [Measured("build", 1.0, 2.0, 3 * 10**9, 4 * 10**9, "a plan")], "random:tiny")
    text = document.read_text()
    assert text.startswith("before\n")
    assert text.endswith(f"{END}\nafter\n")
    assert "old" not in text
    assert "| build | 1.0 | 2.0 | 3.00 | 4.00 | a plan |" in text


def test_the_numbers_of_a_plan_are_in_its_row() -> None:
    facts = {
        "layer_count": 2663,
        "weights_memory": 6_150_000_000,
        "initializers": 6_150_000_000,
        "profiles": [{"name": "prefill"}, {"name": "decode"}],
        "activation_memory": [201_000_000, 11_400_000],
    }
    assert summary("build", facts).endswith("activations: prefill 201.0 MB, decode 11.4 MB")
