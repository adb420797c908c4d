"""Weights are read as they lie; every broken checkpoint is refused with the name of what is broken."""

from __future__ import annotations

import json
import pickle
import shutil
from pathlib import Path

import pytest
import torch

from artifacts import names
from artifacts.checkpoint import Checkpoint
from artifacts.digest import Digests, sha256_of
from artifacts.errors import StageError
from artifacts.weights import INDEX_FILE, SINGLE_FILE, SafetensorsWeights
from tests.checkpoint_folder import small_config, tensors_of, write_checkpoint


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A good checkpoint in three shards."""
    return write_checkpoint(tmp_path / "checkpoint", small_config(), shards=3)


@pytest.mark.parametrize("shards", [1, 3])
def test_tensors_are_read_bit_for_bit(tmp_path: Path, shards: int) -> None:
    expected = tensors_of(small_config())
    weights = SafetensorsWeights(write_checkpoint(tmp_path, small_config(), shards=shards))
    assert set(weights.names()) == set(expected)
    for name, tensor in expected.items():
        assert weights.shape(name) == tuple(tensor.shape)
        assert torch.equal(weights.tensor(name).view(torch.int16), tensor.view(torch.int16))


def test_every_missing_shard_is_named(folder: Path) -> None:
    for number in (1, 3):
        (folder / f"model-{number:05}-of-00003.safetensors").unlink()
    with pytest.raises(StageError) as caught:
        Checkpoint.of_folder(folder).weights()
    assert [problem.what.split()[1] for problem in caught.value.problems] == [
        "model-00001-of-00003.safetensors",
        "model-00003-of-00003.safetensors",
    ]


@pytest.mark.parametrize("keep", [0, 7, 100, -1])
def test_every_shard_that_is_cut_short_is_named(folder: Path, keep: int) -> None:
    for number in (1, 2):
        path = folder / f"model-{number:05}-of-00003.safetensors"
        path.write_bytes(path.read_bytes()[:keep])
    with pytest.raises(StageError) as caught:
        Checkpoint.of_folder(folder).weights()
    cut = [problem for problem in caught.value.problems if "corrupt or cut short" in problem.what]
    assert len(cut) == 2


@pytest.mark.parametrize("content", [b"", b"\xff" * 100, None], ids=["empty", "corrupt", "cut short"])
def test_a_shard_that_cannot_be_read_is_one_message(tmp_path: Path, content: bytes | None) -> None:
    """Two shards; that the other one's tensors are looked for where the index says stays so."""
    write_checkpoint(tmp_path, small_config(), shards=2)
    path = tmp_path / "model-00001-of-00002.safetensors"
    path.write_bytes(path.read_bytes()[:-7] if content is None else content)
    with pytest.raises(StageError) as caught:
        Checkpoint.of_folder(tmp_path).weights()
    assert [problem.what for problem in caught.value.problems] == [f"{path} is corrupt or cut short"]
    index = json.loads((tmp_path / INDEX_FILE).read_text())
    index["weight_map"]["absent"] = "model-00002-of-00002.safetensors"
    (tmp_path / INDEX_FILE).write_text(json.dumps(index))
    with pytest.raises(StageError) as caught:
        Checkpoint.of_folder(tmp_path).weights()
    assert [problem.what.split(" is ")[0] for problem in caught.value.problems] == [str(path), "tensor absent"]


def test_a_corrupt_header_is_refused(tmp_path: Path) -> None:
    write_checkpoint(tmp_path, small_config())
    path = tmp_path / SINGLE_FILE
    path.write_bytes(b"\xff" * 8 + path.read_bytes()[8:])
    with pytest.raises(StageError, match="corrupt or cut short"):
        Checkpoint.of_folder(tmp_path).weights()


