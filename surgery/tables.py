"""The rotary tables lie in `rotary.onnx_data`, where export put them; graphs point at them.

Export holds the loaded rotary module and writes cos and sin for every position, (positions, D/2), in BF16 and FP32; its
manifest says where each begins. Nothing is computed or read here.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import onnx
import onnx_graphsurgeon as gs
from onnx import TensorProto
from onnx_graphsurgeon.ir.tensor import LazyValues

from artifacts.config import ModelConfig
from artifacts.errors import Problem, StageError
from artifacts.layout import ROTARY_FILE
from artifacts.names import FP32_SUFFIX, ROTARY_COS, ROTARY_SIN

_TYPES = {"bfloat16": TensorProto.BFLOAT16, "float32": TensorProto.FLOAT}


def rotary_tables(facts: Mapping[str, Any], config: ModelConfig, remedy: str) -> dict[str, TensorProto]:
    """Make an initializer of each of the four tables.

    Args:
        facts: the export manifest's facts.
        config: the model's facts; the tables have a row for each of its positions.
        remedy: the command that makes the tables again.

    Raises:
        StageError: a table is missing or has another type or shape.
    """
    rotary = facts.get("rotary", {})
    shape = [config.max_positions, config.head_dim // 2]
    found_shape = [rotary.get("rows"), rotary.get("columns")]
    problems = []
    if found_shape != shape:
        problems.append(Problem("the rotary tables have another shape", f"{shape}", f"{found_shape}", remedy))
    tables = {}
    for name in (ROTARY_COS, ROTARY_SIN, ROTARY_COS + FP32_SUFFIX, ROTARY_SIN + FP32_SUFFIX):
        kind = "float32" if name.endswith(FP32_SUFFIX) else "bfloat16"
        entry = rotary.get("tensors", {}).get(name, {})
        if entry.get("dtype") != kind or not {"offset", "length"} <= entry.keys():
            problems.append(Problem(f"the rotary table {name} is not there", f"{kind}, its place", f"{entry}", remedy))
        else:
            tables[name] = _initializer(name, _TYPES[kind], shape, entry)
    if problems:
        raise StageError(problems)
    return tables


def rotating(tables: Mapping[str, TensorProto], config: ModelConfig) -> tuple[gs.Constant, gs.Constant]:
    """Give the tables, cos and sin, that the BF16 graph rotates with."""
    suffix = FP32_SUFFIX if config.rotates_in_fp32 else ""
    return constant(tables[ROTARY_COS + suffix]), constant(tables[ROTARY_SIN + suffix])


def _initializer(name: str, kind: int, shape: list[int], entry: Mapping[str, Any]) -> TensorProto:
    tensor = TensorProto(name=name, data_type=kind, dims=shape, data_location=TensorProto.EXTERNAL)
    for key, value in (("location", ROTARY_FILE), ("offset", entry["offset"]), ("length", entry["length"])):
        tensor.external_data.add(key=key, value=str(value))
    return tensor


def constant(tensor: TensorProto) -> gs.Constant:
    """Give an initializer to graphsurgeon without loading it."""
    return gs.Constant(tensor.name, LazyValues(tensor), data_location=TensorProto.EXTERNAL)


def holder(tables: Mapping[str, TensorProto]) -> onnx.ModelProto:
    """Give a graph that holds the tables and nothing else, so that their place is checked as any other's."""
    return onnx.ModelProto(graph=onnx.GraphProto(initializer=tables.values()))
