"""The shape of the house: who may import whom, what is imported when, and how large a module may grow."""

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PACKAGES = ("artifacts", "export", "surgery", "build", "runtime", "validate")
MAY_IMPORT = {
    "artifacts": set(),
    "export": {"artifacts"},
    "surgery": {"artifacts"},
    "build": {"artifacts"},
    "runtime": {"artifacts"},
    "validate": {"artifacts", "export", "surgery", "build", "runtime"},
}
TOP_LEVEL = {*PACKAGES, "tests", "docs", "Makefile", "README.md", "pyproject.toml", "constraints.txt", "LICENSE"}
HEAVY = ("torch", "transformers", "tensorrt", "tensorrt_rtx", "onnxruntime", "polygraphy")
LONGEST_MODULE, LONGEST_FUNCTION = 300, 40


def modules() -> Iterator[Path]:
    for package in PACKAGES:
        for path in sorted((ROOT / package).rglob("*.py")):
            if "out" not in path.relative_to(ROOT).parts:
                yield path


def imported_packages(source: str) -> set[str]:
    """Give the top-level packages of ours that a module imports, wherever in it the import stands."""
    found = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            found |= {alias.name.partition(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            found.add(node.module.partition(".")[0])
    return found & set(PACKAGES)


def wrong_imports(package: str, source: str) -> set[str]:
    return imported_packages(source) - MAY_IMPORT[package] - {package}


@pytest.mark.parametrize("path", list(modules()), ids=lambda path: str(path.relative_to(ROOT)))
def test_imports_run_one_way(path: Path) -> None:
    assert not wrong_imports(path.relative_to(ROOT).parts[0], path.read_text())


def test_an_import_against_the_direction_is_seen() -> None:
    assert wrong_imports("surgery", "def f():\n    from export.source import resolve\n") == {"export"}


@pytest.mark.parametrize("package", PACKAGES)
def test_importing_a_package_imports_nothing_heavy(package: str) -> None:
    code = f"import sys, {package}; print([m for m in {HEAVY} if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


@pytest.mark.parametrize("path", list(modules()), ids=lambda path: str(path.relative_to(ROOT)))
def test_modules_and_functions_stay_small(path: Path) -> None:
    source = path.read_text()
    assert len(source.splitlines()) <= LONGEST_MODULE
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.FunctionDef):
            first = node.body[1] if ast.get_docstring(node) and len(node.body) > 1 else node.body[0]
            assert (node.end_lineno or 0) - first.lineno < LONGEST_FUNCTION, node.name


def test_the_top_level_holds_nothing_else() -> None:
    listed = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    names = {line.partition("/")[0] for line in listed.splitlines()}
    assert {name for name in names if not name.startswith(".")} <= TOP_LEVEL


def test_nothing_reads_what_lies_beside_the_project() -> None:
    for path in modules():
        assert "../shared" not in path.read_text()
