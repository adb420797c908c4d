"""`rotary.onnx_data`: cos and sin by position, made by the checkpoint's own rotary module, theta, YaRN and all.

Tables, not Cos and Sin in the graph: a GPU's fast cosine at an angle of 100,000 cannot be tested here. They are
compared with the published formula in double precision, and the distance goes into the manifest.
"""

from __future__ import annotations

import math
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from artifacts.config import ModelConfig
from artifacts.digest import HashingFile
from artifacts.errors import refuse
from artifacts.names import FP32_SUFFIX, ROTARY_COS, ROTARY_SIN

if TYPE_CHECKING:
    import torch
    from transformers import SmolLM3ForCausalLM

ALIGNMENT = 4096
TOLERANCE_PER_RADIAN = 4e-7
"""Relative error of an angle that FP32 may have made: measured 1.8e-7 (theta 5e6, head_dim 128) and 2.4e-7 (YaRN)."""


def write(path: Path, model: SmolLM3ForCausalLM, config: ModelConfig) -> tuple[str, dict[str, Any]]:
    """Write the four tables, (positions, D/2): cos and sin, in BF16 and in FP32.

    Returns:
        The file's sha256, and the manifest's facts: rows, columns, each tensor's type, offset and length, and the
        distance of the tables from double precision.

    Raises:
        StageError: the module's tables are not those of the published formula.
    """
    cos, sin = tables(model, config)
    distance = distance_from_fp64(cos, sin, config)
    tensors = {}
    with path.open("wb") as file:
        hashing, position = HashingFile(file), 0
        for name, table in _typed(cos, sin).items():
            data = table.contiguous().view(_bytes_type()).reshape(-1).numpy().data
            padding = -position % ALIGNMENT
            hashing.write(bytes(padding))
            hashing.write(data)
            kind = "float32" if name.endswith(FP32_SUFFIX) else "bfloat16"
            tensors[name] = {"dtype": kind, "offset": position + padding, "length": data.nbytes}
            position += padding + data.nbytes
        file.flush()
    facts = {"rows": cos.shape[0], "columns": cos.shape[1], "tensors": tensors, "distance_from_fp64": distance}
    return hashing.hexdigest(), facts


def tables(model: SmolLM3ForCausalLM, config: ModelConfig) -> tuple[torch.Tensor, torch.Tensor]:
    """Ask the model's rotary module for cos and sin of every position, in FP32; the two halves are equal, one stays."""
    import torch

    positions = torch.arange(config.max_positions).unsqueeze(0)
    with torch.no_grad():
        cos, sin = model.model.rotary_emb(torch.empty(0, dtype=torch.float32), positions)
    half = config.head_dim // 2
    return cos[0, :, :half], sin[0, :, :half]


def distance_from_fp64(cos: torch.Tensor, sin: torch.Tensor, config: ModelConfig) -> float:
    """Give the largest difference between the tables and the formula in double precision.

    Raises:
        StageError: it is more than FP32 explains, so theta or YaRN is not what the config says.
    """
    factor = config.attention_factor
    angles = np.arange(config.max_positions, dtype=np.float64)[:, None] * inverse_frequencies(config)
    distance = max(
        float(np.abs(table.numpy() - exact(angles) * factor).max()) for table, exact in ((cos, np.cos), (sin, np.sin))
    )
    limit = factor * TOLERANCE_PER_RADIAN * config.max_positions
    if not distance <= limit:
        raise refuse(
            "the rotary tables of the loaded model are not those of its config",
            expected=f"within {limit:.1e} of the formula, for {dict(config.rope)}",
            found=f"{distance:.1e} from it",
            remedy="correct rope_parameters in config.json, or install the versions of constraints.txt",
        )
    return distance


def inverse_frequencies(config: ModelConfig) -> npt.NDArray[np.float64]:
    """Compute frequencies, (D/2,), in radians a position, in double precision.

    Sources: RoFormer (arXiv 2104.09864) and, for YaRN, arXiv 2309.00071, sections 3.2 and 3.3.
    """
    dim, rope = config.head_dim, config.rope
    theta = float(rope["rope_theta"])
    plain = theta ** -(np.arange(0, dim, 2, dtype=np.float64) / dim)
    if rope["rope_type"] == "default":
        return plain

    def turning(turns: float) -> float:
        """Give the index of the dimension that turns so often within the original length."""
        return dim * math.log(rope["original_max_position_embeddings"] / (turns * 2 * math.pi)) / (2 * math.log(theta))

    low, high = turning(rope.get("beta_fast") or 32), turning(rope.get("beta_slow") or 1)
    if rope.get("truncate", True):
        low, high = math.floor(low), math.ceil(high)
    low, high = max(low, 0), min(high, dim - 1)
    width = high - low if high != low else 0.001
    slowed = np.clip((np.arange(dim // 2) - low) / width, 0, 1)
    frequencies: npt.NDArray[np.float64] = plain * (1 - slowed) + plain / rope["factor"] * slowed
    return frequencies


def _typed(cos: torch.Tensor, sin: torch.Tensor) -> dict[str, torch.Tensor]:
    import torch

    exact = {ROTARY_COS: cos, ROTARY_SIN: sin}
    rounded = {name: table.to(torch.bfloat16) for name, table in exact.items()}
    return {**rounded, **{f"{name}{FP32_SUFFIX}": table for name, table in exact.items()}}


def _bytes_type() -> torch.dtype:
    import torch

    return torch.uint8
