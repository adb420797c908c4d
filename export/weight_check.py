"""The checkpoint's tensors are exactly the model's parameters: none missing, none of another shape, none left over."""

from __future__ import annotations

from collections.abc import Iterator

from artifacts import names
from artifacts.config import ModelConfig
from artifacts.errors import Problem, StageError
from artifacts.parameters import parameter_shapes
from artifacts.weights import Weights

REMEDY = "give a whole checkpoint of the model that config.json describes"


def check(weights: Weights, config: ModelConfig) -> None:
    """Compare names and shapes with the config; a head that is stored although it is tied must be the embedding.

    Raises:
        StageError: every tensor that is missing, of another shape, or unexpected.
    """
    problems = list(_judge(weights, config))
    if problems:
        raise StageError(problems)


def _judge(weights: Weights, config: ModelConfig) -> Iterator[Problem]:
    shapes, found = parameter_shapes(config), dict.fromkeys(weights.names())
    for name, shape in shapes.items():
        if name not in found:
            yield Problem(f"tensor {name} is missing", str(shape), "no such tensor", REMEDY)
        elif weights.shape(name) != shape:
            yield Problem(f"tensor {name} has another shape", str(shape), str(weights.shape(name)), REMEDY)
    for name in found:
        if name == names.HEAD_WEIGHT and config.tie_word_embeddings:
            yield from _judge_tied_head(weights)
        elif name not in shapes:
            yield Problem(f"tensor {name} is unexpected", "only the model's parameters", name, REMEDY)


def _judge_tied_head(weights: Weights) -> Iterator[Problem]:
    import torch

    if names.EMBEDDING_WEIGHT not in weights.names():
        return
    head, embedding = weights.tensor(names.HEAD_WEIGHT), weights.tensor(names.EMBEDDING_WEIGHT)
    # NaN is not equal to itself; it is refused by its own name when the weights are written.
    if not torch.equal(head, embedding) and not torch.equal(head.nan_to_num(), embedding.nan_to_num()):
        yield Problem(
            f"{names.HEAD_WEIGHT} is not the embedding, although the config ties them",
            f"the same values as {names.EMBEDDING_WEIGHT}, or tie_word_embeddings false",
            "other values",
            "correct tie_word_embeddings in config.json",
        )
