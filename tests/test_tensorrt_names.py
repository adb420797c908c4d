"""Every name of TensorRT that the code uses exists in both TensorRTs, so that the GPU path cannot rot unseen.

tests/data/tensorrt_api.json lists the names of TensorRT 11.4 and of TensorRT-RTX 1.7.1 in Python. The convention that
makes this possible: the module is called `trt` (or `self.trt`, `self._trt`) wherever it is used. A name that only one
of them has must be listed where it is guarded, in a module's tuple `ONLY_TENSORRT` or `ONLY_RTX`, as `"Class.member"`.
"""

import ast
import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from build.target import RTX_KNOWS

ROOT = Path(__file__).parent.parent
PACKAGES = ("artifacts", "export", "surgery", "build", "runtime", "validate")
API = json.loads((Path(__file__).parent / "data" / "tensorrt_api.json").read_text())
TABLES = {"ONLY_TENSORRT": "tensorrt", "ONLY_RTX": "tensorrt_rtx"}
RECEIVERS = {"trt", "_trt"}


def sources() -> list[Path]:
    """All modules of the packages; what lies in artifacts/out/ is no code of ours."""
    found = (path for package in PACKAGES for path in (ROOT / package).rglob("*.py"))
    return sorted(path for path in found if "out" not in path.relative_to(ROOT).parts)


def chain(node: ast.Attribute) -> tuple[str, ...] | None:
    """Give the names behind `trt` in `trt.A.B`, or None if the expression does not begin with it."""
    names: list[str] = []
    inner: ast.expr = node
    while isinstance(inner, ast.Attribute):
        if inner.attr in RECEIVERS and isinstance(inner.value, ast.Name):
            return tuple(reversed(names)) or None
        names.append(inner.attr)
        inner = inner.value
    if isinstance(inner, ast.Name) and inner.id in RECEIVERS:
        return tuple(reversed(names))
    return None


def used_names(source: str) -> set[tuple[str, ...]]:
    """Give every chain of a module, `("BuilderFlag", "REFIT")`; Python's own `__name__` and such are left out."""
    attributes = [node for node in ast.walk(ast.parse(source)) if isinstance(node, ast.Attribute)]
    inner = {id(node.value) for node in attributes}
    chains = {chain(node) for node in attributes if id(node) not in inner}
    plain = {tuple(name for name in names if not name.startswith("__")) for names in chains if names}
    return plain - {()}


def exceptions(source: str) -> dict[str, set[str]]:
    """Give the names that a module says only one TensorRT has."""
    listed: dict[str, set[str]] = {library: set() for library in TABLES.values()}
    for node in ast.parse(source).body:
        targets = node.targets if isinstance(node, ast.Assign) else []
        for target in targets:
            if isinstance(target, ast.Name) and target.id in TABLES and isinstance(node, ast.Assign):
                listed[TABLES[target.id]] |= set(ast.literal_eval(node.value))
    return listed


def has(library: str, names: tuple[str, ...]) -> bool:
    first, second = names[0], names[1] if len(names) > 1 else None
    both, own = API["both"], API[library]
    if second is None:
        return first in both or first in own
    return second in both.get(first, ()) or second in own.get(first, ())


def wrong_names(source: str) -> Iterator[str]:
    listed = exceptions(source)
    for names in sorted(used_names(source)):
        spelled = ".".join(names[:2])
        for library, other in (("tensorrt", "tensorrt_rtx"), ("tensorrt_rtx", "tensorrt")):
            if not has(library, names) and not (spelled in listed[other] and has(other, names)):
                yield f"trt.{spelled} is not in {library} {API['versions'][library]}"


@pytest.mark.parametrize("path", sources(), ids=lambda path: str(path.relative_to(ROOT)))
def test_every_name_is_in_both(path: Path) -> None:
    assert not list(wrong_names(path.read_text()))


def test_there_are_names_to_hold() -> None:
    names = {names for path in sources() for names in used_names(path.read_text())}
    assert ("ProfilingVerbosity", "DETAILED") in names
    assert len(names) >= 8


@pytest.mark.parametrize(
    ("source", "wrong"),
    [
        ("trt.BuilderFlag.REFTI", 2),
        ("trt.BuilderFlag.BF16", 2),
        ("trt.CreateBuilder()", 2),
        ("self.trt.Bilder(log)", 2),
        ("self._trt.LayerType.ATENTION", 2),
        ("trt.ComputeCapability.SM89", 1),
        ("config.set_flag(trt.BuilderFlag.REQUIRE_USER_ALLOCATION)", 1),
        ("trt.BuilderFlag.REFIT", 0),
        ("trt.__version__", 0),
        ("ONLY_RTX = ('ComputeCapability.SM89',)\ntrt.ComputeCapability.SM89", 0),
        ("ONLY_RTX = ('ComputeCapability.SM90',)\ntrt.ComputeCapability.SM90", 2),
        ("ONLY_TENSORRT = ('ComputeCapability.SM89',)\ntrt.ComputeCapability.SM89", 1),
    ],
)
def test_a_planted_name_is_judged(source: str, wrong: int) -> None:
    assert len(list(wrong_names(source))) == wrong


def test_the_capabilities_are_those_that_rtx_has() -> None:
    listed = {name for name in API["tensorrt_rtx"]["ComputeCapability"] if name.startswith("SM")}
    assert listed == {f"SM{capability.replace('.', '')}" for capability in RTX_KNOWS}


def test_the_list_is_the_installed_one() -> None:
    trt = pytest.importorskip("tensorrt_rtx")
    if trt.__version__ != API["versions"]["tensorrt_rtx"]:
        pytest.skip(f"the list is of {API['versions']['tensorrt_rtx']}, installed is {trt.__version__}")
    for names in (API["both"], API["tensorrt_rtx"]):
        for name, members in names.items():
            assert all(hasattr(getattr(trt, name), member) for member in members), name
