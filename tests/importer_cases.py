"""The operators that our graphs are made of, and the traps around them, as small graphs for TensorRT's parser.

Record the table and its page anew, after looking at what changed:

    python -m tests.importer_cases
"""

from __future__ import annotations

import json
import re
import tempfile
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import onnx
from onnx import TensorProto

from artifacts.errors import StageError
from tests.one_operator import model, node, packed
from validate.network.layers import Layer
from validate.network.parse import parse
from validate.network.reading import read

RECORD = Path(__file__).parent / "data" / "importer_table.json"
PAGE = Path(__file__).parent.parent / "docs" / "importer.md"
BEGIN, END = "<!-- table: written by python -m tests.importer_cases -->", "<!-- end of table -->"

BF16 = ml_dtypes.bfloat16
Nodes = onnx.NodeProto | Sequence[onnx.NodeProto]


@dataclass(frozen=True)
class Case:
    """One graph and what it shows.

    Attributes:
        means: what a reader should conclude, in a phrase.
    """

    name: str
    means: str
    nodes: Nodes
    feeds: Mapping[str, Any]
    constants: Mapping[str, Any]
    fixed: str = ""

    def graph(self) -> onnx.ModelProto:
        """Give the graph."""
        return model(self.nodes, self.feeds, self.constants, self.fixed)

    @property
    def operators(self) -> set[str]:
        """Operators in it."""
        return {step.op_type for step in self.graph().graph.node}


def case(name: str, means: str, nodes: Nodes, feeds: Mapping[str, Any], fixed: str = "", **constants: Any) -> Case:
    return Case(name, means, nodes, feeds, constants, fixed)


def bf16(*shape: int) -> Any:
    return np.ones(shape, BF16)


def i64(*values: int) -> Any:
    return np.array(values, np.int64)


def ramp(low: float, high: float) -> Mapping[str, Any]:
    return {"x": np.linspace(low, high, 4, dtype=np.float32)}


X, INTS, ROWS = {"x": bf16(2, 3, 4)}, {"x": np.ones((2, 3), np.int64)}, {"x": bf16(1, 3, 64)}
PAIR = {"x": np.ones((2, 3), np.int64), "z": np.ones((2, 3), np.int64)}
TRUTHS = {"x": np.ones((2, 3), bool), "z": np.ones((2, 3), bool)}
QKV = {"q": bf16(1, 4, 3, 128), "k": bf16(1, 2, 5, 128), "v": bf16(1, 2, 5, 128)}
CACHE = {"k": bf16(1, 2, 16, 8), "u": bf16(1, 2, 3, 8), "w": i64(0)}
HEADS = {"x": bf16(1, 4, 3, 8), "p": np.zeros((1, 3), np.int64)}
TABLES = {"c": bf16(16, 4), "s": bf16(16, 4)}
ONE_SCALE, SCALES = np.array(1, BF16), bf16(2, 8)
INT4 = packed("w4", TensorProto.INT4, (64, 8), bytes(256))
FP8 = packed("w8", TensorProto.FLOAT8E4M3FN, (64, 8), bytes(512))
FP8_OUT = TensorProto.FLOAT8E4M3FN

