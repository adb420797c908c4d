"""Every tensor and weight gets the name that `artifacts.names` has for it, by the place where it stands.

::

    before   val_78, linear_3, add_489, …
    after    model.layers.3.self_attn.q_proj.weight, model.layers.3.self_attn.o_proj, model.layers.3.residual, …

The walk goes from the embedding through every layer to the logits, so it is also the proof that the graph is this
model and no other: each projection, norm, residual and rotation stands where Transformers has it, with weights of the
config's shapes.
"""

from __future__ import annotations

from collections.abc import Iterator

import onnx_graphsurgeon as gs

from artifacts import names
from artifacts.contract import BATCH, INPUT_IDS, LOGITS, SEQUENCE, past_name, present_name
from surgery.fusion import Pass
from surgery.logits import HEAD
from surgery.rotary_embedding import unrotated
from surgery.subject import Subject
from surgery.walk import Walk

Names = list[tuple[gs.Tensor, str]]


class Namer:
    """Walks through one model and notes a name for every tensor that it meets."""

    def __init__(self, walk: Walk, subject: Subject) -> None:
        self.walk = walk
        self.subject = subject
        self.config = subject.config
        self.names: Names = []

    def give(self, tensor: gs.Tensor, name: str, *axes: int | str) -> gs.Tensor:
        """Note a tensor's name, and its axes where they are not known from the contract."""
        self.names.append((tensor, name))
        if axes:
            tensor.shape = [BATCH, *axes]
        return tensor

    def weight(self, tensor: gs.Tensor, name: str, *shape: int) -> None:
        """Note a weight's name and insist on its shape."""
        found = list(tensor.shape) if isinstance(tensor, gs.Constant) else None
        self.walk.insist(found == list(shape), f"{tensor.name} should be {name}, {list(shape)}, but is {found}")
        self.names.append((tensor, name))

    def linear(self, product: gs.Node, x: gs.Tensor, path: str, width: int) -> gs.Tensor:
        """Name a projection of x and its weight, (in, out)."""
        walk = self.walk
        walk.insist(product.op == "MatMul" and product.inputs[0] is x, f"{product.name} should be {path} of {x.name}")
        self.weight(product.inputs[1], f"{path}.weight", x.shape[-1], width)
        return self.give(product.outputs[0], path, SEQUENCE, width)

    def norm(self, x: gs.Tensor, path: str) -> gs.Tensor:
        """Name the norm of x and its weight."""
        node = self.walk.forward(x, "RMSNormalization")
        self.weight(node.inputs[1], f"{path}.weight", self.config.hidden_size)
        return self.give(node.outputs[0], path, SEQUENCE, self.config.hidden_size)


def anchors(subject: Subject) -> Iterator[tuple[str, gs.Tensor]]:
    """Give the model's beginning."""
    yield "the model", subject.input(INPUT_IDS)


def match(walk: Walk, input_ids: gs.Tensor, subject: Subject) -> Names:
    """Walk from the embedding to the logits."""
    namer, config = Namer(walk, subject), subject.config
    gather = walk.forward(input_ids, "Gather")
    table = gather.inputs[0]
    namer.weight(table, names.EMBEDDING_WEIGHT, config.vocab_size, config.hidden_size)
    stream = namer.give(gather.outputs[0], names.EMBEDDING, SEQUENCE, config.hidden_size)
    for index in range(config.num_hidden_layers):
        stream = _feed_forward(namer, _attend(namer, stream, index), index)
    normed = namer.norm(stream, names.FINAL_NORM)
    product = walk.forward(normed, "MatMul")
    walk.insist(product.outputs[0] is subject.output(LOGITS), f"{product.name} should make the logits")
    if config.tie_word_embeddings:
        turned = walk.back(product.inputs[1], "Transpose")
        walk.insist(turned.inputs[0] is table, f"{turned.name} should turn the tied {table.name}")
        namer.give(turned.outputs[0], f"{HEAD}/Transpose")
    else:
        namer.weight(product.inputs[1], names.HEAD_WEIGHT, config.hidden_size, config.vocab_size)
    return namer.names


def _attend(namer: Namer, stream: gs.Tensor, index: int) -> gs.Tensor:
    """Name the first half of a layer; give the stream after attention was added."""
    walk, subject, config = namer.walk, namer.subject, namer.config
    normed = namer.norm(stream, names.layer(index, names.NORM))
    present = [subject.output(present_name(index, kind)) for kind in ("key", "value")]
    attention = walk.forward(present[0], "Attention")
    walk.insist(attention.inputs[2] is present[1], f"{attention.name} should take {present[1].name}")
    walk.insist(
        present[1].inputs[0].inputs[0].name == past_name(index, "value"), f"{present[1].name} joins another layer"
    )
    _project(namer, normed, _unscaled(namer, attention.inputs[0], index), index, names.Q_PROJ, names.Q_ROTARY)
    _project(namer, normed, walk.back(present[0], "Concat").inputs[1], index, names.K_PROJ, names.K_ROTARY)
    _project(namer, normed, walk.back(present[1], "Concat").inputs[1], index, names.V_PROJ, None)
    width = (config.num_attention_heads, config.head_dim)
    path = names.layer(index, names.ATTENTION)
    namer.give(attention.outputs[0], path, width[0], SEQUENCE, width[1])
    turned = walk.forward(attention.outputs[0], "Transpose")
    namer.give(turned.outputs[0], f"{path}/Transpose", SEQUENCE, *width)
    joined = walk.forward(turned.outputs[0], "Reshape")
    flat = namer.give(joined.outputs[0], f"{path}/Reshape", SEQUENCE, width[0] * width[1])
    output = namer.linear(walk.forward(flat, "MatMul"), flat, names.layer(index, names.O_PROJ), config.hidden_size)
    return _add(namer, stream, output, names.layer(index, names.RESIDUAL))


