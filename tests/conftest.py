"""What several test files share: one small model, exported and fused once a session.

Exporting takes some seconds a layer, so every test that only reads a model uses this one; a test that changes files
copies the folder first.
"""

from __future__ import annotations

import gc
import os
import shutil
from pathlib import Path

import pytest
from filelock import FileLock

from artifacts.layout import ModelFolder
from export import export_onnx
from export.options import ExportOptions
from surgery import fuse


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Begin with the file that exports: of two processes one would else wait ten seconds for the other's export."""
    items.sort(key=lambda item: item.path.name != "test_export_pipeline.py")


def pytest_collection_finish() -> None:
    """Leave what was imported out of garbage collection, which took four seconds of each process."""
    gc.freeze()


@pytest.fixture(scope="session")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder that all processes of a parallel run share; what is made there under a lock is made once."""
    base = tmp_path_factory.getbasetemp()
    return base.parent if "PYTEST_XDIST_WORKER" in os.environ else base


@pytest.fixture(scope="session")
def exported(shared: Path) -> ModelFolder:
    """The export of `random:tiny-d128`: 4 layers, NoPE layers 0 and 2, head_dim 128, GQA; never written to."""
    with FileLock(shared / "exported.lock"):
        return export_onnx(ExportOptions("random:tiny-d128", shared / "out")).folder


@pytest.fixture(scope="session")
def fused(exported: ModelFolder, tmp_path_factory: pytest.TempPathFactory) -> ModelFolder:
    """The fused graphs of a copy of that export, with 512 slots; never written to either."""
    root = tmp_path_factory.mktemp("fused") / exported.name
    shutil.copytree(exported.root, root)
    fuse(root, 512)
    return ModelFolder(root)
