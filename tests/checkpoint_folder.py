"""Small checkpoints on disk, as `save_pretrained` lays them out, for tests to read and to break."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file

from artifacts.config import ModelConfig
from artifacts.random_model import RandomWeights, preset_config
from artifacts.weights import INDEX_FILE, SINGLE_FILE


def small_config(**changes: Any) -> dict[str, Any]:
    """A model of two layers, the second without RoPE; a value of `...` removes the key."""
    raw = {**preset_config("tiny"), "num_hidden_layers": 2, "no_rope_layers": [1, 0], **changes}
    return {key: value for key, value in raw.items() if value is not ...}


def tensors_of(raw: Mapping[str, Any], dtype: torch.dtype = torch.bfloat16) -> dict[str, torch.Tensor]:
    """Seeded weights for a config."""
    weights = RandomWeights(ModelConfig.from_raw(raw))
    return {name: weights.tensor(name).to(dtype) for name in weights.names()}


def write_checkpoint(
    folder: Path, raw: Mapping[str, Any], tensors: Mapping[str, torch.Tensor] | None = None, shards: int = 1
) -> Path:
    """Write config.json and the weights, in one file or in shards with an index; give the folder."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps(raw))
    tensors = tensors_of(raw) if tensors is None else dict(tensors)
    if shards == 1:
        save_file(tensors, folder / SINGLE_FILE)
        return folder
    weight_map = {name: f"model-{i % shards + 1:05}-of-{shards:05}.safetensors" for i, name in enumerate(tensors)}
    for file in sorted(set(weight_map.values())):
        save_file({name: tensors[name] for name in tensors if weight_map[name] == file}, folder / file)
    (folder / INDEX_FILE).write_text(json.dumps({"metadata": {}, "weight_map": weight_map}))
    return folder


def cache_as_hub(cache: Path, repository: str, revision: str, source: Path, ref: str | None = None) -> Path:
    """Lay a folder out as the hub's client does: blobs, a snapshot of links, and a listing; give the snapshot.

    The listing names what the repository has beyond what is fetched, as the client writes it down after a download.
    """
    root = cache / f"models--{repository.replace('/', '--')}"
    snapshot = root / "snapshots" / revision
    snapshot.mkdir(parents=True)
    (root / "blobs").mkdir()
    for number, path in enumerate(sorted(source.iterdir())):
        blob = root / "blobs" / f"{number:064x}"
        blob.write_bytes(path.read_bytes())
        (snapshot / path.name).symlink_to(Path("../../blobs") / blob.name)
    names = [*(path.name for path in source.iterdir()), "README.md", "onnx/model.onnx"]
    files = {name: {"size": 1, "blob_id": f"{number:040x}"} for number, name in enumerate(names)}
    (root / "trees").mkdir()
    (root / "trees" / f"{revision}.json").write_text(json.dumps({"format_version": 1, "files": files}))
    if ref is not None:
        (root / "refs").mkdir()
        (root / "refs" / ref).write_text(revision)
    return snapshot
