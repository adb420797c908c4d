"""What a graph says about its data file is believed only after it was checked; no weight is read for that.

A location that leaves the folder, a symbolic link, an offset past the end: onnx, ONNX Runtime and TensorRT each refuse
some of these, late and in their own words. Here all of a graph's faults are told at once.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path, PurePosixPath

import onnx
from onnx import TensorProto

from artifacts.errors import Problem


def external_problems(model: onnx.ModelProto, folder: Path, remedy: str) -> list[Problem]:
    """Check where every external initializer lies.

    Args:
        model: a graph whose external data was not loaded.
        folder: the folder of the graph's file.
        remedy: the command that makes the graph again.

    Returns:
        Everything that is wrong, one problem for each file or tensor.
    """
    places = [_place(tensor) for tensor in model.graph.initializer if tensor.data_location == TensorProto.EXTERNAL]
    problems: list[Problem] = []
    sizes: dict[str, int] = {}
    for location in dict.fromkeys(place[1] for place in places):
        wrong = _file_problem(folder, location, remedy)
        if wrong:
            problems.append(wrong)
        else:
            sizes[location] = (folder / location).stat().st_size
    return problems + list(_range_problems(model, sizes, remedy))


def _place(tensor: TensorProto) -> tuple[str, str, str, str]:
    """Give a tensor's name, location, offset and length as the graph spells them."""
    entries = {entry.key: entry.value for entry in tensor.external_data}
    return tensor.name, entries.get("location", ""), entries.get("offset", "0"), entries.get("length", "")


def _file_problem(folder: Path, location: str, remedy: str) -> Problem | None:
    """Say what is wrong with a data file's place, or nothing."""
    inside = "a plain file in the graph's own folder"
    path = PurePosixPath(location)
    if not location or path.is_absolute() or len(path.parts) != 1 or location in (".", ".."):
        return Problem("external data leaves the graph's folder", inside, repr(location), remedy)
    target = folder / location
    if target.is_symlink():
        return Problem("external data is a symbolic link", inside, f"{location} -> {target.readlink()}", remedy)
    if not target.is_file():
        return Problem("external data is missing", inside, f"no file {target}", remedy)
    if target.stat().st_nlink > 1:
        found = f"{location} with {target.stat().st_nlink} links"
        return Problem("external data is a hard link, which onnx and Polygraphy refuse", inside, found, remedy)
    return None


def _range_problems(model: onnx.ModelProto, sizes: dict[str, int], remedy: str) -> Iterator[Problem]:
    """Yield each tensor whose bytes do not lie inside its file, or are not as many as its shape needs."""
    for tensor in model.graph.initializer:
        if tensor.data_location != TensorProto.EXTERNAL:
            continue
        name, location, offset, length = _place(tensor)
        needed = _bytes(tensor)
        if not offset.isdigit() or (length and not length.isdigit()):
            yield Problem(
                f"{name} has no place in {location}", "offset and length in bytes", f"{offset!r}, {length!r}", remedy
            )
        elif length and int(length) != needed:
            yield Problem(f"{name} has another length than its shape", f"{needed} bytes", f"{length} bytes", remedy)
        elif location in sizes and int(offset) + needed > sizes[location]:
            end = f"offset {offset} + {needed} bytes"
            yield Problem(f"{name} ends past the end of {location}", f"at most {sizes[location]} bytes", end, remedy)


def _bytes(tensor: TensorProto) -> int:
    count = 1
    for dim in tensor.dims:
        count *= dim
    return count * onnx.helper.tensor_dtype_to_np_dtype(tensor.data_type).itemsize
