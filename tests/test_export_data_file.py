"""Where each weight lies follows from the config; what rounding changed is told exactly."""

from __future__ import annotations

import hashlib
import itertools
from pathlib import Path

import pytest
import torch

from artifacts import names
from artifacts.config import ModelConfig
from artifacts.random_model import RandomWeights, preset_config
from export.data_file import ALIGNMENT, Rounding, plan, total_bytes, write
from tests.checkpoint_folder import small_config, tensors_of

CONFIG = ModelConfig.from_raw(small_config())


def test_slots_are_aligned_disjoint_and_in_the_shape_of_the_graph() -> None:
    slots = list(plan(CONFIG).values())
    assert all(slot.offset % ALIGNMENT == 0 for slot in slots)
    assert all(a.offset + a.length <= b.offset for a, b in itertools.pairwise(slots))
    assert plan(CONFIG)[names.layer(0, f"{names.K_PROJ}.weight")].shape == (128, 64)
    assert plan(CONFIG)[names.EMBEDDING_WEIGHT].shape == (512, 128)


def test_the_3b_model_takes_two_bytes_a_parameter_and_some_padding() -> None:
    config = ModelConfig.from_raw(preset_config("smollm3-3b"))
    assert 0 <= total_bytes(plan(config)) - 2 * config.num_parameters < ALIGNMENT * len(plan(config))


def test_the_file_is_hashed_and_counted_while_it_is_written(tmp_path: Path) -> None:
    written: list[int] = []
    digest, rounding = write(tmp_path / "data", plan(CONFIG), RandomWeights(CONFIG), written.append)
    data = (tmp_path / "data").read_bytes()
    assert digest == hashlib.sha256(data).hexdigest()
    assert (len(data), sum(written)) == (total_bytes(plan(CONFIG)), 2 * CONFIG.num_parameters)
    assert rounding == Rounding()
    slot = plan(CONFIG)[names.layer(1, f"{names.UP_PROJ}.weight")]
    stored = torch.frombuffer(bytearray(data[slot.offset :][: slot.length]), dtype=torch.bfloat16).reshape(slot.shape)
    assert torch.equal(stored.T, tensors_of(small_config())[slot.name])


@pytest.mark.parametrize("dtype", [torch.float16, torch.float32, torch.float64])
def test_rounding_is_told_exactly(dtype: torch.dtype) -> None:
    """1 + 2^-8 lies between two values of BF16 and goes to the even one, 1; 3 and 0 stay."""
    rounding = Rounding()
    rounded = rounding.round(torch.tensor([1 + 2**-8, 3.0, 0.0], dtype=dtype))
    assert rounded.tolist() == [1.0, 3.0, 0.0]
    assert (rounding.tensors, rounding.elements, rounding.max_abs) == (1, 1, 2**-8)
    assert rounding.max_relative == pytest.approx(1 / 257)


def test_bf16_is_kept_as_it_is() -> None:
    rounding, tensor = Rounding(), torch.ones(3, dtype=torch.bfloat16)
    assert rounding.round(tensor) is tensor
    assert rounding == Rounding()
