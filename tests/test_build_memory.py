"""A build that does not fit is not begun."""

from pathlib import Path

import pytest

from artifacts.doctor import disk_available, memory_available
from artifacts.errors import StageError
from build.memory import Room, gigabytes, memory_needed, peak_memory

THREE_B = 6_150_197_248
"""Bytes of SmolLM3-3B's weights in BF16."""


def room(memory: int, disk: int) -> Room:
    return Room(lambda: memory, lambda folder: disk)


def test_the_forecast_holds_what_was_measured() -> None:
    """14.6 GB were measured for the fused 3B graph with two profiles, on TensorRT-RTX 1.7.1."""
    assert 14.0e9 < memory_needed(THREE_B) < 15.0e9


def test_too_little_memory_is_refused_with_both_numbers(tmp_path: Path) -> None:
    with pytest.raises(StageError, match=r"14.33 GB\n.*8.00 GB"):
        room(8 * 10**9, 10**12).check(THREE_B, tmp_path)


def test_too_little_disk_is_refused_too(tmp_path: Path) -> None:
    with pytest.raises(StageError) as error:
        room(0, 0).check(THREE_B, tmp_path)
    assert [problem.what.split()[:3] for problem in error.value.problems] == [
        ["too", "little", "host"],
        ["too", "little", "disk"],
    ]


def test_enough_is_enough(tmp_path: Path) -> None:
    room(memory_needed(THREE_B), 10**10).check(THREE_B, tmp_path)


def test_this_machine_is_asked(tmp_path: Path) -> None:
    assert memory_available() > 0
    assert disk_available(tmp_path / "not" / "yet") > 0
    assert peak_memory() > 10**7


def test_sizes_are_written_in_gb_and_mb() -> None:
    assert (gigabytes(6_150_197_248), gigabytes(11_400_000)) == ("6.15 GB", "11.4 MB")
