"""What a graph says about its data file is believed only after it was checked; no weight is read for that.

A location that leaves the folder, a symbolic link, an offset past the end: onnx, ONNX Runtime and TensorRT each refuse
some of these, late and in their own words. Here all of a graph's faults are told at once.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
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
    external = [tensor for tensor in model.graph.initializer if tensor.data_location == TensorProto.EXTERNAL]
    problems: list[Problem] = []
    sizes: dict[str, int] = {}
    for location in dict.fromkeys(place(tensor)[0] for tensor in external):
        wrong = _file_problem(folder, location, remedy)
        if wrong:
            problems.append(wrong)
        else:
            sizes[location] = (folder / location).stat().st_size
    return problems + list(_range_problems(external, sizes, remedy))


def place(tensor: TensorProto) -> tuple[str, str, str]:
    """Give an external tensor's location, offset and length as the graph spells them."""
    entries = {entry.key: entry.value for entry in tensor.external_data}
    return entries.get("location", ""), entries.get("offset", "0"), entries.get("length", "")


def size(tensor: TensorProto) -> int:
    """Bytes of a tensor's values, from its shape and type."""
    return int(math.prod(tensor.dims) * onnx.helper.tensor_dtype_to_np_dtype(tensor.data_type).itemsize)


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
        return Problem(f"external data {location} is missing", inside, f"no file {target}", remedy)
    if target.stat().st_nlink > 1:
        found = f"{location} with {target.stat().st_nlink} links"
        return Problem("external data is a hard link, which onnx and Polygraphy refuse", inside, found, remedy)
    return None


def _range_problems(external: Iterable[TensorProto], sizes: Mapping[str, int], remedy: str) -> Iterator[Problem]:
    """Yield each tensor whose bytes are not as many as its shape needs, and each file that ends before its tensors."""
    cut: dict[str, Problem] = {}
    for tensor in external:
        (location, offset, length), needed = place(tensor), size(tensor)
        if not offset.isdecimal() or (length and not length.isdecimal()):
            found = f"{offset!r}, {length!r}"
            yield Problem(f"{tensor.name} has no place in {location}", "offset and length in bytes", found, remedy)
        elif length and int(length) != needed:
            what = f"{tensor.name} has another length than its shape"
            yield Problem(what, f"{needed} bytes", f"{length} bytes", remedy)
        elif location in sizes and int(offset) + needed > sizes[location]:
            expected = f"{int(offset) + needed} bytes or more, where {tensor.name} ends"
            problem = Problem(f"{location} ends before its tensors do", expected, f"{sizes[location]} bytes", remedy)
            cut.setdefault(location, problem)
    yield from cut.values()