ATTENTION = (
    case("Attention, scale left out", "scores 0.29 % too small at head_dim 128: the root of the scale is a BF16 number",
         node("Attention", "q k v"), QKV, "q k v"),
    case("Attention, scale = 1", "exact: q has to be scaled before",
         node("Attention", "q k v", scale=1.0), QKV, "q k v"),
    case("Attention, bool mask", "the mask is an input of its own; this is the form that we use",
         node("Attention", "q k v m", scale=1.0), {**QKV, "m": np.ones((1, 1, 3, 5), bool)}, "q k v m"),
    case("Attention, added mask", "the same, in the type of q", node("Attention", "q k v m", scale=1.0),
         {**QKV, "m": bf16(3, 5)}, "q k v m"),
    case("Attention, is_causal", "aligned to the upper left: wrong wherever the cache is not empty",
         node("Attention", "q k v", scale=1.0, is_causal=1), QKV, "q k v"),
    case("Attention, nonpad_kv_seqlen", "**silently ignored**: padding is attended to",
         node("Attention", "q k v - - - n", scale=1.0), {**QKV, "n": i64(4)}, "q k v n"),
    case("Attention, softcap", "not ours", node("Attention", "q k v", softcap=2.0), QKV, "q k v"),
    case("Attention, softmax_precision", "the softmax is FP32 anyway",
         node("Attention", "q k v", softmax_precision=1), QKV, "q k v"),
    case("Attention, mask and is_causal", "the mask has to say it all", node("Attention", "q k v m", is_causal=1),
         {**QKV, "m": np.ones((1, 1, 3, 5), bool)}, "q k v m"),
    case("Attention, past and present", "the cache is joined outside",
         node("Attention", "q k v - pk pv", "y prk prv", scale=1.0),
         {**QKV, "pk": bf16(1, 2, 2, 128), "pv": bf16(1, 2, 2, 128)}, "q k v pk pv"),
)  # fmt: skip
TRANSFORMER = (
    case("RotaryEmbedding", "one layer, tables indexed by position", node("RotaryEmbedding", "x c s p"), HEADS, "x p",
         **TABLES),
    case("RMSNormalization", "FP32 statistics, weight in BF16: what Transformers computes",
         node("RMSNormalization", "x w", epsilon=1e-6), X, "x", w=bf16(4)),
    case("RMSNormalization, weight of three axes", "one shuffle less: this is the form that we use",
         node("RMSNormalization", "x w", epsilon=1e-6), X, "x", w=bf16(1, 1, 4)),
    case("TensorScatter", "the cache is updated in place; the indices become INT32",
         node("TensorScatter", "k u w", axis=2, mode="linear"), CACHE, "k u w"),
    case("Swish", "taken apart", node("Swish", "x"), X),
    case("Sigmoid, Mul", "as they are", [node("Sigmoid", "x", "g"), node("Mul", "x g")], X),
)  # fmt: skip
WEIGHTS = (
    case("MatMul by a weight", "the weight becomes (1, K, N)", node("MatMul", "x w"), ROWS, w=bf16(64, 8)),
    case("MatMul by a weight of three axes", "no layer for the weight: this is the form that we use",
         node("MatMul", "x w"), ROWS, w=bf16(1, 64, 8)),
    case("MatMul by a transposed weight", "a view, then the product: a tied head stays one weight",
         [node("Transpose", "w", "wt", perm=[1, 0]), node("MatMul", "x wt")], ROWS, w=bf16(8, 64)),
    case("Cast of a weight (twin)", "FP32 arithmetic on BF16 bits",
         [node("Cast", "w", "wide", to=TensorProto.FLOAT), node("MatMul", "x wide")],
         {"x": np.ones((1, 3, 64), np.float32)}, w=bf16(64, 8)),
    case("DequantizeLinear INT4, blocks", "kept; the scale's shape tells the blocks",
         [node("DequantizeLinear", "w4 s", "w", axis=0, block_size=32), node("MatMul", "x w")], ROWS, w4=INT4,
         s=SCALES),
    case("DequantizeLinear FP8", "kept", [node("DequantizeLinear", "w8 s", "w"), node("MatMul", "x w")], ROWS,
         w8=FP8, s=ONE_SCALE),
    case("QuantizeLinear FP8 and back", "kept",
         [node("QuantizeLinear", "x s", "q", output_dtype=FP8_OUT), node("DequantizeLinear", "q s")], ROWS,
         s=ONE_SCALE),
)  # fmt: skip
PLUMBING = (
    case("Gather of rows", "the indices become INT32", node("Gather", "t i", axis=0), {"i": PAIR["x"]}, t=bf16(8, 4)),
    case("Gather, negative index", "passed on unchanged: undefined on a dynamic axis", node("Gather", "x i", axis=1), X,
         i=i64(-1)),
    case("GatherND", "kept", node("GatherND", "x i"), {"x": np.ones((2, 3), bool), "i": i64(1, 1).reshape(1, 2)}, "i"),
    case("Concat", "kept", node("Concat", "x z", axis=1), {"x": X["x"], "z": X["x"]}),
    case("Reshape", "0 copies, −1 is inferred", node("Reshape", "x s"), ROWS, s=i64(0, 0, 4, 16)),
    case("Transpose", "eight axes whatever the rank", node("Transpose", "x", perm=[0, 2, 1]), X),
    case("Unsqueeze", "axes as an input", node("Unsqueeze", "x a"), X, a=i64(1, 3)),
    case("Squeeze", "of a length", [node("Shape", "x", "n", start=1, end=2), node("Squeeze", "n a")], X, a=i64(0)),
    case("Shape", "INT64", node("Shape", "x"), X),
    case("Slice", "clamped by shape arithmetic, as ONNX wants it", node("Slice", "x b e a"), X, b=i64(1), e=i64(9),
         a=i64(2)),
    case("Split", "two slices", node("Split", "x", "y z", axis=2, num_outputs=2), X),
    case("Expand", "a slice with stride 0", node("Expand", "x s"), {"x": bf16(1, 1, 4), "s": i64(2, 3, 4)}, "s"),
    case("Range", "LINSPACE, in INT64", [node("Shape", "x", "n", start=1, end=2), node("Squeeze", "n a", "m"),
         node("Range", "b m d")], X, a=i64(0), b=np.array(0), d=np.array(1)),
    case("Where", "kept", node("Where", "c x z"), {"c": np.ones((2, 3, 4), bool), "x": X["x"], "z": X["x"]}),
    case("LessOrEqual", "less, or equal", node("LessOrEqual", "x z"), PAIR),
    case("GreaterOrEqual", "greater, or equal", node("GreaterOrEqual", "x z"), PAIR),
    *(case(op, "kept", node(op, "x z"), PAIR) for op in ("Equal", "Greater", "Less", "Add", "Sub")),
    case("Div of integers", "truncates toward zero, as ONNX wants it", node("Div", "x z"), PAIR),
    case("Mod of integers", "FLOOR_DIV: the sign of the divisor", node("Mod", "x z"), PAIR),
    *(case(op, "kept", node(op, "x z"), TRUTHS) for op in ("And", "Or", "Xor")),
    case("Not", "kept", node("Not", "x"), {"x": TRUTHS["x"]}),
    case("Cast to BF16", "rounds to nearest even", node("Cast", "x", to=TensorProto.BFLOAT16), ramp(-1, 1)),
    case("Cast of integers to BF16", "256 and 257 become one number", node("Cast", "x", to=TensorProto.BFLOAT16), INTS),
    *(case(op, "kept", node(op, "x"), ramp(1, 2)) for op in ("Neg", "Sqrt", "Reciprocal", "Cos", "Sin", "IsNaN")),
    case("Pow", "kept", node("Pow", "x e"), ramp(1, 2), e=np.array(2, np.float32)),
    case("Max, Min", "kept", [node("Max", "x z", "a"), node("Min", "a z")], {**ramp(1, 2), "z": ramp(0, 3)["x"]}),
    case("ReduceMean", "AVG over a bit mask", node("ReduceMean", "x a", keepdims=1), X, a=i64(-1)),
    case("Softmax in BF16", "in BF16: cast to FP32 before, if FP32 is meant", node("Softmax", "x", axis=-1), X),
    case("CumSum", "kept", node("CumSum", "x a"), INTS, a=np.array(1)),
    case("Trilu", "taken apart", node("Trilu", "x", upper=0), X),
    case("Identity", "kept", node("Identity", "x"), X),
    case("ConstantOfShape", "a slice with stride 0",
         node("ConstantOfShape", "s", value=onnx.helper.make_tensor("", TensorProto.FLOAT, [1], [0.5])),
         {"s": i64(2, 3)}, "s"),
)  # fmt: skip
CASES = (*ATTENTION, *TRANSFORMER, *WEIGHTS, *PLUMBING)


