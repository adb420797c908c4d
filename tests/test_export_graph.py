"""The passes that finish the traced graph: each does its work on a small graph, and refuses what is not of its form."""

from __future__ import annotations

from collections.abc import Sequence

import onnx_ir as ir
import pytest

from artifacts.contract import Precision, Signature, TensorSpec
from artifacts.errors import StageError
from export import axes, fold, naming, softmax, weight_values
from export.data_file import Slot

SCOPES = "pkg.torch.onnx.name_scopes"
FORM = Signature(
    (TensorSpec("x", Precision.BF16, ("batch", 4)),), (TensorSpec("y", Precision.BF16, ("batch", "total_sequence")),)
)


def value(name: str, *shape: int | str, dtype: ir.DataType = ir.DataType.BFLOAT16) -> ir.Value:
    return ir.Value(name=name, shape=ir.Shape(shape), type=ir.TensorType(dtype))


def make(op: str, inputs: Sequence[ir.Value], path: str, *shape: int | str, **attributes: int) -> ir.Node:
    """A node in a module's scope, with one BF16 output."""
    node = ir.node(op, inputs, attributes, metadata_props={SCOPES: str(["", path, "x"])})
    node.outputs[0].shape, node.outputs[0].dtype = ir.Shape(shape), ir.DataType.BFLOAT16
    return node


def graph_of(inputs: list[ir.Value], nodes: list[ir.Node], weights: Sequence[ir.Value] = ()) -> ir.Graph:
    nodes[-1].outputs[0].name = "y"
    return ir.Graph(
        inputs, [nodes[-1].outputs[0]], nodes=nodes, initializers=list(weights), opset_imports={"": 20}, name="g"
    )


def test_axes_get_the_contracts_names() -> None:
    x = value("x", "s7", 4)
    inner = make("Relu", [x], "m", "s7", "odd")
    graph = graph_of([x], [inner, make("Relu", [inner.outputs[0]], "m", "s7", "s8 + s9")])
    axes.name_axes(graph, FORM)
    assert [str(found.shape) for found in (x, inner.outputs[0], graph.outputs[0])] == [
        "[batch,4]",
        "[batch,None]",
        "[batch,total_sequence]",
    ]


@pytest.mark.parametrize(
    ("x_shape", "y_shape", "faults"),
    [
        (("s7", "4"), ("s7", "s8"), 1),
        ((2, 4), ("s7", "s8"), 1),
        (("s7", 5), ("s7", 8), 2),
        (("s7", 4), ("s7", "s7"), 1),
        (("s7", 4), ("s7", "s8", 1), 1),
    ],
    ids=["a number as a name", "a fixed batch", "two wrong", "one symbol for two axes", "another rank"],
)
def test_every_axis_that_is_not_the_contracts_is_named(
    x_shape: tuple[int | str, ...], y_shape: tuple[int | str, ...], faults: int
) -> None:
    x = value("x", *x_shape)
    graph = graph_of([x], [make("Relu", [x], "m", *y_shape)])
    with pytest.raises(StageError) as caught:
        axes.name_axes(graph, FORM)
    assert len(caught.value.problems) == faults


def softmax_graph(target: ir.DataType) -> ir.Graph:
    x = value("x", "b", 4)
    node = make("Softmax", [x], "m", "b", 4, axis=-1)
    up = make("Cast", [node.outputs[0]], "m", "b", 4, to=target)
    return graph_of([x], [node, up, make("Cast", [up.outputs[0]], "m", "b", 4, to=ir.DataType.BFLOAT16)])


def test_softmax_goes_to_fp32() -> None:
    graph = softmax_graph(ir.DataType.FLOAT)
    softmax.mend(graph, 1)
    assert [node.op_type for node in graph] == ["Cast", "Softmax", "Cast"]
    assert graph[1].outputs[0].dtype == ir.DataType.FLOAT


