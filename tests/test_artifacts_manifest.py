"""A manifest is believed only while the files are those that it names."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from artifacts.digest import Digests
from artifacts.errors import StageError
from artifacts.manifest import FileRecord, Manifest


@pytest.fixture
def made(tmp_path: Path) -> Manifest:
    """A manifest of two files that lie in the folder."""
    for name in ("a", "b"):
        (tmp_path / name).write_text(name)
    digests = Digests(tmp_path)
    outputs = {name: FileRecord.of(tmp_path / name, digests) for name in ("a", "b")}
    return Manifest("export", {"x": 1}, {"kind": "random"}, {}, outputs, {"torch": "2"}, {"nodes": 3})


def is_current(made: Manifest, folder: Path, *, option: int = 1, kind: str = "random", torch: str = "2") -> bool:
    return made.is_current(
        folder,
        Digests(folder),
        options={"x": option},
        checkpoint={"kind": kind},
        inputs={},
        tools={"torch": torch},
    )


def test_what_is_written_is_read(made: Manifest, tmp_path: Path) -> None:
    made.write(tmp_path / "m.json")
    assert Manifest.read(tmp_path / "m.json", made_by="make export") == made


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"schema": 1}', '{"schema": 1, "inputs": {}, "outputs": {"a": 3}}'])
def test_what_is_no_manifest_is_refused_with_the_command_that_makes_one(tmp_path: Path, text: str) -> None:
    (tmp_path / "m.json").write_text(text)
    with pytest.raises(StageError, match="make export"):
        Manifest.read(tmp_path / "m.json", made_by="make export")


def test_a_missing_manifest_and_another_schema_are_refused(made: Manifest, tmp_path: Path) -> None:
    with pytest.raises(StageError, match="is missing"):
        Manifest.read(tmp_path / "m.json", made_by="make export")
    made.write(tmp_path / "m.json")
    raw = json.loads((tmp_path / "m.json").read_text())
    (tmp_path / "m.json").write_text(json.dumps({**raw, "schema": 99}))
    with pytest.raises(StageError, match="another schema"):
        Manifest.read(tmp_path / "m.json", made_by="make export")


def test_every_wrong_file_is_named(made: Manifest, tmp_path: Path) -> None:
    made.check_outputs(tmp_path, Digests(tmp_path), made_by="make export")
    (tmp_path / "a").write_text("x")
    (tmp_path / "b").unlink()
    with pytest.raises(StageError) as caught:
        made.check_outputs(tmp_path, Digests(tmp_path), made_by="make export")
    assert [("sha256" in p.found, "missing" in p.what, p.remedy) for p in caught.value.problems] == [
        (True, False, "make export"),
        (False, True, "make export"),
    ]


def test_up_to_date_means_everything_is_the_same(made: Manifest, tmp_path: Path) -> None:
    assert is_current(made, tmp_path)
    assert not is_current(made, tmp_path, option=2)
    assert not is_current(made, tmp_path, kind="hub")
    assert not is_current(made, tmp_path, torch="3")
    (tmp_path / "a").write_text("another size")
    assert not is_current(made, tmp_path)
