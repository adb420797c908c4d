"""Files appear whole or not at all: they are written beside their place and renamed at the end.

A killed run leaves what was there before, and a few hidden files that the next run sweeps away.
"""

from __future__ import annotations

import errno
import fcntl
import os
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import TypeGuard

from artifacts.errors import StageError, refuse

_PREFIX = ".writing"
_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
_CLOSED = (errno.EROFS, errno.EACCES, errno.EPERM)
_FAILS = (errno.EIO, errno.ESTALE)


class Writing:
    """Write several files of one folder and let them appear together when the block ends well.

    Example::

        with Writing(onnx_folder) as writing:
            writing.path("model.onnx").write_bytes(data)

    Inside the block a file lies beside its place as `.writing.<pid>.<name>`; an error removes it, and the folders that
    were made for it and are empty. The renames at the end follow the order of `path` calls, so a manifest asked for
    last appears last. One process at a time writes into a folder: another is refused as long as the block lasts.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._names: list[str] = []
        self._new: list[Path] = []
        self._lock = -1

    def __enter__(self) -> Writing:
        self._new = [place for place in (self.folder, *self.folder.parents) if not place.exists()]
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            self._take_lock()
            sweep(self.folder, alone=self._lock >= 0)
            probe(self.folder)
        except OSError as error:
            self._give_lock()
            self._remove_new()
            raise cannot_write(self.folder, error) from error
        return self

    def _take_lock(self) -> None:
        """Lock the folder itself; the system gives the lock back however this process ends.

        Raises:
            StageError: another process has it.
            OSError: the folder cannot be opened.
        """
        self._lock = os.open(self.folder, os.O_RDONLY)
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            self._give_lock()
            raise refuse(
                f"another run is writing into {self.folder}",
                expected="one run at a time for one model",
                found="its lock is taken",
                remedy="wait until it has ended, or give another NAME",
            ) from None
        except OSError:
            # Some network file systems have no locks; the renames are whole there too.
            self._give_lock()

    def _give_lock(self) -> None:
        if self._lock >= 0:
            os.close(self._lock)
            self._lock = -1

    def path(self, name: str) -> Path:
        """Give the place to write a file to until the block ends."""
        if name not in self._names:
            self._names.append(name)
        return self.folder / f"{_PREFIX}.{os.getpid()}.{name}"

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            if error is None:
                self._put_in_place()
                return
            for name in self._names:
                self.path(name).unlink(missing_ok=True)
            self._remove_new()
        finally:
            self._give_lock()
        if is_refusal_of_the_disk(error):
            raise cannot_write(self.folder, error) from error

    def _remove_new(self) -> None:
        """Remove the folders that were not there before, from the deepest up to the first that holds something."""
        with suppress(OSError):
            for place in self._new:
                place.rmdir()

    def _put_in_place(self) -> None:
        """Rename every file; where one cannot be, the rest is removed and the message names the place."""
        try:
            for name in self._names:
                if (self.folder / name).is_dir():
                    raise IsADirectoryError(errno.EISDIR, "a folder of that name")
            for name in self._names:
                self.path(name).replace(self.folder / name)
        except OSError as problem:
            for left in self._names:
                self.path(left).unlink(missing_ok=True)
            raise refuse(
                f"{self.folder / name} cannot be put in its place",
                expected="a file of that name, or none",
                found=problem.strerror or str(problem),
                remedy=f"move {self.folder / name} away, then run it again",
            ) from problem


def probe(folder: Path) -> None:
    """Write a file into a folder and remove it.

    Raises:
        OSError: the folder takes none.
    """
    path = folder / f"{_PREFIX}.{os.getpid()}.probe"
    path.touch()
    path.unlink()


def sweep(folder: Path, *, alone: bool) -> None:
    """Remove what killed runs left in a folder.

    Args:
        folder: the folder.
        alone: nobody else writes there; else files whose process may still run are kept.
    """
    for path in folder.glob(f"{_PREFIX}.*"):
        pid = path.name.split(".")[2]
        if pid.isdigit() and (alone or not Path(f"/proc/{pid}").exists()):
            path.unlink(missing_ok=True)


def is_refusal_of_the_disk(error: object) -> TypeGuard[OSError]:
    """Whether something went wrong because a folder takes no files: no room, no right to write, a disk that fails."""
    return isinstance(error, OSError) and error.errno in (*_FULL, *_CLOSED, *_FAILS)


def cannot_write(folder: Path, error: OSError, *, setting: str = "OUT") -> StageError:
    """Say why a folder took no files, and what to do; `setting` is what names another folder."""
    full = error.errno in _FULL
    return refuse(
        f"{folder} cannot be written",
        expected="a folder with room that this user may write to",
        found=f"{error.strerror or error}",
        remedy=f"free space or set {setting} to a larger disk"
        if full
        else f"set {setting} to another folder, or change its rights",
    )