def _unscaled(namer: Namer, tensor: gs.Tensor, index: int) -> gs.Tensor:
    """Name q from where it is scaled and rounded back to where it is not scaled yet."""
    path, width = names.layer(index, "self_attn"), (namer.config.num_attention_heads, SEQUENCE, namer.config.head_dim)
    for op, name in (("Cast", f"{path}.q_scaled"), ("Mul", f"{path}/Mul"), ("Cast", f"{path}/Cast")):
        tensor = namer.walk.back(namer.give(tensor, name, *width), op).inputs[0]
    return tensor


def _project(namer: Namer, normed: gs.Tensor, tensor: gs.Tensor, index: int, part: str, rotary: str | None) -> None:
    """Name q, k or v from its projection to where it is scaled or joined to the cache."""
    walk, config = namer.walk, namer.config
    heads = config.num_attention_heads if part == names.Q_PROJ else config.num_key_value_heads
    path, four = names.layer(index, part), (heads, SEQUENCE, config.head_dim)
    if rotary and config.uses_rope[index]:
        rotated = names.layer(index, rotary)
        namer.give(tensor, rotated, *four)
        *inside, tensor = unrotated(walk, tensor, namer.subject)
        for part_way in inside:
            namer.give(part_way, f"{rotated}/{part_way.inputs[0].op}", *four)
    turned = walk.back(tensor, "Transpose")
    namer.give(tensor, f"{path}/Transpose", *four)
    split = walk.back(turned.inputs[0], "Reshape")
    namer.give(turned.inputs[0], f"{path}/Reshape", SEQUENCE, heads, config.head_dim)
    namer.linear(walk.back(split.inputs[0], "MatMul"), normed, path, heads * config.head_dim)


def _feed_forward(namer: Namer, stream: gs.Tensor, index: int) -> gs.Tensor:
    """Name the second half of a layer, SwiGLU; give the stream that leaves the layer."""
    walk, config = namer.walk, namer.config
    inner, mlp = config.intermediate_size, names.layer(index, "mlp")
    normed = namer.norm(stream, names.layer(index, names.POST_NORM))
    products = [node for node in normed.outputs if node.op == "MatMul"]
    gates = [node for node in products if any(user.op == "Sigmoid" for user in node.outputs[0].outputs)]
    walk.insist((len(products), len(gates)) == (2, 1), f"{normed.name} should go into a gate with a Sigmoid and an up")
    gate = namer.linear(gates[0], normed, names.layer(index, names.GATE_PROJ), inner)
    ups = [node for node in products if node is not gates[0]]
    up = namer.linear(ups[0], normed, names.layer(index, names.UP_PROJ), inner)
    sigmoid = namer.give(walk.forward(gate, "Sigmoid").outputs[0], f"{mlp}.act_fn/Sigmoid", SEQUENCE, inner)
    activate = walk.forward(sigmoid, "Mul")
    walk.insist(walk.operands(activate, sigmoid) is gate, f"{activate.name} should be gate times its sigmoid")
    active = namer.give(activate.outputs[0], f"{mlp}.act_fn", SEQUENCE, inner)
    gated = walk.forward(active, "Mul")
    walk.insist(walk.operands(gated, active) is up, f"{gated.name} should be the active gate times up")
    inside = namer.give(gated.outputs[0], f"{mlp}/Mul", SEQUENCE, inner)
    down = namer.linear(walk.forward(inside, "MatMul"), inside, names.layer(index, names.DOWN_PROJ), config.hidden_size)
    return _add(namer, stream, down, names.layer(index))


def _add(namer: Namer, stream: gs.Tensor, change: gs.Tensor, name: str) -> gs.Tensor:
    """Name the stream after something was added to it."""
    add = namer.walk.forward(change, "Add")
    namer.walk.insist(namer.walk.operands(add, change) is stream, f"{add.name} should add to {stream.name}")
    return namer.give(add.outputs[0], name, SEQUENCE, namer.config.hidden_size)


def rewrite(found: Names, subject: Subject) -> None:
    """Give the names; a tensor that has one of them without a right to it is called otherwise first."""
    taken = {name for _, name in found}
    named = {id(tensor) for tensor, _ in found}
    for tensor in subject.graph.tensors().values():
        if tensor.name in taken and id(tensor) not in named:
            tensor.name = f"{tensor.name}/other"
    for tensor, name in found:
        tensor.name = name


NAMES = Pass("the names of the contract", anchors, match, rewrite, expected=lambda config: 1)