def finding(each: Case, folder: Path) -> dict[str, Any]:
    """Give what TensorRT makes of a case: its layers in order, the inputs that none of them reads, or its refusal."""
    path = folder / "case.onnx"
    onnx.save(each.graph(), path)
    try:
        network = read(parse(path))
    except StageError as error:
        # What follows the reason is where in its sources TensorRT stood, and that this machine has no GPU.
        reason = re.split(r" In \w+ at | \[checkMacros", " ".join(error.problems[0].found.split()))[0]
        return {"refused": reason.removeprefix(f"Invalid Node - {error.problems[0].what.split(chr(39))[1]} ")}
    read_by = {tensor.name for layer in network.layers for tensor in layer.inputs if tensor}
    ignored = [tensor.name for tensor in network.inputs if tensor.name not in read_by]
    made_by = {tensor.name: f"#{place}" for place, layer in enumerate(network.layers) for tensor in layer.outputs}
    return {
        "layers": [spell(layer, made_by) for layer in network.layers],
        **({"ignored inputs": ignored} if ignored else {}),
    }


FEW = 16
"""Constants of so many elements are spelled: factors, epsilons, axes, indices."""


def spell(layer: Layer, made_by: Mapping[str, str]) -> str:
    """Spell a layer: kind, type of the result, the attributes that decide, inputs, a small constant's values.

    Args:
        layer: the layer.
        made_by: for each tensor that a layer makes, that layer's place; inputs of the network go by their names.
    """
    decisive = {
        name: value
        for name, value in layer.attributes.items()
        if name not in ("weights", "name", "metadata", "num_inputs", "num_outputs", "causal", "to_type")
        and value is not None
        and not (name.endswith("transpose") and tuple(value) == tuple(range(8)))
        and not (layer.kind == "ACTIVATION" and name != "type")
    }
    words = [layer.kind, *(tensor.dtype for tensor in layer.outputs)]
    words += [f"{name}={value}" for name, value in decisive.items()]
    if layer.inputs:
        words.append("inputs=" + ",".join(made_by.get(each.name, each.name) if each else "-" for each in layer.inputs))
    values = layer.attributes.get("weights")
    if values is not None and values.size <= FEW:
        words.append("values=" + ",".join(f"{value:g}" for value in values.flatten().tolist()))
    return " ".join(words)


