"""Random models are the same everywhere, whatever is drawn first, and their attention is sharp."""

from __future__ import annotations

import pytest
import torch

from artifacts import names
from artifacts.config import ModelConfig
from artifacts.errors import StageError
from artifacts.parameters import parameter_shapes
from artifacts.random_model import PRESETS, SHARPNESS, RandomWeights, draw, preset_config

CONFIG = ModelConfig.from_raw(preset_config("tiny"))


def test_an_unknown_preset_is_refused_with_those_that_there_are() -> None:
    with pytest.raises(StageError, match="random:smollm3-3b"):
        preset_config("huge")


def test_every_parameter_is_drawn_in_bf16_and_in_its_shape() -> None:
    weights = RandomWeights(CONFIG)
    for name in weights.names():
        tensor = weights.tensor(name)
        assert (tuple(tensor.shape), tensor.dtype) == (weights.shape(name), torch.bfloat16)
    assert sum(torch.Size(shape).numel() for shape in parameter_shapes(CONFIG).values()) == CONFIG.num_parameters


def test_the_order_of_drawing_makes_no_difference_and_the_seed_does() -> None:
    name = names.layer(3, f"{names.Q_PROJ}.weight")
    first = draw(name, CONFIG)
    draw(names.EMBEDDING_WEIGHT, CONFIG)
    assert torch.equal(first, draw(name, CONFIG))
    assert not torch.equal(first, draw(name, CONFIG, seed=1))
    assert not torch.equal(first, draw(names.layer(4, f"{names.Q_PROJ}.weight"), CONFIG))


def test_known_bits() -> None:
    """Another version of the generator would be another model under the same name."""
    drawn = draw(names.layer(0, f"{names.NORM}.weight"), CONFIG)
    assert drawn[:3].tolist() == [0.72265625, 1.125, 1.0078125]


def test_scores_are_sharp() -> None:
    """Q and k on inputs of unit variance have the deviation that was asked for, within sampling error (4 %)."""
    inputs = torch.randn(256, CONFIG.hidden_size, generator=torch.Generator().manual_seed(0))
    for part in (names.Q_PROJ, names.K_PROJ):
        out = inputs @ draw(names.layer(0, f"{part}.weight"), CONFIG).float().T
        assert out.std() == pytest.approx(SHARPNESS, rel=0.04)


def test_presets_differ_in_what_hides_faults() -> None:
    tiny, wide = (ModelConfig.from_raw(preset_config(name)) for name in ("tiny", "tiny-d128"))
    assert (tiny.head_dim, wide.head_dim) == (32, 128)
    for config in (tiny, wide):
        assert config.nope_layers != tuple(range(3, config.num_hidden_layers, 4))
        assert config.group_size > 1
    assert set(PRESETS) == {"tiny", "tiny-d128", "smollm3-3b"}
