"""The traced program becomes a graph of the tensor contract, in the order that `finish` reads."""

from __future__ import annotations

from typing import TYPE_CHECKING

from artifacts import __version__
from artifacts.config import ModelConfig
from artifacts.contract import Form, signature
from export import axes, fold, naming, softmax, weight_values
from export.data_file import Slot

if TYPE_CHECKING:
    import onnx
    import onnx_ir

PRODUCER = "smollm3-tensorrt"


def finish(model: onnx_ir.Model, config: ModelConfig, slots: dict[str, Slot]) -> onnx.ModelProto:
    """Make the raw export of the traced program.

    Args:
        model: what Transformers' exporter gave, changed in place.
        config: the model's facts.
        slots: places of the weights in `model.onnx_data`.

    Returns:
        The graph with external data that nobody has read.

    Raises:
        StageError: an axis, a count or a name is not what the contract says.
    """
    import onnx_ir

    form = signature(config, Form.EXPORT)
    weights = weight_values.detach(model.graph, slots)
    softmax.mend(model.graph, config.num_hidden_layers)
    naming.rename_signature(model.graph, form)
    fold.fold(model)
    axes.name_axes(model.graph, form)
    naming.rename_values(model.graph)
    weight_values.attach(model.graph, weights, slots)
    naming.forget_origin(model)
    model.producer_name, model.producer_version = PRODUCER, __version__
    return onnx_ir.to_proto(model)
