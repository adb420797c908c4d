"""Transformers' own exporter turns the model into an ONNX graph; explicit dynamic shapes, no optimiser, no weights.

The exporter's optimiser would fold `Transpose(weight)` into new constants, 6 GB of memory that nobody has written.
"""

from __future__ import annotations

import logging
import os
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stdout
from typing import TYPE_CHECKING, Any

from artifacts.config import ModelConfig
from artifacts.errors import refuse

if TYPE_CHECKING:
    import onnx_ir
    from transformers import SmolLM3ForCausalLM

BATCH, SEQUENCE, PAST = 2, 3, 5
"""Sizes while tracing: all different, none 0 or 1, because PyTorch takes those for constants."""


def trace(model: SmolLM3ForCausalLM, config: ModelConfig) -> onnx_ir.Model:
    """Trace one step with a cache; the graph bears the exporter's names for tensors and axes.

    Args:
        model: the untouched model.
        config: its facts.

    Raises:
        StageError: the exporter failed, whatever it raised.
    """
    from transformers.exporters.exporter_onnx import OnnxConfig, OnnxExporter

    settings = OnnxConfig(dynamic=True, dynamic_shapes=_dynamic_shapes(config), optimize=False)
    try:
        with _quiet():
            program: onnx_ir.Model = OnnxExporter().export(model, _inputs(config), config=settings).program
    except Exception as error:
        raise refuse(
            "Transformers' exporter could not trace the model",
            expected="an ONNX graph, with the versions of constraints.txt",
            found=_root_cause(error),
            remedy="install the versions of constraints.txt (make setup)",
        ) from error
    return program


def _root_cause(error: BaseException) -> str:
    """Give the error that began it in one line; the exporter wraps it in pages of advice."""
    while error.__cause__ is not None:
        error = error.__cause__
    return f"{type(error).__name__}: {str(error).strip().splitlines()[0] if str(error).strip() else ''}"


def _inputs(config: ModelConfig) -> dict[str, Any]:
    import torch
    from transformers import DynamicCache

    cache = DynamicCache()
    shape = (BATCH, config.num_key_value_heads, PAST, config.head_dim)
    for layer in range(config.num_hidden_layers):
        cache.update(torch.zeros(shape, dtype=torch.bfloat16), torch.zeros(shape, dtype=torch.bfloat16), layer)
    positions = torch.arange(PAST, PAST + SEQUENCE).expand(BATCH, SEQUENCE).contiguous()
    return {
        "input_ids": torch.ones(BATCH, SEQUENCE, dtype=torch.long),
        "attention_mask": torch.ones(BATCH, PAST + SEQUENCE, dtype=torch.long),
        "position_ids": positions,
        "past_key_values": cache,
    }


def _dynamic_shapes(config: ModelConfig) -> dict[str, Any]:
    """Mark the axes that vary; the cache is a flat list of key and value of every layer."""
    import torch

    varies = torch.export.Dim.DYNAMIC
    rows = {0: varies, 1: varies}
    cache = [{0: varies, 2: varies} for _ in range(2 * config.num_hidden_layers)]
    return {"input_ids": rows, "attention_mask": rows, "position_ids": rows, "past_key_values": cache}


@contextmanager
def _quiet() -> Iterator[None]:
    """Keep the exporter's progress and warnings off our streams: none of them is about the model."""
    previous = logging.root.manager.disable
    logging.disable(logging.WARNING)
    try:
        with warnings.catch_warnings(), open(os.devnull, "w") as nowhere, redirect_stdout(nowhere):
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.disable(previous)
