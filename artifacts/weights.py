"""The weights of a checkpoint, read from safetensors one tensor at a time; a pickle is refused by name.

A file is opened for each tensor and closed again, so nothing stays mapped and 6 GB of weights never count as memory.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from artifacts.errors import Problem, StageError, refuse

if TYPE_CHECKING:
    import torch

SINGLE_FILE = "model.safetensors"
INDEX_FILE = "model.safetensors.index.json"
SAVE_AGAIN = "save the checkpoint with save_pretrained, which writes safetensors"
PICKLES = ("*.bin", "*.pt", "*.pth", "*.ckpt", "*.pkl")


FLOATS = ("BF16", "F16", "F32", "F64")
"""Types of weights that can be rounded to BF16, by their names in safetensors."""


class Weights(Protocol):
    """The tensors of a checkpoint."""

    def names(self) -> tuple[str, ...]:
        """Names of all tensors."""
        ...

    def shape(self, name: str) -> tuple[int, ...]:
        """Shape of one tensor, without reading it."""
        ...

    def tensor(self, name: str) -> torch.Tensor:
        """Give one tensor in the type that it is stored in."""
        ...


def weight_files(folder: Path) -> list[Path]:
    """Name the weight files of a checkpoint folder: the one file, or the index and its shards.

    Raises:
        StageError: there are none, only pickles, or the index is unreadable or names files that are not there.
    """
    if (folder / SINGLE_FILE).is_file():
        return [folder / SINGLE_FILE]
    if (folder / INDEX_FILE).is_file():
        shards = sorted(set(_weight_map(folder).values()))
        missing = [name for name in shards if not (folder / name).is_file()]
        if missing:
            raise StageError(
                Problem(
                    f"shard {name} is missing",
                    f"{len(shards)} shards, as {INDEX_FILE} names them",
                    f"no {folder / name}",
                    "get the checkpoint again, whole",
                )
                for name in missing
            )
        return [folder / INDEX_FILE, *(folder / name for name in shards)]
    pickles = sorted(path.name for pattern in PICKLES for path in folder.glob(pattern))
    found = ", ".join(sorted(path.name for path in folder.iterdir())[:8]) or "an empty folder"
    raise refuse(
        f"{pickles[0]} is a pickle, which can run code when it is read" if pickles else f"{folder} holds no weights",
        expected=f"{SINGLE_FILE}, or {INDEX_FILE} and its shards",
        found=", ".join(pickles) or found,
        remedy=SAVE_AGAIN,
    )


class SafetensorsWeights:
    """The weights of a checkpoint folder; every header is read and judged at once, no tensor before it is asked for.

    Raises:
        StageError: all files that are corrupt or truncated, or a tensor that two files hold.
    """

    def __init__(self, folder: Path) -> None:
        files = [path for path in weight_files(folder) if path.name != INDEX_FILE]
        self._shapes: dict[str, tuple[int, ...]] = {}
        self._files: dict[str, Path] = {}
        self._unread: set[str] = set()
        problems = [problem for path in files for problem in self._read_header(path)]
        if (folder / INDEX_FILE) in weight_files(folder):
            problems += self._compare_with_index(_weight_map(folder))
        if problems:
            raise StageError(problems)

    def names(self) -> tuple[str, ...]:
        """Names of all tensors in all files."""
        return tuple(self._shapes)

    def shape(self, name: str) -> tuple[int, ...]:
        """Shape of one tensor, as its file's header says."""
        return self._shapes[name]

    def tensor(self, name: str) -> torch.Tensor:
        """Read one tensor in the type that it is stored in."""
        from safetensors import safe_open

        with safe_open(self._files[name], framework="pt") as file:
            tensor: torch.Tensor = file.get_tensor(name)
        return tensor

    def _read_header(self, path: Path) -> Iterator[Problem]:
        from safetensors import SafetensorError, safe_open

        try:
            # numpy, because it does not import torch; no tensor is read here.
            with safe_open(path, framework="np") as file:
                for name in file.keys():  # noqa: SIM118 (it is no mapping)
                    if name in self._files:
                        files = f"{self._files[name].name}, {path.name}"
                        yield Problem(f"tensor {name} is in two files", "one file", files, SAVE_AGAIN)
                    self._files[name] = path
                    header = file.get_slice(name)
                    self._shapes[name] = tuple(header.get_shape())
                    if header.get_dtype() not in FLOATS:
                        yield Problem(
                            f"tensor {name} is of a type that is not carried",
                            f"one of {', '.join(FLOATS)}",
                            f"{header.get_dtype()} in {path.name}",
                            "export the checkpoint that this one was quantized from",
                        )
        except (SafetensorError, OSError) as error:
            self._unread.add(path.name)
            yield Problem(
                f"{path} is corrupt or cut short",
                "a whole safetensors file",
                f"{path.stat().st_size} bytes: {error}",
                "get the file again and compare its sha256 with the publisher's",
            )

    def _compare_with_index(self, weight_map: dict[str, str]) -> Iterator[Problem]:
        """Hold the index against the files that could be read; of the others one message is enough."""
        for name, file in weight_map.items():
            found = self._files.get(name)
            if file not in self._unread and (found is None or found.name != file):
                yield Problem(
                    f"tensor {name} is not where {INDEX_FILE} says",
                    file,
                    found.name if found else "in no shard",
                    "get the checkpoint again, whole",
                )


def _weight_map(folder: Path) -> dict[str, str]:
    path = folder / INDEX_FILE
    try:
        weight_map = json.loads(path.read_text(encoding="utf-8"))["weight_map"]
        plain = {str(name): str(file) for name, file in weight_map.items()}
        outside = [file for file in plain.values() if Path(file).name != file]
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise refuse(
            f"{path} is no index of safetensors",
            expected="a JSON object with weight_map",
            found=str(error),
            remedy=SAVE_AGAIN,
        ) from None
    if outside:
        what = f"{path} names a file outside its folder"
        raise refuse(what, expected="plain file names", found=outside[0], remedy=SAVE_AGAIN)
    return plain