def page_row(each: Case, found: Mapping[str, Any]) -> str:
    """Give a case's row of the page: operator, layers in short, meaning."""
    if "refused" in found:
        made = f"refused: {found['refused']}".replace("|", "\\|").replace("`", "'")
        return f"| {each.name} | {made} | {each.means} |"
    short = [_short(text) for text in found["layers"] if not text.startswith("CONSTANT")]
    if len(short) > 8:
        counts = Counter(text.split()[0] for text in short)
        made = f"{len(short)} layers: " + ", ".join(f"{count} {kind}" for kind, count in counts.most_common())
    else:
        made = " → ".join(short)
    detail = next((text for text in found["layers"] if text.split()[0] in ("ATTENTION", "FILL", "QUANTIZE")), "")
    kind = "".join(f"; {word}" for word in detail.split() if word.startswith(("causal_kind", "to_type")))
    ignored = f"; inputs that no layer reads: {', '.join(found['ignored inputs'])}" if "ignored inputs" in found else ""
    return f"| {each.name} | {made}{kind}{ignored} | {each.means} |"


def _short(text: str) -> str:
    """Give a layer in short: kind and operation."""
    kind, _, *rest = text.split()
    return " ".join([kind.lower(), *(word.partition("=")[2] for word in rest if word.startswith(("op=", "type=")))])


def page_table(table: Mapping[str, Any]) -> str:
    """Give the page's table."""
    rows = [page_row(each, table["cases"][each.name]) for each in CASES]
    head = ["| ONNX | what TensorRT makes of it | so |", "|---|---|---|"]
    return "\n".join([BEGIN, "", f"Recorded with {table['backend']}.", "", *head, *rows, "", END])


def main() -> None:
    """Walk all cases through the parser and write the table and the page."""
    with tempfile.TemporaryDirectory() as name:
        found = {each.name: finding(each, Path(name)) for each in CASES}
        onnx.save(CASES[0].graph(), Path(name) / "case.onnx")
        table = {"backend": parse(Path(name) / "case.onnx").backend, "cases": found}
    RECORD.write_text(json.dumps(table, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    text = PAGE.read_text(encoding="utf-8")
    before, after = text.partition(BEGIN)[0], text.partition(END)[2]
    PAGE.write_text(before + page_table(table) + after, encoding="utf-8")


if __name__ == "__main__":
    main()
