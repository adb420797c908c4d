"""Where each weight lies follows from the config; what rounding changed is told exactly."""

from __future__ import annotations

import hashlib
import itertools
from pathlib import Path

import pytest
import torch

from artifacts import names
from artifacts.config import ModelConfig
from artifacts.errors import StageError
from artifacts.random_model import RandomWeights, preset_config
from artifacts.weights import SafetensorsWeights
from export.data_file import ALIGNMENT, Rounding, plan, total_bytes, write
from tests.checkpoint_folder import small_config, tensors_of, write_checkpoint

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
@pytest.mark.parametrize("piece", [1, 2, 1 << 20])
def test_rounding_is_told_exactly(dtype: torch.dtype, piece: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """1 + 2^-8 lies between two values of BF16 and goes to the even one, 1; 3 and 0 stay."""
    monkeypatch.setattr("export.data_file._PIECE", piece)
    rounding = Rounding()
    rounded = rounding.round(torch.tensor([1 + 2**-8, 3.0, 0.0], dtype=dtype))
    assert rounded.tolist() == [1.0, 3.0, 0.0]
    assert (rounding.tensors, rounding.elements, rounding.max_abs) == (1, 1, 2**-8)
    assert rounding.max_relative == pytest.approx(1 / 257)


def test_bf16_is_kept_as_it_is() -> None:
    rounding, tensor = Rounding(), torch.ones(3, dtype=torch.bfloat16)
    assert rounding.round(tensor) is tensor
    assert rounding == Rounding()


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32, torch.float64])
def test_values_that_are_no_numbers_are_counted_by_tensor(tmp_path: Path, dtype: torch.dtype) -> None:
    """Two tensors of the model are spoilt; FP32 and FP64 have numbers that BF16 has not."""
    tensors = {name: tensor.to(dtype) for name, tensor in tensors_of(small_config()).items()}
    query, norm = names.layer(0, f"{names.Q_PROJ}.weight"), names.layer(1, f"{names.NORM}.weight")
    tensors[query][3, :2] = float("nan")
    tensors[norm][5] = float("-inf")
    large = torch.finfo(dtype).max > torch.finfo(torch.bfloat16).max
    if large:
        tensors[norm][7] = torch.finfo(dtype).max
    weights = SafetensorsWeights(write_checkpoint(tmp_path / "source", small_config(), tensors))
    with pytest.raises(StageError) as caught:
        write(tmp_path / "data", plan(CONFIG), weights, lambda written: None)
    assert [(problem.what.split()[1], problem.found) for problem in caught.value.problems] == [
        (query, "2 NaN"),
        (norm, "1 infinite, 1 too large for BF16" if large else "1 infinite"),
    ]
