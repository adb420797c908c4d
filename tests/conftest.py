"""What several tests share: one export of `random:tiny` a session, and its fused graphs; made when first asked for."""

from __future__ import annotations

import shutil

import pytest

from artifacts.layout import ModelFolder


@pytest.fixture(scope="session")
def exported(tmp_path_factory: pytest.TempPathFactory) -> ModelFolder:
    """Export `random:tiny`; a test that changes anything copies the folder first."""
    from export import export_onnx
    from export.options import ExportOptions

    return export_onnx(ExportOptions("random:tiny", out=tmp_path_factory.mktemp("exported"))).folder


@pytest.fixture(scope="session")
def fused(exported: ModelFolder, tmp_path_factory: pytest.TempPathFactory) -> ModelFolder:
    """Fuse a copy of the export of `random:tiny`, with 512 slots; not to be changed either."""
    from surgery import fuse

    root = tmp_path_factory.mktemp("fused") / exported.name
    shutil.copytree(exported.root, root)
    fuse(root, 512)
    return ModelFolder(root)
