"""Each layer kind means what ONNX Runtime makes of the operator that it was parsed from.

The tolerance is 1e-6 of the largest magnitude: over all cases the largest difference measured was 2.0e-7.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto

from tests.one_operator import largest_difference, model, node, packed

TOLERANCE = 1e-6
RANDOM = np.random.default_rng(0)
X = RANDOM.standard_normal((2, 3, 4)).astype(np.float32)
Y = RANDOM.standard_normal((2, 3, 4)).astype(np.float32)
P = np.abs(X) + np.float32(0.1)
INTS = np.array([[7, -7, 5], [-5, 9, 1]])
OTHERS = np.array([[2, 2, -3], [-3, 4, 6]])
BOOLS = np.array([[True, False, True], [False, False, True]])
ODD = np.array([0.5, 1.5, -0.5, -2.5, 2.0], np.float32)
SPECIAL = np.array([1.0, np.inf, -np.inf, np.nan], np.float32)


def i64(*values: int) -> Any:
    return np.array(values, np.int64)


def case(name: str, nodes: Any, feeds: dict[str, Any], fixed: str = "", **constants: Any) -> Any:
    return pytest.param(nodes, feeds, constants, fixed, id=name)


ELEMENTWISE = [
    *(case(op, node(op, "x z"), {"x": X, "z": Y}) for op in ("Add", "Sub", "Mul", "Div", "Max", "Min")),
    case("Pow", node("Pow", "x z"), {"x": P, "z": Y}),
    case("broadcast", node("Add", "x z"), {"x": X}, z=Y[0, :1]),
    *(case(f"integer {op}", node(op, "x z"), {"x": INTS, "z": OTHERS}) for op in ("Add", "Mul", "Div", "Mod")),
    *(
        case(op, node(op, "x z"), {"x": INTS, "z": OTHERS})
        for op in ("Equal", "Greater", "Less", "LessOrEqual", "GreaterOrEqual")
    ),
    *(case(op, node(op, "x z"), {"x": BOOLS, "z": BOOLS[::-1].copy()}) for op in ("And", "Or", "Xor")),
]
UNARY = [
    *(case(op, node(op, "x"), {"x": P}) for op in ("Log", "Sqrt", "Reciprocal")),
    *(case(op, node(op, "x"), {"x": X}) for op in ("Exp", "Abs", "Neg", "Sin", "Cos", "Ceil", "Floor", "Erf", "Sign")),
    case("Round", node("Round", "x"), {"x": ODD}),
    case("Not", node("Not", "x"), {"x": BOOLS}),
    *(case(op, node(op, "x"), {"x": SPECIAL}) for op in ("IsInf", "IsNaN")),
    *(case(op, node(op, "x"), {"x": X}) for op in ("Relu", "Sigmoid", "Tanh", "Softmax")),
    *(case(f"Gelu, {form}", node("Gelu", "x", approximate=form), {"x": X * 2}) for form in ("none", "tanh")),
    case("Clip", node("Clip", "x low high"), {"x": X}, low=np.array(-0.3, np.float32), high=np.array(0.4, np.float32)),
    case("Swish", node("Swish", "x", alpha=1.5), {"x": X}),
    case("Cast to integer", node("Cast", "x", to=TensorProto.INT64), {"x": X * 3}),
    case("Cast to bool", node("Cast", "x", to=TensorProto.BOOL), {"x": INTS * 0 + i64(0, 1, 2)}),
    case("Cast to float", node("Cast", "x", to=TensorProto.FLOAT), {"x": INTS}),
    case("Where", node("Where", "c x z"), {"c": X > 0, "x": X, "z": Y}),
]
SHAPES = [
    case("Transpose", node("Transpose", "x", perm=[2, 0, 1]), {"x": X}),
    case("Reshape", node("Reshape", "x s"), {"x": X}, s=i64(0, 2, -1)),
    case("Reshape by a feed", node("Reshape", "x s"), {"x": X, "s": i64(4, 6)}, "s"),
    case("Concat", node("Concat", "x z", axis=-2), {"x": X, "z": Y[:, :1]}),
    case("Unsqueeze", node("Unsqueeze", "x a"), {"x": X}, a=i64(-1, 1)),
    case("Squeeze", node("Squeeze", "x a"), {"x": X[:, :1]}, "x", a=i64(1)),
    case("Shape", node("Shape", "x", start=1), {"x": X}),
    case("Expand", node("Expand", "x s"), {"x": X[:, :1], "s": i64(5, 1, 3, 4)}, "x s"),
    case("Slice", node("Slice", "x b e a s"), {"x": X}, b=i64(1), e=i64(4), a=i64(2), s=i64(2)),
    case("Slice backwards", node("Slice", "x b e a s"), {"x": X}, b=i64(-1), e=i64(-9), a=i64(2), s=i64(-2)),
    case("Slice by feeds", node("Slice", "x b e a"), {"x": X, "b": i64(-2), "e": i64(99)}, "b e", a=i64(1)),
    case("Split", node("Split", "x", "y z", axis=2, num_outputs=2), {"x": X}),
    case("Identity", node("Identity", "x"), {"x": X}),
    case("Trilu", node("Trilu", "x", upper=0), {"x": X}),
]
PRODUCTS = [
    case("MatMul by a weight", node("MatMul", "x w"), {"x": X}, w=Y[0].T.copy()),
    case("MatMul of batches", node("MatMul", "x z"), {"x": X, "z": Y.transpose(0, 2, 1).copy()}),
    case("Gemm", node("Gemm", "x w", transB=1), {"x": X[0]}, w=Y[1]),
    *(
        case(f"{op} keepdims={keep}", node(op, "x a", keepdims=keep), {"x": X}, a=i64(-1, 0))
        for op in ("ReduceSum", "ReduceMean", "ReduceMax", "ReduceMin")
        for keep in (0, 1)
    ),
    case("Softmax over another axis", node("Softmax", "x", axis=1), {"x": X}),
    *(
        case(
            f"CumSum reverse={r} exclusive={e}",
            node("CumSum", "x a", reverse=r, exclusive=e),
            {"x": INTS},
            a=np.array(1),
        )
        for r in (0, 1)
        for e in (0, 1)
    ),
    *(
        case(
            f"CumSum exclusive of what sums would swallow, reverse={r}",
            node("CumSum", "x a", reverse=r, exclusive=1),
            {"x": np.array([[1, 1e8, 1, 2], [np.inf, 1, 2, 3]], np.float32)},
            a=np.array(1),
        )
        for r in (0, 1)
    ),
    case("RMSNormalization", node("RMSNormalization", "x w", epsilon=1e-6, axis=-1), {"x": X}, "x", w=Y[0, 0]),
]
INDEXING = [
    case("Gather", node("Gather", "x i", axis=1), {"x": X, "i": np.array([[2, 0], [1, 1]])}),
    case("Gather from the end of a fixed axis", node("Gather", "x i", axis=1), {"x": X}, "x", i=np.array(-1)),
    case("GatherElements", node("GatherElements", "x i", axis=2), {"x": X, "i": RANDOM.integers(0, 4, (2, 3, 2))}),
    case("GatherND", node("GatherND", "x i"), {"x": X, "i": i64(1, 2, 0, 1).reshape(2, 2)}, "i"),
    case("GatherND by rows", node("GatherND", "x i", batch_dims=1), {"x": X, "i": i64(2, 0).reshape(2, 1)}, "x i"),
    case(
        "ScatterElements",
        node("ScatterElements", "x i u", axis=1),
        {"x": INTS.astype(np.float32), "i": i64(2, 0).reshape(2, 1), "u": np.ones((2, 1), np.float32)},
    ),
    case("ScatterND", node("ScatterND", "x i u"), {"x": X, "i": i64(1).reshape(1, 1), "u": Y[:1]}, "i"),
    case("Range", node("Range", "a b c"), {"b": np.array(11)}, a=np.array(2), c=np.array(3)),
    case("Range backwards", node("Range", "a b c"), {"b": np.array(-4)}, a=np.array(3), c=np.array(-2)),
    case(
        "ConstantOfShape",
        node("ConstantOfShape", "s", value=onnx.helper.make_tensor("", TensorProto.FLOAT, [1], [0.5])),
        {"s": i64(2, 3)},
        "s",
    ),
]
Q = RANDOM.standard_normal((2, 6, 3, 8)).astype(np.float32)
K, V = (RANDOM.standard_normal((2, 2, 5, 8)).astype(np.float32) for _ in range(2))
SEEN = np.tril(np.ones((3, 5), bool), 2)[None, None] & (RANDOM.random((2, 1, 3, 5)) > 0.3) | np.eye(3, 5, dtype=bool)
TABLES = {"c": np.cos(np.arange(80.0)).astype(np.float32), "s": np.sin(np.arange(80.0)).astype(np.float32)}
FULL = {name: table.reshape(20, 4) for name, table in TABLES.items()}
HALF = {name: table.reshape(40, 2) for name, table in TABLES.items()}
PLACES = np.array([[0, 3, 19], [7, 8, 9]])
TRANSFORMER = [
    case("Attention in groups", node("Attention", "q k v", scale=1.0), {"q": Q, "k": K, "v": V}, "q k v"),
    case("Attention scaled", node("Attention", "q k v"), {"q": Q, "k": K, "v": V}, "q k v"),
    case("bool mask", node("Attention", "q k v m", scale=0.3), {"q": Q, "k": K, "v": V, "m": SEEN}, "q k v m"),
    case(
        "added mask",
        node("Attention", "q k v m", scale=1.0),
        {"q": Q, "k": K, "v": V, "m": RANDOM.standard_normal((3, 5)).astype(np.float32)},
        "q k v m",
    ),
    case(
        "causal square", node("Attention", "q k v", is_causal=1), {"q": Q, "k": K[:, :, :3], "v": V[:, :, :3]}, "q k v"
    ),
    case("causal, more keys than queries", node("Attention", "q k v", is_causal=1), {"q": Q, "k": K, "v": V}, "q k v"),
    case("RotaryEmbedding", node("RotaryEmbedding", "x c s p"), {"x": Q, "p": PLACES}, "x p", **FULL),
    case(
        "RotaryEmbedding of neighbours",
        node("RotaryEmbedding", "x c s p", interleaved=1),
        {"x": Q, "p": PLACES},
        "x p",
        **FULL,
    ),
    case(
        "RotaryEmbedding of a part",
        node("RotaryEmbedding", "x c s p", rotary_embedding_dim=4),
        {"x": Q, "p": PLACES},
        "x p",
        **HALF,
    ),
    case(
        "RotaryEmbedding without positions",
        node("RotaryEmbedding", "x c s"),
        {"x": Q, "c": FULL["c"][PLACES], "s": FULL["s"][PLACES]},
        "x c s",
    ),
    case(
        "TensorScatter",
        node("TensorScatter", "k u w", axis=2, mode="linear"),
        {"k": K, "u": V[:, :, :2], "w": i64(3, 0)},
        "k u w",
    ),
]
BYTES = RANDOM.integers(0, 256, 64, np.uint8).tobytes()
FP8 = bytes(byte for byte in range(256) if byte & 127 != 127)[:64]
SCALES = np.abs(RANDOM.standard_normal((2, 8))).astype(np.float32)
QUANTIZED = [
    case(
        "INT4 by blocks",
        [node("DequantizeLinear", "q s", "w", axis=0, block_size=8), node("MatMul", "x w")],
        {"x": RANDOM.standard_normal((3, 16)).astype(np.float32)},
        q=packed("q", TensorProto.INT4, (16, 8), BYTES),
        s=SCALES,
    ),
    case(
        "INT8 by channels",
        [node("DequantizeLinear", "q s", "w", axis=1), node("MatMul", "x w")],
        {"x": RANDOM.standard_normal((3, 8)).astype(np.float32)},
        q=np.frombuffer(BYTES, np.int8).reshape(8, 8),
        s=SCALES[0],
    ),
    case(
        "FP8 by tensor",
        [node("DequantizeLinear", "q s", "w"), node("MatMul", "x w")],
        {"x": RANDOM.standard_normal((3, 8)).astype(np.float32)},
        q=packed("q", TensorProto.FLOAT8E4M3FN, (8, 8), FP8),
        s=np.array(0.01, np.float32),
    ),
    case(
        "QuantizeLinear to INT8 and back",
        [node("QuantizeLinear", "x s", "q", output_dtype=TensorProto.INT8), node("DequantizeLinear", "q s")],
        {"x": X * 2},
        s=np.array(0.02, np.float32),
    ),
    case(
        "QuantizeLinear of a tensor that others use too",
        [
            node("Abs", "x", "a"),
            node("QuantizeLinear", "a s", "q", output_dtype=TensorProto.INT8),
            node("DequantizeLinear", "q s", "d"),
            node("Add", "d a"),
        ],
        {"x": X * 2},
        s=np.array(0.02, np.float32),
    ),
    case(
        "QuantizeLinear to FP8 and back",
        [node("QuantizeLinear", "x s", "q", output_dtype=TensorProto.FLOAT8E4M3FN), node("DequantizeLinear", "q s")],
        {"x": X * 2},
        s=np.array(0.02, np.float32),
    ),
    case(
        "QuantizeLinear to FP8, beyond its largest number",
        [node("QuantizeLinear", "x s", "q", output_dtype=TensorProto.FLOAT8E4M3FN), node("DequantizeLinear", "q s")],
        {"x": X * 2},
        s=np.array(0.002, np.float32),
    ),
]


@pytest.mark.parametrize(
    ("nodes", "feeds", "constants", "fixed"),
    [*ELEMENTWISE, *UNARY, *SHAPES, *PRODUCTS, *INDEXING, *TRANSFORMER, *QUANTIZED],
)
def test_a_layer_means_what_onnxruntime_makes_of_it(
    tmp_path: Path, nodes: Any, feeds: Any, constants: Any, fixed: str
) -> None:
    assert largest_difference(tmp_path, model(nodes, feeds, constants, fixed), feeds) <= TOLERANCE
