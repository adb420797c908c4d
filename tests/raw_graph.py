"""A raw export in miniature, made by hand, with the folder and manifest around it, so that surgery can be tested alone.

It computes what a Transformers export with eager attention computes, operator by operator; options plant what other
tools and faults put in its place. Weights are drawn so that attention is sharp.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import ml_dtypes
import numpy as np
import onnx

from artifacts.config import ModelConfig
from artifacts.contract import Form
from artifacts.layout import DATA_FILE, ROTARY_FILE, ModelFolder
from artifacts.manifest import FileRecord, Manifest
from artifacts.names import FP32_SUFFIX
from tests.fused_graph import CHECKPOINT, CONFIG, GraphWriter, model_of

BF16 = ml_dtypes.bfloat16
RAW: dict[str, Any] = {**CONFIG, "num_hidden_layers": 3, "no_rope_layers": [1, 0, 1]}
YARN: dict[str, Any] = {
    "rope_type": "yarn",
    "rope_theta": 10000.0,
    "factor": 4.0,
    "original_max_position_embeddings": 128,
}
"""`rope_parameters` of a model with an attention factor of 1.1386."""


@dataclass(frozen=True)
class Deviation:
    """What a raw graph has otherwise than Transformers exports it.

    Attributes:
        rotated: layers that rotate q and k; those of the config if not given.
        rotation: how a rotation is written.
        epsilon: of every norm.
        repeat_axis: where a key/value head is repeated; 2 repeats each head in place.
        scale: of the scores, before it is rounded to BF16; the config's if not given.
        softmax_axis: the axis along which the softmax runs.
    """

    rotated: tuple[int, ...] | None = None
    rotation: Literal["arithmetic", "split", "ai.onnx", "com.microsoft"] = "arithmetic"
    epsilon: float = 1e-6
    repeat_axis: int = 2
    scale: float | None = None
    softmax_axis: int = -1


class RawWriter(GraphWriter):
    """Writes the operators of a Transformers export."""

    def __init__(self, config: ModelConfig, deviation: Deviation) -> None:
        super().__init__(config)
        self.deviation = deviation
        self.rotated = config.rope_layers if deviation.rotated is None else deviation.rotated

    def weight(self, name: str, *shape: int) -> str:
        begin = len(self.data)
        super().weight(name, *shape)
        drawn = np.frombuffer(bytes(self.data[begin:]), BF16).astype(np.float32)
        factor = 8.0 if "embed" in name else 12 / shape[0] ** 0.5
        values = 1 + drawn if "norm" in name else drawn * np.float32(factor)
        self.data[begin:] = values.astype(BF16).tobytes()
        return name

    def norm(self, x: str, name: str) -> str:
        wide = self.op("Cast", x, name=f"{name}/Cast", to=1)
        square = self.op("Pow", wide, self.constant("two", 2, np.float32), name=f"{name}/Pow")
        mean = self.op("ReduceMean", square, self.constant("last", [-1]), name=f"{name}/ReduceMean")
        epsilon = self.constant("epsilon", self.deviation.epsilon, np.float32)
        root = self.op("Sqrt", self.op("Add", mean, epsilon, name=f"{name}/Add"), name=f"{name}/Sqrt")
        inverse = self.op("Reciprocal", root, name=f"{name}/Reciprocal")
        normed = self.op("Cast", self.op("Mul", wide, inverse, name=f"{name}/Mul"), name=f"{name}/Cast_1", to=16)
        return self.op("Mul", self.weight(f"{name}.weight", self.config.hidden_size), normed, name=name)

    def angles(self) -> None:
        frequencies = self.constant("inv_freq", inverse_frequencies(self.config), np.float32)
        wide = self.op("Unsqueeze", "position_ids", self.constant("last", [-1]), name="rotary/Unsqueeze")
        wide = self.op("Cast", wide, name="rotary/Cast", to=1)
        half = self.op("Mul", wide, frequencies, name="rotary/Mul")
        both = self.op("Concat", half, half, name="rotary/Concat", axis=-1)
        for function in ("Cos", "Sin"):
            value = self.op(function, both, name=f"rotary/{function}")
            if self.config.attention_factor != 1:
                factor = self.constant("attention_factor", self.config.attention_factor, np.float32)
                value = self.op("Mul", value, factor, name=f"rotary/{function}/Mul")
            value = self.op("Cast", value, name=f"{function}/Cast", to=16)
            self.op("Unsqueeze", value, self.constant("one", [1]), name=f"rotary.{function}")

    def rotate(self, x: str, name: str) -> str:
        form, half = self.deviation.rotation, self.config.head_dim // 2
        if form == "ai.onnx":
            return self.op("RotaryEmbedding", x, "rotary.cos", "rotary.sin", "position_ids", name=name)
        if form == "com.microsoft":
            inputs = (x, "position_ids", "rotary.cos", "rotary.sin")
            return self.op("RotaryEmbedding", *inputs, name=name, domain="com.microsoft")
        if form == "split":
            first, second = f"{name}/first", f"{name}/second"
            self.op("Split", x, name=first, axis=-1, num_outputs=2)
            self.nodes[-1].output.append(second)
        else:
            bounds = [self.constant(f"bound.{bound}", [bound]) for bound in (0, half, 2**63 - 1, 3)]
            first = self.op("Slice", x, bounds[0], bounds[1], bounds[3], name=f"{name}/Slice")
            second = self.op("Slice", x, bounds[1], bounds[2], bounds[3], name=f"{name}/Slice_1")
        turned = self.op("Concat", self.op("Neg", second, name=f"{name}/Neg"), first, name=f"{name}/Concat", axis=-1)
        straight = self.op("Mul", x, "rotary.Cos", name=f"{name}/Mul")
        return self.op("Add", straight, self.op("Mul", turned, "rotary.Sin", name=f"{name}/Mul_1"), name=name)

    def repeated(self, x: str, name: str) -> str:
        c, axis = self.config, self.deviation.repeat_axis
        wide = self.op("Unsqueeze", x, self.constant("repeat", [axis]), name=f"{name}/Unsqueeze")
        shape = [1] * 5
        shape[axis] = c.group_size
        wide = self.op("Expand", wide, self.constant("groups", shape), name=f"{name}/Expand")
        heads = self.constant("all_heads", [0, c.num_attention_heads, -1, c.head_dim])
        return self.op("Reshape", wide, heads, name=f"{name}/Reshape")

    def attention(self, x: str, layer: int, mask: str) -> str:
        c, path = self.config, f"model.layers.{layer}.self_attn"
        keys, d = c.num_key_value_heads * c.head_dim, self.deviation
        q = self.heads(
            self.project(x, f"{path}.q_proj", c.hidden_size, c.hidden_size), c.num_attention_heads, f"{path}/q"
        )
        k = self.heads(self.project(x, f"{path}.k_proj", c.hidden_size, keys), c.num_key_value_heads, f"{path}/k")
        v = self.heads(self.project(x, f"{path}.v_proj", c.hidden_size, keys), c.num_key_value_heads, f"{path}/v")
        if layer in self.rotated:
            q, k = self.rotate(q, f"{path}/q_rotated"), self.rotate(k, f"{path}/k_rotated")
        k, v = (self.cache(k, layer, "key"), self.cache(v, layer, "value"))
        k, v = self.repeated(k, f"{path}/keys"), self.repeated(v, f"{path}/values")
        turned = self.op("Transpose", k, name=f"{path}/Transpose", perm=[0, 1, 3, 2])
        scores = self.op("MatMul", q, turned, name=f"{path}/MatMul")
        scale = self.constant("scale", c.scale if d.scale is None else d.scale, BF16)
        scores = self.op("Mul", scores, scale, name=f"{path}/Mul")
        scores = self.op("Cast", self.op("Add", scores, mask, name=f"{path}/Add"), name=f"{path}/Cast", to=1)
        scores = self.op("Softmax", scores, name=f"{path}/Softmax", axis=d.softmax_axis)
        out = self.op("MatMul", self.op("Cast", scores, name=f"{path}/Cast_1", to=16), v, name=f"{path}/MatMul_1")
        out = self.op("Transpose", out, name=f"{path}/Transpose_1", perm=[0, 2, 1, 3])
        out = self.op("Reshape", out, self.constant("merged", [0, 0, c.hidden_size]), name=f"{path}/Reshape")
        return self.project(out, f"{path}.o_proj", c.hidden_size, c.hidden_size)

    def body(self) -> None:
        c = self.config
        embedding = self.weight("model.embed_tokens.weight", c.vocab_size, c.hidden_size)
        x = self.op("Gather", embedding, "input_ids", name="model.embed_tokens", axis=0)
        self.angles()
        if self.deviation.rotation in ("ai.onnx", "com.microsoft"):
            for name, values in tables(c).items():
                self.constant(name, values, BF16)
        # GraphWriter's mask is bool and bears the name that surgery's own will have.
        zero, least = self.constant("zero", 0, BF16), self.constant("least", -3.3895314e38, BF16)
        mask = self.op("Where", self.mask(), zero, least, name="model/Where")
        for index in range(c.num_hidden_layers):
            x = self.layer(x, index, mask)
        if c.tie_word_embeddings:
            head = self.op("Transpose", embedding, name="lm_head/Transpose", perm=[1, 0])
        else:
            head = self.weight("lm_head.weight", c.hidden_size, c.vocab_size)
        self.op("MatMul", self.norm(x, "model.norm"), head, name="logits")


def inverse_frequencies(config: ModelConfig) -> np.ndarray[Any, np.dtype[np.float64]]:
    """Give the frequencies of default RoPE, (D/2,); a YaRN model has them here too, since no pass looks at them."""
    steps = np.arange(0, config.head_dim, 2) / config.head_dim
    return np.asarray(config.rope["rope_theta"] ** -steps)


def write_raw_folder(root: Path, deviation: Deviation | None = None, **changes: Any) -> ModelFolder:
    """Write `OUT/<model>/onnx/` as export leaves it: export.onnx, the data files, config and manifest."""
    folder, raw = ModelFolder(root), {**RAW, **changes}
    folder.onnx.mkdir(parents=True)
    (folder.onnx / "config.json").write_text(json.dumps(raw))
    config = ModelConfig.from_raw(raw)
    writer = RawWriter(config, deviation or Deviation())
    writer.body()
    (folder.onnx / DATA_FILE).write_bytes(writer.data)
    model = model_of(writer, Form.EXPORT)
    model.opset_import.add(domain="com.microsoft", version=1)
    save_raw(folder, onnx.shape_inference.infer_shapes(model))
    write_export_manifest(folder, write_tables(folder.onnx / ROTARY_FILE, config))
    return folder


def save_raw(folder: ModelFolder, model: onnx.ModelProto) -> None:
    """Write export.onnx."""
    folder.graph(Form.EXPORT).write_bytes(model.SerializeToString())


def tables(config: ModelConfig) -> dict[str, np.ndarray[Any, np.dtype[np.float32]]]:
    """Give cos and sin of every position, (positions, D/2)."""
    frequencies = inverse_frequencies(config).astype(np.float32)
    angles = np.arange(config.max_positions, dtype=np.float32)[:, None] * frequencies
    factor = np.float32(config.attention_factor)
    return {"rotary.cos": np.cos(angles) * factor, "rotary.sin": np.sin(angles) * factor}


def write_tables(path: Path, config: ModelConfig) -> dict[str, Any]:
    """Write the rotary tables; give the facts that export's manifest has of them."""
    tensors, data = {}, bytearray()
    for name, values in tables(config).items():
        for suffix, kind in (("", BF16), (FP32_SUFFIX, np.float32)):
            raw = values.astype(kind).tobytes()
            tensors[name + suffix] = {"dtype": np.dtype(kind).name, "offset": len(data), "length": len(raw)}
            data += raw
    path.write_bytes(data)
    return {"rotary": {"rows": config.max_positions, "columns": config.head_dim // 2, "tensors": tensors}}


def write_export_manifest(folder: ModelFolder, facts: dict[str, Any]) -> None:
    """Vouch for the files as they lie there."""
    digests = folder.digests()
    names = (Form.EXPORT.file_name(), DATA_FILE, ROTARY_FILE, "config.json")
    outputs = {f"onnx/{name}": FileRecord.of(folder.onnx / name, digests) for name in names}
    Manifest("export", {}, CHECKPOINT, {}, outputs, {}, facts).write(folder.onnx / "export.manifest.json")
