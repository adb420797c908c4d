"""The reference is Transformers' own model: the same logits as the model that Transformers loads itself."""

import json
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from artifacts.checkpoint import Checkpoint
from artifacts.errors import StageError
from artifacts.random_model import RandomWeights, preset_config
from validate.play import Answer, play
from validate.pytorch_session import PyTorchSession
from validate.scenarios import Passage, Scenario

RAW = {**preset_config("tiny"), "num_hidden_layers": 3, "no_rope_layers": [1, 0, 1]}
TOKENS = tuple(range(20, 32))


@pytest.fixture(scope="module", autouse=True)
def one_thread() -> Iterator[None]:
    """A small model is slower on several."""
    import torch

    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A checkpoint of three layers in a folder."""
    from safetensors.torch import save_file

    folder = tmp_path_factory.mktemp("checkpoint")
    (folder / "config.json").write_text(json.dumps(RAW))
    weights = RandomWeights(Checkpoint.of_folder(folder).config)
    tensors = {name: weights.tensor(name) for name in weights.names()}
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
    return folder


def answers(session: PyTorchSession, *cuts: int) -> list[Answer]:
    passages = {"p": Passage("p", TOKENS, 290)}
    return list(play(session, Scenario("s", ("p",), tuple((cut,) for cut in cuts)), passages, 3))


def test_it_is_the_model_that_transformers_loads(folder: Path) -> None:
    """Measured: 0.0, the arithmetic is the same."""
    import torch
    from transformers import SmolLM3ForCausalLM

    model = SmolLM3ForCausalLM.from_pretrained(folder, dtype=torch.float32, attn_implementation="eager")
    ids = torch.tensor([TOKENS])
    with torch.inference_mode():
        expected = model(input_ids=ids, position_ids=torch.arange(290, 302)[None]).logits[0].numpy()
    with PyTorchSession(Checkpoint.of_folder(folder), "float32") as session:
        (found,) = answers(session, len(TOKENS))
    np.testing.assert_allclose(found.arrays["logits"], expected, rtol=0, atol=1e-6 * np.abs(expected).max())


def test_calls_of_any_cut_give_the_same(folder: Path) -> None:
    with PyTorchSession(Checkpoint.of_folder(folder), "float32") as session:
        (whole,) = answers(session, 12)
        parts = answers(session, 5, 6, 1)
    joined = np.concatenate([part.arrays["logits"] for part in parts])
    np.testing.assert_allclose(joined, whole.arrays["logits"], rtol=0, atol=1e-4)
    np.testing.assert_allclose(parts[-1].arrays["present.1.value"], whole.arrays["present.1.value"], rtol=0, atol=1e-4)


def test_bf16_is_the_same_model_with_noise(folder: Path) -> None:
    with PyTorchSession(Checkpoint.of_folder(folder), "float32") as exact:
        (expected,) = answers(exact, 12)
    with PyTorchSession(Checkpoint.of_folder(folder), "bfloat16") as noisy:
        (found,) = answers(noisy, 12)
    distance = np.abs(found.arrays["logits"] - expected.arrays["logits"]).max()
    assert found.arrays["logits"].dtype == np.float32
    assert 1e-3 < distance / np.abs(expected.arrays["logits"]).max() < 0.1


def test_a_checkpoint_that_lacks_a_weight_is_refused(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    names = RandomWeights(Checkpoint.of_folder(folder).config).names()
    monkeypatch.setattr("artifacts.weights.SafetensorsWeights.names", lambda self: names[1:])
    with (
        pytest.raises(StageError, match=r"model\.embed_tokens\.weight"),
        PyTorchSession(Checkpoint.of_folder(folder), "float32"),
    ):
        pass
