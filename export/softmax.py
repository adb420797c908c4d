"""Softmax is computed in FP32, as Transformers says; the translation to ONNX forgets the type.

::

    before   scores ─► Softmax(BF16) ─► Cast(FP32) ─► Cast(BF16)
    after    scores ─► Cast(FP32) ─► Softmax(FP32) ─► Cast(BF16)
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from artifacts.errors import refuse

if TYPE_CHECKING:
    import onnx_ir


def mend(graph: onnx_ir.Graph, layers: int) -> None:
    """Move the Cast before the Softmax in every layer.

    Args:
        graph: the traced graph.
        layers: how many there must be.

    Raises:
        StageError: another number of Softmax nodes has that form.
    """
    mended = sum(_mend_one(graph, node) for node in tuple(graph) if node.op_type == "Softmax")
    if mended != layers:
        raise refuse(
            "the exporter's Softmax is not of the form that is mended",
            expected=f"{layers} times Softmax, Cast to FP32",
            found=f"{mended} times",
            remedy="install the versions of constraints.txt",
        )


def _mend_one(graph: onnx_ir.Graph, softmax: onnx_ir.Node) -> bool:
    import onnx_ir

    uses = softmax.outputs[0].uses()
    if len(uses) != 1:
        return False
    cast = next(iter(uses))[0]
    scores = softmax.inputs[0]
    if cast.op_type != "Cast" or cast.attributes["to"].as_int() != onnx_ir.DataType.FLOAT or scores is None:
        return False
    before = onnx_ir.node("Cast", [scores], {"to": onnx_ir.DataType.FLOAT}, metadata_props=softmax.metadata_props)
    before.outputs[0].shape = scores.shape
    before.outputs[0].dtype = onnx_ir.DataType.FLOAT
    graph.insert_before(softmax, before)
    softmax.replace_input_with(0, before.outputs[0])
    softmax.outputs[0].dtype = onnx_ir.DataType.FLOAT
    softmax.outputs[0].shape = scores.shape
    cast.outputs[0].replace_all_uses_with(softmax.outputs[0])
    graph.remove(cast, safe=True)
    return True
