"""The project's own code has a version that changes with its source."""

from __future__ import annotations

from pathlib import Path

import pytest

from artifacts import __version__
from artifacts.versions import THIS_PROJECT, own_version


def test_a_change_in_a_package_or_in_artifacts_is_another_version_and_one_elsewhere_is_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("artifacts.versions._ROOT", tmp_path)
    for name in ("artifacts/a.py", "artifacts/checkpoints/b.py", "surgery/passes/c.py", "export/d.py"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("x = 1\n")
    first = own_version("surgery")
    assert first[THIS_PROJECT].startswith(f"{__version__} ")
    for name in ("artifacts/checkpoints/b.py", "export/d.py"):
        (tmp_path / name).write_text("x = 2\n")
    assert own_version("surgery") == first
    found = {first[THIS_PROJECT]}
    for name in ("artifacts/a.py", "surgery/passes/c.py"):
        (tmp_path / name).write_text("x = 2\n")
        found.add(own_version("surgery")[THIS_PROJECT])
    assert len(found) == 3
