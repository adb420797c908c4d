"""The table of layer kinds that the evaluation knows: for each, its class, its attributes, its meaning.

A kind that is not here, or an attribute that a class has and this table does not name, is refused: a new TensorRT may
not bring a meaning that nobody looked at.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from validate.network import elementwise, indexing, products, quantization, shapes, transformer
from validate.network.layers import Layer
from validate.network.operation import Operation


@dataclass(frozen=True)
class Kind:
    """One kind of layer.

    Attributes:
        class_name: TensorRT's class that has its attributes.
        meaning: compiles a layer of this kind.
        attributes: every attribute of the class; all are read, and `meaning` looks at those that change the result.
    """

    class_name: str
    meaning: Callable[[Layer], Operation]
    attributes: tuple[str, ...] = ()


def _constant(layer: Layer) -> Operation:
    raise AssertionError(f"{layer.name}: a constant's values are placed, not computed")


KINDS: Mapping[str, Kind] = {
    "ACTIVATION": Kind("IActivationLayer", elementwise.activation, ("type", "alpha", "beta")),
    "ASSERTION": Kind("IAssertionLayer", elementwise.assertion, ("message",)),
    "ATTENTION_INPUT": Kind("IAttentionInputLayer", transformer.attention, ("attention",)),
    "ATTENTION_OUTPUT": Kind("IAttentionOutputLayer", transformer.attention, ("attention",)),
    "CAST": Kind("ICastLayer", elementwise.cast, ("to_type",)),
    "CONCATENATION": Kind("IConcatenationLayer", shapes.concatenation, ("axis",)),
    "CONSTANT": Kind("IConstantLayer", _constant, ("weights", "shape")),
    "CUMULATIVE": Kind("ICumulativeLayer", products.cumulative, ("op", "exclusive", "reverse")),
    "DEQUANTIZE": Kind("IDequantizeLayer", quantization.dequantize, ("axis", "block_shape", "to_type")),
    "ELEMENTWISE": Kind("IElementWiseLayer", elementwise.elementwise, ("op",)),
    "FILL": Kind("IFillLayer", indexing.fill, ("shape", "operation", "alpha", "beta", "to_type")),
    "GATHER": Kind("IGatherLayer", indexing.gather, ("axis", "num_elementwise_dims", "mode")),
    "IDENTITY": Kind("IIdentityLayer", elementwise.identity),
    "KV_CACHE_UPDATE": Kind(
        "IKVCacheUpdateLayer", transformer.cache_update, ("cache_mode", "update_form", "update_lengths")
    ),
    "MATRIX_MULTIPLY": Kind("IMatrixMultiplyLayer", products.matrix_multiply, ("op0", "op1")),
    "QUANTIZE": Kind("IQuantizeLayer", quantization.quantize, ("axis", "block_shape", "to_type")),
    "REDUCE": Kind("IReduceLayer", products.reduce, ("op", "axes", "keep_dims")),
    "ROTARY_EMBEDDING": Kind(
        "IRotaryEmbeddingLayer", transformer.rotary_embedding, ("interleaved", "rotary_embedding_dim")
    ),
    "SCATTER": Kind("IScatterLayer", indexing.scatter, ("axis", "mode")),
    "SELECT": Kind("ISelectLayer", elementwise.select),
    "SHAPE": Kind("IShapeLayer", shapes.shape),
    "SHUFFLE": Kind(
        "IShuffleLayer",
        shapes.shuffle,
        ("first_transpose", "reshape_dims", "second_transpose", "zero_is_placeholder"),
    ),
    "SLICE": Kind("ISliceLayer", shapes.slice_, ("start", "shape", "stride", "mode", "axes")),
    "SOFTMAX": Kind("ISoftMaxLayer", products.softmax, ("axes",)),
    "SQUEEZE": Kind("ISqueezeLayer", shapes.squeeze),
    "UNARY": Kind("IUnaryLayer", elementwise.unary, ("op",)),
    "UNSQUEEZE": Kind("IUnsqueezeLayer", shapes.unsqueeze),
}

ATTENTION = "ATTENTION"
"""The kind of the one record that an attention's boundary layers are read into."""

ATTENTION_ATTRIBUTES = (
    *transformer.PLAIN,
    "norm_op",
    "causal_kind",
    "causal",  # the older spelling of causal_kind = UPPER_LEFT
    "decomposable",  # whether several kernels may compute it: the same result
    "mask",  # also the fourth input of the boundary layer
    "normalization_quantize_to_type",  # means something only with normalization_quantize_scale
    "name",
    "metadata",
    "num_inputs",
    "num_outputs",
)
"""Every attribute of TensorRT's IAttention."""


def meaning(kind: str) -> Callable[[Layer], Operation]:
    """Give what compiles a layer of this kind."""
    return transformer.attention if kind == ATTENTION else KINDS[kind].meaning