def test_a_softmax_of_another_form_is_refused() -> None:
    with pytest.raises(StageError, match="0 times"):
        softmax.mend(softmax_graph(ir.DataType.DOUBLE), 1)
    with pytest.raises(StageError, match="1 times"):
        softmax.mend(softmax_graph(ir.DataType.FLOAT), 2)


def weight_graph() -> ir.Graph:
    x, weight = value("x", "b", 4), value("m.q_proj.weight", 3, 4)
    weight.const_value = ir.tensor([[0.0] * 4] * 3, dtype=ir.DataType.BFLOAT16)
    turned = make("Transpose", [weight], "m.q_proj", 4, 3)
    return graph_of([x], [turned, make("MatMul", [x, turned.outputs[0]], "m.q_proj", "b", 3)], [weight])


def test_a_weight_is_an_input_for_a_while_and_then_external() -> None:
    graph, slots = weight_graph(), {"m.q_proj.weight": Slot("m.q_proj.weight", (4, 3), 4096, 24)}
    weights = weight_values.detach(graph, slots)
    assert [node.op_type for node in graph] == ["MatMul"]
    assert [v.name for v in graph.inputs] == ["x", "m.q_proj.weight"]
    weight_values.attach(graph, weights, slots)
    tensor = graph.initializers["m.q_proj.weight"].const_value
    assert isinstance(tensor, ir.ExternalTensor)
    assert (tensor.offset, tensor.length, str(tensor.shape)) == (4096, 24, "[4,3]")
    assert [v.name for v in graph.inputs] == ["x"]


def test_weights_of_graph_and_plan_must_be_the_same() -> None:
    with pytest.raises(StageError) as caught:
        weight_values.detach(weight_graph(), {"other.weight": Slot("other.weight", (4, 3), 0, 24)})
    assert [problem.what for problem in caught.value.problems] == [
        "weight other.weight is not in the graph",
        "weight m.q_proj.weight is unknown",
    ]


def test_slices_of_everything_and_identities_go() -> None:
    x = value("x", "b", 4)
    ends = [ir.node("Constant", [], {"value_ints": [number]}) for number in (0, 2**63 - 1, 1)]
    start, end, one = (node.outputs[0] for node in ends)
    whole = make("Slice", [x, start, end, one, one], "m", "b", 4)
    same = make("Identity", [whole.outputs[0]], "m", "b", 4)
    part = make("Slice", [same.outputs[0], one, end, one, one], "m", "b", 3)
    graph = graph_of([x], [*ends, whole, same, part])
    fold.fold(ir.Model(graph, ir_version=10))
    assert [node.op_type for node in graph] == ["Slice"]
    assert graph[0].inputs[0] is x


def test_the_value_that_leaves_a_module_bears_its_path() -> None:
    x = value("x", "b", 4)
    first = make("Relu", [x], "m.layers.0.mlp", "b", 4)
    second = make("Relu", [first.outputs[0]], "m.layers.0.mlp", "b", 4)
    total = make("Add", [x, second.outputs[0]], "m.layers.0", "b", 4)
    graph = graph_of([x], [first, second, total, make("Relu", [total.outputs[0]], "m.norm", "b", 4)])
    naming.rename_values(graph)
    assert [(node.name, node.outputs[0].name) for node in graph] == [
        ("m.layers.0.mlp/Relu", "m.layers.0.mlp/Relu"),
        ("m.layers.0.mlp/Relu_1", "m.layers.0.mlp"),
        ("m.layers.0/Add", "m.layers.0"),
        ("m.norm/Relu", "y"),
    ]


def test_another_number_of_tensors_is_refused() -> None:
    x, extra = value("x", "b", 4), make("Relu", [value("z", 1)], "m", 1)
    graph = graph_of([x], [extra, make("Relu", [x], "m", "b", 4)])
    graph.outputs.append(extra.outputs[0])
    with pytest.raises(StageError, match="another number of tensors"):
        naming.rename_signature(graph, FORM)
