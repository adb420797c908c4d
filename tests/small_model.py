"""A small fused model in FP32 that talks to the test tokenizer, made by hand: both cache forms, random weights.

Four layers, two of them without rotation. Its text is nonsense, but it is the same nonsense whenever the same tokens
went in, and other nonsense if one of them did not.
"""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np

from artifacts.config import ModelConfig
from artifacts.contract import Form
from artifacts.layout import DATA_FILE, ModelFolder
from artifacts.manifest import FileRecord, Manifest
from artifacts.twin import fp32_twin
from runtime.plan_check import PlanFile
from tests.chat_model import CHAT
from tests.fused_graph import CHECKPOINT, CONFIG, GraphWriter, model_of

SMALL = {
    **CONFIG,
    "vocab_size": 512,
    "num_hidden_layers": 4,
    "no_rope_layers": [1, 0, 1, 0],
    "max_position_embeddings": 4096,
    "bos_token_id": None,
    "eos_token_id": 499,
    "pad_token_id": 501,
}
CAPACITY = 192
CHUNK, ROWS = 32, 3
TOKENIZER = ("tokenizer.json", "tokenizer_config.json")


class RangeOfSlots(GraphWriter):
    """Counts the slots of the linear cache with a Range, as surgery does."""

    def constant(self, name: str, values: object, dtype: object = None) -> str:
        if name == "mask/slots":
            ends = (
                super().constant("slots.0", 0),
                super().constant("slots.C", self.capacity),
                super().constant("s.1", 1),
            )
            return self.op("Range", *ends, name=name)
        return super().constant(name, values, *([] if dtype is None else [dtype]))

    def weight(self, name: str, *shape: int) -> str:
        # As the hand-made graph has them, attention is nearly flat and a lost token would change little.
        begin = len(self.data)
        super().weight(name, *shape)
        values = np.frombuffer(bytes(self.data[begin:]), ml_dtypes.bfloat16).astype(np.float32)
        factor = 4 if ".q_proj" in name or ".k_proj" in name else 1
        values = values + 1 if "norm" in name else values * factor
        self.data[begin:] = values.astype(ml_dtypes.bfloat16).tobytes()
        return name


def write_small_model(
    root: Path, *, capacity: int = CAPACITY, tokenizer: bool = True, template: bool = True
) -> ModelFolder:
    """Write `OUT/<model>/onnx/` with the FP32 twins of both forms, the test tokenizer and manifests."""
    folder, config = ModelFolder(root), ModelConfig.from_raw(SMALL)
    folder.onnx.mkdir(parents=True)
    (folder.onnx / "config.json").write_text(json.dumps(SMALL))
    (folder.onnx / "generation_config.json").write_text(json.dumps({"eos_token_id": 503}))
    for form, slots in ((Form.MODEL, None), (Form.MODEL_LINEAR, capacity)):
        writer = RangeOfSlots(config, slots)
        writer.body()
        (folder.onnx / DATA_FILE).write_bytes(writer.data)
        twin = fp32_twin(model_of(writer, form), config)
        folder.graph(form, twin=True).write_bytes(twin.SerializeToString())
    for name in [*(TOKENIZER if tokenizer else []), *(["chat_template.jinja"] if template else [])]:
        shutil.copy(CHAT / name, folder.onnx / name)
    graphs = [folder.graph(form, twin=True).name for form in (Form.MODEL, Form.MODEL_LINEAR)]
    exported = [path.name for path in folder.onnx.iterdir() if path.name not in graphs]
    _manifest(folder, "export", exported)
    _manifest(folder, "surgery", graphs)
    return folder


def write_plan(folder: ModelFolder, form: Form, target: str = "tensorrt_rtx-1.7.1-sm89", **facts: Any) -> PlanFile:
    """Write a plan's folder as build leaves it; the plan itself is no engine."""
    directory = folder.target("build", target)
    directory.mkdir(parents=True, exist_ok=True)
    (directory / "model.plan").write_bytes(b"a plan")
    graph = folder.onnx / form.file_name()
    graph.write_bytes(b"a graph in BF16")
    record = {f"onnx/{graph.name}": FileRecord.of(graph, folder.digests())}
    Manifest("surgery", {}, {}, {}, {**folder.surgery_manifest().outputs, **record}, {}).write(
        folder.onnx / "surgery.manifest.json"
    )
    known = {
        "backend": "tensorrt-rtx",
        "tensorrt_version": "1.7.1.116",
        "compute_capabilities": ["8.9", "12.0"],
        "form": form.value,
        "capacity": CAPACITY if form.linear else None,
        "max_context": CAPACITY,
        "prefill_chunk": CHUNK,
    }
    options = {"max_batch_size": ROWS, "version_compatible": False, "hardware_compatibility_level": None}
    outputs = {folder.relative(directory / "model.plan"): FileRecord.of(directory / "model.plan", folder.digests())}
    Manifest("build", options, {}, record, outputs, {}, {**known, **facts}).write(directory / "manifest.json")
    return PlanFile(folder, target)


def _manifest(folder: ModelFolder, stage: str, names: list[str]) -> None:
    digests = folder.digests()
    outputs = {f"onnx/{name}": FileRecord.of(folder.onnx / name, digests) for name in names}
    Manifest(stage, {}, CHECKPOINT, {}, outputs, {}).write(folder.onnx / f"{stage}.manifest.json")
