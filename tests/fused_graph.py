"""A small fused graph made by hand, with the folder and manifests around it, so that build can be tested alone.

It is what surgery writes in miniature: two layers, the second without rotation, BF16, opset 24, weights in one data
file. Its weights are random; nothing here computes with them.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import onnx
from onnx import TensorProto, helper

from artifacts.config import ModelConfig
from artifacts.contract import OPSET, Axis, Form, Precision, Signature, TensorSpec, past_name, present_name, signature
from artifacts.layout import DATA_FILE, ModelFolder
from artifacts.manifest import FileRecord, Manifest

CONFIG: dict[str, Any] = {
    "model_type": "smollm3",
    "vocab_size": 256,
    "hidden_size": 64,
    "intermediate_size": 128,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 512,
    "rms_norm_eps": 1e-6,
    "rope_parameters": {"rope_theta": 10000.0, "rope_type": "default"},
    "no_rope_layers": [1, 0],
    "hidden_act": "silu",
    "pad_token_id": 0,
    "tie_word_embeddings": True,
}
TYPES = {
    Precision.BF16: TensorProto.BFLOAT16,
    Precision.FP32: TensorProto.FLOAT,
    Precision.INT64: TensorProto.INT64,
}
CHECKPOINT: dict[str, Any] = {"kind": "random", "origin": "random:by-hand", "revision": None, "files": {}}


class GraphWriter:
    """Collects nodes and initializers; large initializers go to the data file."""

    def __init__(self, config: ModelConfig, capacity: int | None = None) -> None:
        self.config, self.capacity = config, capacity
        self.nodes: list[onnx.NodeProto] = []
        self.initializers: list[onnx.TensorProto] = []
        self.data = bytearray()
        self.random = np.random.default_rng(0)

    def op(self, kind: str, *inputs: str, name: str, **attributes: Any) -> str:
        self.nodes.append(helper.make_node(kind, list(inputs), [name], name=name, **attributes))
        return name

    def constant(self, name: str, values: Any, dtype: Any = np.int64) -> str:
        if name not in {known.name for known in self.initializers}:
            self.initializers.append(onnx.numpy_helper.from_array(np.asarray(values, dtype), name))
        return name

    def weight(self, name: str, *shape: int) -> str:
        tensor = onnx.TensorProto(name=name, dims=shape, data_type=TensorProto.BFLOAT16)
        raw = (self.random.standard_normal(shape) / 8).astype(ml_dtypes.bfloat16).tobytes()
        tensor.data_location = TensorProto.EXTERNAL
        for key, value in (("location", DATA_FILE), ("offset", len(self.data)), ("length", len(raw))):
            tensor.external_data.add(key=key, value=str(value))
        self.data += raw
        self.initializers.append(tensor)
        return name

    def norm(self, x: str, name: str) -> str:
        weight = self.weight(f"{name}.weight", self.config.hidden_size)
        return self.op("RMSNormalization", x, weight, name=name, axis=-1, epsilon=1e-6, stash_type=1)

    def project(self, x: str, name: str, width: int, to: int) -> str:
        return self.op("MatMul", x, self.weight(f"{name}.weight", width, to), name=name)

    def mask(self) -> str:
        """Slots up to past + s that hold a real token, and each query's own slot: bool (B, 1, S, T or C).

        Every part has four axes from the start. TensorRT-RTX 1.7.1 cannot compile the linear form with a batch of
        exactly one when the last operation of the mask is anything but this `Or` (tried: Unsqueeze, Where, Greater).
        """
        one, row, everywhere = (self.constant(f"axes.{n}", [*range(1, n)]) for n in (2, 3, 4))
        zero, unit = (self.constant(f"scalar.{n}", n) for n in (0, 1))
        size = self.op("Shape", "input_ids", name="mask/Shape")
        new = self.op("Gather", size, unit, name="mask/new")
        steps = self.op("Unsqueeze", self.op("Range", zero, new, unit, name="mask/Range"), one, name="mask/steps")
        if self.capacity is None:
            width = self.op("Shape", "attention_mask", name="mask/Shape_1")
            total = self.op("Gather", width, unit, name="mask/total")
            slots = self.op("Range", zero, total, unit, name="mask/slots")
            first = self.op("Sub", total, new, name="mask/past")
            first = self.op("Unsqueeze", first, self.constant("axes.all", [0, 1, 2, 3]), name="mask/first")
        else:
            slots = self.constant("mask/slots", np.arange(self.capacity))
            first = self.op("Unsqueeze", "write_indices", everywhere, name="mask/first")
        own = self.op("Add", first, steps, name="mask/own")
        causal = self.op("LessOrEqual", slots, own, name="mask/causal")
        itself = self.op("Equal", slots, own, name="mask/itself")
        real = self.op("Cast", "attention_mask", name="mask/Cast", to=TensorProto.BOOL)
        real = self.op("Unsqueeze", real, row, name="mask/real")
        return self.op("Or", self.op("And", causal, real, name="mask/And"), itself, name="attention_mask.slots")

    def heads(self, x: str, count: int, name: str) -> str:
        shape = self.constant(f"heads.{count}", [0, 0, count, self.config.head_dim])
        split = self.op("Reshape", x, shape, name=f"{name}/Reshape")
        return self.op("Transpose", split, name=f"{name}/Transpose", perm=[0, 2, 1, 3])

    def cache(self, x: str, layer: int, kind: Any) -> str:
        past, present = past_name(layer, kind), present_name(layer, kind)
        if self.capacity is None:
            return self.op("Concat", past, x, name=present, axis=2)
        return self.op("TensorScatter", past, x, "write_indices", name=present, axis=2, mode="linear")

    def scaled(self, q: str, name: str) -> str:
        wide = self.op("Cast", q, name=f"{name}/Cast", to=TensorProto.FLOAT)
        factor = self.constant("scale", self.config.scale, np.float32)
        return self.op("Cast", self.op("Mul", wide, factor, name=f"{name}/Mul"), name=f"{name}/Cast_1", to=16)

    def attention(self, x: str, layer: int, mask: str) -> str:
        c, path = self.config, f"model.layers.{layer}.self_attn"
        q = self.heads(
            self.project(x, f"{path}.q_proj", c.hidden_size, c.hidden_size), c.num_attention_heads, f"{path}.q"
        )
        groups = c.num_key_value_heads
        k = self.heads(self.project(x, f"{path}.k_proj", c.hidden_size, groups * c.head_dim), groups, f"{path}.k")
        v = self.heads(self.project(x, f"{path}.v_proj", c.hidden_size, groups * c.head_dim), groups, f"{path}.v")
        if c.uses_rope[layer]:
            tables = ("rotary.cos", "rotary.sin", "position_ids")
            q = self.op("RotaryEmbedding", q, *tables, name=f"{path}.q_rotary")
            k = self.op("RotaryEmbedding", k, *tables, name=f"{path}.k_rotary")
        k, v = self.cache(k, layer, "key"), self.cache(v, layer, "value")
        out = self.op("Attention", self.scaled(q, path), k, v, mask, name=f"{path}.attention", scale=1.0)
        out = self.op("Transpose", out, name=f"{path}/Transpose", perm=[0, 2, 1, 3])
        out = self.op("Reshape", out, self.constant("merged", [0, 0, c.hidden_size]), name=f"{path}/Reshape")
        return self.project(out, f"{path}.o_proj", c.hidden_size, c.hidden_size)

    def layer(self, x: str, index: int, mask: str) -> str:
        c, path = self.config, f"model.layers.{index}"
        attended = self.attention(self.norm(x, f"{path}.input_layernorm"), index, mask)
        x = self.op("Add", x, attended, name=f"{path}.residual")
        y = self.norm(x, f"{path}.post_attention_layernorm")
        gate = self.project(y, f"{path}.mlp.gate_proj", c.hidden_size, c.intermediate_size)
        up = self.project(y, f"{path}.mlp.up_proj", c.hidden_size, c.intermediate_size)
        gate = self.op("Mul", gate, self.op("Sigmoid", gate, name=f"{path}.mlp/Sigmoid"), name=f"{path}.mlp/Mul")
        y = self.op("Mul", gate, up, name=f"{path}.mlp/Mul_1")
        return self.op(
            "Add", x, self.project(y, f"{path}.mlp.down_proj", c.intermediate_size, c.hidden_size), name=path
        )

    def body(self) -> None:
        c = self.config
        half = c.head_dim // 2
        self.weight("rotary.cos", c.max_positions, half)
        self.weight("rotary.sin", c.max_positions, half)
        embedding = self.weight("model.embed_tokens.weight", c.vocab_size, c.hidden_size)
        x = self.op("Gather", embedding, "input_ids", name="model.embed_tokens", axis=0)
        mask = self.mask()
        for number in range(c.num_hidden_layers):
            x = self.layer(x, number, mask)
        length = self.op("Shape", "input_ids", name="model/length", start=1, end=2)
        index = self.op("Sub", length, self.constant("const.1", [1]), name="model/last_index")
        last = self.op("Gather", x, index, name="model/last", axis=1)
        head = self.op("Transpose", embedding, name="lm_head/Transpose", perm=[1, 0])
        logits = self.op("MatMul", self.norm(last, "model.norm"), head, name="lm_head")
        self.op("Cast", logits, name="logits", to=TensorProto.FLOAT)


def model_of(writer: GraphWriter, form: Form) -> onnx.ModelProto:
    """Close the graph with the contract's inputs and outputs."""
    specs: Signature = signature(writer.config, form, capacity=writer.capacity)

    def info(spec: TensorSpec) -> onnx.ValueInfoProto:
        axes: list[Axis] = list(spec.axes)
        return helper.make_tensor_value_info(spec.name, TYPES[spec.precision], axes)

    graph = helper.make_graph(
        writer.nodes,
        "fused",
        [info(spec) for spec in specs.inputs],
        [info(spec) for spec in specs.outputs],
        writer.initializers,
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", OPSET)], ir_version=11)


def write_model_folder(root: Path, capacity: int = 128, **changes: Any) -> ModelFolder:
    """Write `OUT/<model>/onnx/` as export and surgery leave it: two graphs, one data file, config, two manifests."""
    folder, raw = ModelFolder(root), {**CONFIG, **changes}
    folder.onnx.mkdir(parents=True)
    (folder.onnx / "config.json").write_text(json.dumps(raw))
    config = ModelConfig.from_raw(raw)
    for form, slots in ((Form.MODEL, None), (Form.MODEL_LINEAR, capacity)):
        writer = GraphWriter(config, slots)
        writer.body()
        (folder.onnx / DATA_FILE).write_bytes(writer.data)
        folder.graph(form).write_bytes(model_of(writer, form).SerializeToString())
    folder.graph(Form.EXPORT).write_bytes(b"stands for the raw export")
    write_manifests(folder)
    return folder


def write_manifests(folder: ModelFolder) -> None:
    """Write both manifests for the files as they lie there."""
    digests = folder.digests()

    def records(*names: str) -> dict[str, FileRecord]:
        return {f"onnx/{name}": FileRecord.of(folder.onnx / name, digests) for name in names}

    exported = records("config.json", DATA_FILE, "export.onnx")
    fused = records("model.onnx", "model_linear.onnx")
    export = Manifest("export", {}, CHECKPOINT, {}, exported, {})
    surgery = Manifest("surgery", {"capacity": 128}, CHECKPOINT, exported, fused, {})
    export.write(folder.onnx / "export.manifest.json")
    surgery.write(folder.onnx / "surgery.manifest.json")
