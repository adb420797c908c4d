"""A build that does not fit is not begun, and holds no more of the weights than it must."""

import mmap
import os
import subprocess
import sys
from pathlib import Path

import pytest

from artifacts.doctor import disk_available, memory_available
from artifacts.errors import StageError
from build.memory import Room, gigabytes, give_back, memory_needed, peak_memory

ROOT = Path(__file__).parents[1]
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


@pytest.mark.parametrize("given", [None, "glibc.malloc.check=0"])
def test_large_pages_are_asked_for_once_and_only_where_nothing_else_is_set(given: str | None) -> None:
    program = (
        "import os; print(os.getpid(), flush=True); from build.memory import ask_for_large_pages; "
        "ask_for_large_pages(); print(os.environ['GLIBC_TUNABLES'])"
    )
    environment = {name: value for name, value in os.environ.items() if name != "GLIBC_TUNABLES"}
    environment |= {} if given is None else {"GLIBC_TUNABLES": given}
    ended = subprocess.run(
        [sys.executable, "-c", program], env=environment, cwd=ROOT, capture_output=True, text=True, check=True
    )
    *numbers, said = ended.stdout.split()
    assert len(numbers) == (2 if given is None else 1)
    assert len(set(numbers)) == 1
    assert said == (given or "glibc.malloc.hugetlb=1")


def resident(path: Path) -> list[int]:
    """Give how many KB of each mapping of a file are resident."""
    found = Path("/proc/self/smaps").read_text().split(str(path))[1:]
    return [int(text.split("Rss:")[1].split()[0]) for text in found]


def test_mapped_pages_are_given_back_and_read_again(tmp_path: Path) -> None:
    size, path = 1 << 22, tmp_path / "weights of a model"
    path.write_bytes(b"weights." * (size // 8))
    with path.open("rb") as file:
        read_only = mmap.mmap(file.fileno(), 0, mmap.MAP_PRIVATE, mmap.PROT_READ)
        own = mmap.mmap(file.fileno(), 0, mmap.MAP_PRIVATE, mmap.PROT_READ | mmap.PROT_WRITE)
    own[:8] = b"changed."
    assert read_only[:] + own[:] == b"weights." * (size // 8) + b"changed." + b"weights." * (size // 8 - 1)
    assert resident(path) == [size >> 10] * 2
    give_back([path])
    assert sorted(resident(path)) == [0, size >> 10]
    assert (read_only[:8], own[:8]) == (b"weights.", b"changed.")


def test_enough_is_enough(tmp_path: Path) -> None:
    room(memory_needed(THREE_B), 10**10).check(THREE_B, tmp_path)


def test_this_machine_is_asked(tmp_path: Path) -> None:
    assert memory_available() > 0
    assert disk_available(tmp_path / "not" / "yet") > 0
    assert peak_memory() > 10**7


def test_sizes_are_written_in_gb_and_mb() -> None:
    assert (gigabytes(6_150_197_248), gigabytes(11_400_000)) == ("6.15 GB", "11.4 MB")
