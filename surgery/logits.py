"""Logits are FP32, and of the last position only where nobody asks for the others.

::

    before   stream (B, S, hidden) ─────────────────────────► RMSNormalization ─► MatMul head ─► logits (BF16)
    after    stream (B, S, hidden) ─► Gather(S − 1) ─► RMSNormalization ─► MatMul head ─► Cast ─► logits (FP32)

Gathering before the final norm spares a prefill of 512 tokens 511 rows of the vocabulary-sized product. With left
padding the last position is the last token of every row. A Gather says that the axis is one; of a Slice TensorRT only
knows that it is dynamic. The index is S − 1, not −1: on an axis of dynamic length a negative index has undefined
behaviour in TensorRT (IGatherLayer in NvInfer.h), and its parser passes one on unchanged.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import onnx
import onnx_graphsurgeon as gs

from artifacts.contract import BATCH, INPUT_IDS, LOGITS
from surgery.fusion import Pass
from surgery.subject import BF16, FP32, INT64, Subject, integers
from surgery.walk import Walk

HEAD = "lm_head"
"""The head's output in the model's type, (B, S or 1, V)."""


@dataclass(frozen=True)
class Head:
    """The graph's end: the final norm and the node whose product is the logits."""

    norm: gs.Node
    product: gs.Node


def anchors(subject: Subject) -> Iterator[tuple[str, gs.Tensor]]:
    """Give the logits."""
    yield LOGITS, subject.output(LOGITS)


def match(walk: Walk, logits: gs.Tensor, subject: Subject) -> Head:
    """Walk back from the logits to the final norm."""
    product = walk.back(logits, "MatMul", "Cast")
    if product.op == "Cast":
        product = walk.back(product.inputs[0], "MatMul")
    return Head(walk.back(product.inputs[0], "RMSNormalization"), product)


def widen(head: Head, subject: Subject) -> None:
    """Give the logits in FP32; the product stays in the model's type."""
    logits = subject.output(LOGITS)
    if head.product.outputs[0] is logits:
        head.product.outputs = [gs.Variable(HEAD, dtype=BF16, shape=logits.shape)]
    logits.dtype = FP32
    subject.emit("Cast", [head.product.outputs[0]], logits, to=onnx.TensorProto.FLOAT)


def keep_last(head: Head, subject: Subject) -> None:
    """Compute the norm and the logits of the last position only."""
    stream = head.norm.inputs[0]
    hidden = subject.config.hidden_size
    ids = subject.input(INPUT_IDS)
    length = subject.emit("Shape", [ids], f"{stream.name}/length", dtype=INT64, shape=[1], start=1, end=2)
    index = subject.emit("Sub", [length, integers(1)], f"{stream.name}/last_index", dtype=INT64, shape=[1])
    last = subject.emit("Gather", [stream, index], f"{stream.name}/last", dtype=BF16, shape=[BATCH, 1, hidden], axis=1)
    head.norm.inputs = [last, head.norm.inputs[1]]
    for node, width in ((head.norm, hidden), (head.product, subject.config.vocab_size)):
        node.outputs[0].shape = [BATCH, 1, width]
    subject.output(LOGITS).shape = [BATCH, 1, subject.config.vocab_size]


FP32_LOGITS = Pass("logits in FP32", anchors, match, widen, expected=lambda config: 1)
LAST_LOGITS = Pass("logits of the last position", anchors, match, keep_last, expected=lambda config: 1)
