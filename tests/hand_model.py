"""A model made by hand that tests compare layer by layer: raw and fused, each with its FP32 twin."""

from __future__ import annotations

from pathlib import Path

import onnx

from artifacts.contract import Form
from artifacts.layout import ModelFolder
from artifacts.twin import fp32_twin
from surgery import fuse
from tests.raw_graph import write_raw_folder


def write_hand_model(root: Path) -> ModelFolder:
    """Write `OUT/<model>/onnx/` as surgery leaves it: three layers, the middle one without rotation."""
    folder = write_raw_folder(root, hidden_size=128, head_dim=32, num_hidden_layers=3, no_rope_layers=[1, 0, 1])
    fuse(folder.root, 128)
    raw = onnx.load(str(folder.graph(Form.EXPORT)), load_external_data=False)
    folder.graph(Form.EXPORT, twin=True).write_bytes(fp32_twin(raw, folder.config()).SerializeToString())
    return folder