@pytest.mark.parametrize("dtype", [torch.int8, torch.float8_e4m3fn])
def test_quantized_tensors_are_named(tmp_path: Path, dtype: torch.dtype) -> None:
    tensors = tensors_of(small_config())
    tensors[names.EMBEDDING_WEIGHT] = tensors[names.EMBEDDING_WEIGHT].to(dtype)
    with pytest.raises(StageError, match=f"tensor {names.EMBEDDING_WEIGHT} is of a type that is not carried"):
        Checkpoint.of_folder(write_checkpoint(tmp_path, small_config(), tensors)).weights()


def test_a_tensor_that_is_not_where_the_index_says_is_named(folder: Path) -> None:
    index = json.loads((folder / INDEX_FILE).read_text())
    index["weight_map"][names.EMBEDDING_WEIGHT] = "model-00002-of-00003.safetensors"
    (folder / INDEX_FILE).write_text(json.dumps(index))
    with pytest.raises(StageError, match=names.EMBEDDING_WEIGHT):
        Checkpoint.of_folder(folder).weights()


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"weight_map": 3}', '{"weight_map": {"a": "../../etc/passwd"}}'])
def test_a_bad_index_is_refused(folder: Path, text: str) -> None:
    (folder / INDEX_FILE).write_text(text)
    with pytest.raises(StageError, match=INDEX_FILE):
        Checkpoint.of_folder(folder).weights()


def test_a_pickle_is_refused_by_name_and_never_read(tmp_path: Path) -> None:
    class Bomb:
        def __reduce__(self) -> tuple[object, tuple[object, ...]]:
            return (Path.touch, (tmp_path / "exploded",))

    (tmp_path / "config.json").write_text(json.dumps(small_config()))
    (tmp_path / "pytorch_model.bin").write_bytes(pickle.dumps(Bomb()))
    with pytest.raises(StageError, match=r"pytorch_model\.bin is a pickle"):
        Checkpoint.of_folder(tmp_path).weights()
    assert not (tmp_path / "exploded").exists()


def test_a_folder_without_weights_is_refused_with_what_is_there(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps(small_config()))
    with pytest.raises(StageError, match=r"holds no weights(.|\n)*config\.json"):
        Checkpoint.of_folder(tmp_path).weights()


def test_identity_holds_the_digest_of_every_file_that_matters(folder: Path, tmp_path: Path) -> None:
    (folder / "tokenizer.json").write_text("{}")
    (folder / "README.md").write_text("not of interest")
    checkpoint = Checkpoint.of_folder(folder)
    identity = checkpoint.identity(Digests(tmp_path))
    assert set(identity["files"]) == {
        "config.json",
        "tokenizer.json",
        INDEX_FILE,
        *(f"model-0000{number}-of-00003.safetensors" for number in (1, 2, 3)),
    }
    assert identity["files"]["config.json"] == sha256_of(folder / "config.json")
    assert Checkpoint.from_identity(json.loads(json.dumps(identity))) == checkpoint


def test_a_random_model_is_found_again(tmp_path: Path) -> None:
    checkpoint = Checkpoint.random("random:tiny")
    assert Checkpoint.from_identity(checkpoint.identity(Digests(tmp_path))) == checkpoint
    assert checkpoint.companions() == []


def test_a_checkpoint_that_is_gone_is_refused(folder: Path, tmp_path: Path) -> None:
    identity = Checkpoint.of_folder(folder).identity(Digests(tmp_path))
    folder.rename(tmp_path / "elsewhere")
    with pytest.raises(StageError, match="no longer where it was"):
        Checkpoint.from_identity(identity)


def test_a_shipped_checkpoint_is_known_by_its_name_wherever_the_repository_lies(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    identities = []
    for place in (tmp_path / "here", tmp_path / "there"):
        shutil.copytree(folder, place / "small")
        monkeypatch.setattr("artifacts.checkpoint.SHIPPED", place)
        shipped = Checkpoint.shipped("small")
        assert shipped.folder == place / "small"
        identities.append(shipped.identity(Digests(place)))
        assert Checkpoint.from_identity(identities[0]) == shipped
    assert identities[0] == identities[1]
    with pytest.raises(StageError, match=r"no checkpoint 'big'\n +expected: small"):
        Checkpoint.shipped("big")
