"""A graph is checked against what is legal before surgery, and against exact counts after it.

With L layers of which R have RoPE: L `Attention`, 2L+1 `RMSNormalization`, 2R `RotaryEmbedding`, and one
vocabulary-sized initializer where the head is tied.
"""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import onnx

from artifacts.config import ModelConfig
from artifacts.contract import OPSET, Form, signature
from artifacts.errors import Problem, StageError, refuse
from artifacts.graph_signature import signature_problems
from surgery.fusion import REMEDY

RAW_OPSETS = range(18, OPSET + 1)
"""Opsets that a raw export may declare: what is left of it after surgery means the same in all of them."""

_RAW = """
Add And Cast Concat Constant ConstantOfShape Cos Div Equal Expand Gather GatherND Greater GreaterOrEqual Identity IsNaN
Less LessOrEqual MatMul Max Min Mul Neg Not Or Pow Range Reciprocal ReduceMean Reshape RotaryEmbedding ScatterND Shape
Sigmoid Sin Slice Softmax Split Sqrt Squeeze Sub Transpose Trilu Unsqueeze Where
com.microsoft::GroupQueryAttention com.microsoft::MultiHeadAttention com.microsoft::RotaryEmbedding
"""
RAW_OPERATORS = frozenset(_RAW.split())
"""What passes know how to take apart, or refuse with a reason."""

_MASK = Counter(Cast=1, Unsqueeze=3, Shape=1, Squeeze=1, Range=2, Add=1, LessOrEqual=1, Equal=1, And=1, Or=1)


def operators(model: onnx.ModelProto) -> Counter[str]:
    """Count the operators of a graph, with the domain before the name unless it is ONNX's own."""
    return Counter(f"{node.domain}::{node.op_type}" if node.domain else node.op_type for node in model.graph.node)


def expected_operators(config: ModelConfig, form: Form, *, twin: bool = False) -> Counter[str]:
    """Give the exact operators of a fused graph; the Casts are those of a BF16 graph."""
    layers, rotated = config.num_hidden_layers, len(config.rope_layers)
    counts = Counter(
        Attention=layers,
        RMSNormalization=2 * layers + 1,
        RotaryEmbedding=2 * rotated,
        MatMul=7 * layers + 1,
        Reshape=4 * layers,
        Transpose=4 * layers + config.tie_word_embeddings,
        Cast=2 * layers + 1 + (4 * rotated if config.rotates_in_fp32 else 0),
        Mul=3 * layers,
        Sigmoid=layers,
        Add=2 * layers,
        Gather=1 + form.last_only,
    )
    counts["TensorScatter" if form.linear else "Concat"] += 2 * layers
    counts += _MASK
    if config.group_size > 1 and not twin:
        counts += Counter(Reshape=2 * layers, Concat=1)
    if form.last_only:
        counts += Counter(Shape=1, Sub=1)
    counts += Counter(Unsqueeze=1) if form.linear else Counter(Shape=1, Squeeze=1, Sub=1)
    return counts


def check_onnx(path: Path, name: str) -> None:
    """Insist that a file is valid ONNX, types and shapes included; external data is looked for, not read.

    Raises:
        StageError: in the words of ONNX's checker.
    """
    try:
        onnx.checker.check_model(str(path), full_check=True)
    except (onnx.checker.ValidationError, onnx.shape_inference.InferenceError) as error:
        raise refuse(
            f"{name} is not valid ONNX", expected="what onnx.checker takes", found=str(error), remedy=REMEDY
        ) from error


def check_raw(model: onnx.ModelProto, config: ModelConfig) -> None:
    """Insist that a raw export keeps the contract and holds only what passes know.

    Raises:
        StageError: with everything that is wrong.
    """
    problems = list(signature_problems(model.graph, signature(config, Form.EXPORT), "the raw export", REMEDY))
    foreign = {name: count for name, count in operators(model).items() if name not in RAW_OPERATORS}
    if foreign:
        problems.append(Problem("the raw export holds operators that no pass knows", "", f"{foreign}", REMEDY))
    opset = {entry.domain: entry.version for entry in model.opset_import}.get("", 0)
    if opset not in RAW_OPSETS:
        expected = f"{RAW_OPSETS.start} to {RAW_OPSETS.stop - 1}"
        problems.append(Problem("the raw export has an opset that is not carried", expected, str(opset), REMEDY))
    if problems:
        raise StageError(problems)


def check_fused(model: onnx.ModelProto, config: ModelConfig, form: Form, *, twin: bool, capacity: int | None) -> None:
    """Insist that a fused graph is what the design says: signature, exact operators, weights once.

    A twin's Casts are not counted: there is one behind each weight, and those of the BF16 graph are gone.

    Raises:
        StageError: with everything that is wrong; it is a fault of ours, and nothing is written.
    """
    name = form.file_name(twin=twin)
    contract = signature(config, form, twin=twin, capacity=capacity)
    problems = list(signature_problems(model.graph, contract, name, REMEDY))
    found, expected = operators(model), expected_operators(config, form, twin=twin)
    if twin:
        found["Cast"] = expected["Cast"] = 0
    if +found != +expected:
        differences = f"more {dict(found - expected)}, fewer {dict(expected - found)}"
        problems.append(
            Problem(f"{name} has other operators than it should", f"{dict(+expected)}", differences, REMEDY)
        )
    tables = [
        tensor.name
        for tensor in model.graph.initializer
        if sorted(tensor.dims[-2:]) == sorted((config.vocab_size, config.hidden_size))
        and not tensor.name.startswith(("model.layers.", "rotary."))
    ]
    wanted = 1 if config.tie_word_embeddings else 2
    if len(tables) != wanted:
        problems.append(
            Problem(f"{name} holds vocabulary-sized weights more than once", str(wanted), f"{tables}", REMEDY)
        )
    if problems:
        raise StageError(problems)
