"""Files appear whole or not at all, whatever ends the writing."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
from pathlib import Path

import pytest

from artifacts.errors import StageError
from artifacts.writing import Writing


def write(folder: Path, text: str, error: Exception | None = None) -> None:
    with Writing(folder) as writing:
        writing.path("a").write_text(text)
        if error is not None:
            raise error
        writing.path("b").write_text(text)


def contents(folder: Path) -> dict[str, str]:
    return {path.name: path.read_text() for path in folder.iterdir()}


def test_all_files_appear_at_the_end(tmp_path: Path) -> None:
    write(tmp_path / "deep" / "folder", "new")
    assert contents(tmp_path / "deep" / "folder") == {"a": "new", "b": "new"}


def test_an_error_leaves_what_was_there(tmp_path: Path) -> None:
    write(tmp_path, "old")
    with pytest.raises(KeyError):
        write(tmp_path, "new", KeyError())
    assert contents(tmp_path) == {"a": "old", "b": "old"}


def test_an_error_leaves_no_folder_that_was_made_for_the_files(tmp_path: Path) -> None:
    with pytest.raises(KeyError):
        write(tmp_path / "deep" / "folder", "new", KeyError())
    assert list(tmp_path.iterdir()) == []
    (tmp_path / "deep").mkdir()
    with pytest.raises(KeyError):
        write(tmp_path / "deep" / "folder", "new", KeyError())
    assert [path.name for path in tmp_path.rglob("*")] == ["deep"], "a folder that was there stays"


def test_a_folder_into_which_somebody_else_wrote_meanwhile_stays(tmp_path: Path) -> None:
    folder = tmp_path / "deep" / "folder"

    def fail() -> None:
        with Writing(folder):
            (folder.parent / "other").touch()
            raise KeyError

    with pytest.raises(KeyError):
        fail()
    assert [path.name for path in (tmp_path / "deep").iterdir()] == ["other"]


@pytest.mark.parametrize(
    ("number", "remedy"),
    [
        *((number, "larger disk") for number in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)),
        *((number, "change its rights") for number in (errno.EROFS, errno.EACCES, errno.EPERM)),
        *((number, "another folder") for number in (errno.EIO, errno.ESTALE)),
    ],
)
def test_a_folder_that_takes_no_file_is_named_with_a_remedy(tmp_path: Path, number: int, remedy: str) -> None:
    with pytest.raises(StageError, match=remedy):
        write(tmp_path, "half", OSError(number, os.strerror(number)))
    assert contents(tmp_path) == {}


def test_a_folder_that_is_a_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "out").touch()
    with pytest.raises(StageError, match="cannot be written"):
        write(tmp_path / "out", "new")


def test_a_place_that_is_taken_is_named_and_nothing_is_left_beside_it(tmp_path: Path) -> None:
    (tmp_path / "b" / "in the way").mkdir(parents=True)
    with pytest.raises(StageError, match=r"b cannot be put in its place(.|\n)*move .*b away"):
        write(tmp_path, "new")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["b"]


def test_a_killed_run_leaves_what_was_there_and_the_next_one_sweeps(tmp_path: Path) -> None:
    write(tmp_path, "old")
    program = (
        "import os, signal, sys; from pathlib import Path; from artifacts.writing import Writing\n"
        "with Writing(Path(sys.argv[1])) as writing:\n"
        "    writing.path('a').write_text('half'); os.kill(os.getpid(), signal.SIGKILL)"
    )
    subprocess.run([sys.executable, "-c", program, str(tmp_path)], check=False)
    assert {name: text for name, text in contents(tmp_path).items() if name[0] != "."} == {"a": "old", "b": "old"}
    assert len(contents(tmp_path)) == 3
    write(tmp_path, "new")
    assert contents(tmp_path) == {"a": "new", "b": "new"}


def test_what_lies_there_under_the_number_of_a_process_is_kept_only_where_folders_have_no_locks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another process may have the number of one that was killed; whoever writes has the lock."""
    other = tmp_path / f".writing.{os.getppid()}.a"

    def none(*ignored: object) -> None:
        raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))

    for locks in (False, True):
        other.touch()
        with monkeypatch.context() as patched:
            if not locks:
                patched.setattr("fcntl.flock", none)
            write(tmp_path, "new")
        assert other.exists() is not locks


def test_two_runs_cannot_write_into_one_folder_at_once(tmp_path: Path) -> None:
    write(tmp_path, "old")
    with Writing(tmp_path) as first:
        first.path("a").write_text("first")
        with pytest.raises(StageError, match="another run is writing into"):
            write(tmp_path, "second")
        assert contents(tmp_path)["a"] == "old"
    assert contents(tmp_path) == {"a": "first", "b": "old"}
    write(tmp_path, "third")
    assert contents(tmp_path) == {"a": "third", "b": "third"}
