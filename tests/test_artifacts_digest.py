"""A digest is remembered while a file is unchanged, and not a moment longer."""

from __future__ import annotations

import hashlib
import io
import json
import os
from pathlib import Path

import pytest

from artifacts import digest
from artifacts.digest import CACHE_NAME, Digests, HashingFile, sha256_of


def test_what_is_written_is_hashed_on_the_way() -> None:
    buffer = io.BytesIO()
    hashing = HashingFile(buffer)
    hashing.write(b"ab")
    hashing.write(memoryview(b"c"))
    assert (buffer.getvalue(), hashing.hexdigest()) == (b"abc", hashlib.sha256(b"abc").hexdigest())


def test_an_unchanged_file_is_read_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "weights"
    path.write_bytes(b"abc")
    first = Digests(tmp_path).of(path)
    monkeypatch.setattr(digest, "sha256_of", lambda path: pytest.fail(f"{path} was read again"))
    assert Digests(tmp_path).of(path) == first


def test_a_file_overwritten_in_place_with_its_time_set_back_is_read_again(tmp_path: Path) -> None:
    path = tmp_path / "weights"
    path.write_bytes(b"abc")
    stat = path.stat()
    first = Digests(tmp_path).of(path)
    with path.open("r+b") as file:
        file.write(b"xyz")
    os.utime(path, ns=(stat.st_atime_ns, stat.st_mtime_ns))
    assert path.stat().st_mtime_ns == stat.st_mtime_ns
    assert Digests(tmp_path).of(path) == hashlib.sha256(b"xyz").hexdigest() != first


@pytest.mark.parametrize("text", ["", "[1]", "{"])
def test_a_broken_memory_is_no_memory(tmp_path: Path, text: str) -> None:
    path = tmp_path / "weights"
    path.write_bytes(b"abc")
    (tmp_path / digest.CACHE_NAME).write_text(text)
    assert Digests(tmp_path).of(path) == sha256_of(path)


def test_a_memory_that_cannot_be_written_costs_only_time(tmp_path: Path) -> None:
    path = tmp_path / "weights"
    path.write_bytes(b"abc")
    assert Digests(tmp_path / "absent").of(path) == sha256_of(path)


def test_a_memory_that_holds_something_else_is_none(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_text("x")
    (tmp_path / CACHE_NAME).write_text(json.dumps({str(path.resolve()): 5}))
    assert Digests(tmp_path).of(path) == sha256_of(path)
