"""MODEL is resolved without the network where it can be, and refused in one message where it cannot."""

from __future__ import annotations

import errno
import json
from pathlib import Path

import pytest
from huggingface_hub import constants

from artifacts.checkpoint import FETCHED, SHIPPED, Checkpoint
from artifacts.digest import Digests
from artifacts.errors import StageError
from export import source
from export.source import PINNED, resolve
from tests.checkpoint_folder import cache_as_hub, small_config, tensors_of, write_checkpoint

REVISION = "0123456789abcdef0123456789abcdef01234567"


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty cache of the hub's client, and no network."""
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    return tmp_path / "cache"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A checkpoint on disk."""
    folder = write_checkpoint(tmp_path / "checkpoint", small_config(), shards=2)
    (folder / "tokenizer.json").write_text("{}")
    return folder


def test_a_folder_and_a_random_model() -> None:
    assert resolve("random:tiny").kind == "random"
    assert resolve("tests") == Checkpoint.of_folder(Path("tests"))


def test_a_checkpoint_of_this_repository_is_taken_by_its_name_alone() -> None:
    assert resolve("smollm3-tiny") == Checkpoint.shipped("smollm3-tiny")
    assert resolve(str(SHIPPED / "smollm3-tiny")).kind == "folder"


@pytest.mark.parametrize("model", ["random:tiny", "tests", "smollm3-tiny"])
def test_a_revision_of_what_has_none_is_refused(model: str) -> None:
    with pytest.raises(StageError, match="leave out REVISION"):
        resolve(model, "main")


@pytest.mark.parametrize("model", ["''", "nowhere", "a/b/c", "./absent", "../no-such-folder-here/..", "a b/c"])
def test_what_is_neither_folder_nor_hub_id_is_refused(model: str) -> None:
    with pytest.raises(StageError, match="there is no model"):
        resolve(model)


def test_no_model_is_not_the_current_folder() -> None:
    with pytest.raises(StageError, match="no model was given"):
        resolve("")


def test_the_pinned_revision_is_taken_from_the_cache(cache: Path, folder: Path) -> None:
    repository, revision = next(iter(PINNED.items()))
    snapshot = cache_as_hub(cache, repository, revision, folder)
    assert resolve(repository) == Checkpoint("hub", repository, revision, snapshot)


def test_a_fixed_revision_that_is_whole_is_not_asked_for(
    cache: Path, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without a network the hub's client would try for half a minute, at every "up to date"."""
    monkeypatch.setattr(source, "_fetched", lambda repository, revision: pytest.fail("the hub was asked"))
    snapshot = cache_as_hub(cache, "me/model", REVISION, folder)
    assert resolve("me/model", REVISION).folder == snapshot


def test_a_snapshot_that_lacks_a_shard_is_asked_for(cache: Path, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    snapshot = cache_as_hub(cache, "me/model", REVISION, folder)
    monkeypatch.setattr(source, "_fetched", lambda repository, revision: folder.parent / REVISION)
    (snapshot / "model-00001-of-00002.safetensors").unlink()
    assert resolve("me/model", REVISION).folder == folder.parent / REVISION


def test_what_another_program_fetched_without_the_tokenizer_is_asked_for(
    cache: Path, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (folder / "tokenizer.json").unlink()
    cache_as_hub(cache, "me/model", REVISION, folder)
    monkeypatch.setattr(source, "_fetched", lambda repository, revision: folder.parent / REVISION)
    assert resolve("me/model", REVISION).folder == folder.parent / REVISION


def test_a_model_of_another_kind_is_refused_before_its_weights_are_fetched(
    cache: Path, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (folder / "config.json").write_text(json.dumps({**small_config(), "model_type": "llama"}))
    cache_as_hub(cache, "me/llama", REVISION, folder, ref="main")
    monkeypatch.setattr(
        "huggingface_hub.snapshot_download", lambda *given, **named: pytest.fail("weights were asked for")
    )
    with pytest.raises(StageError, match="model_type is not carried"):
        resolve("me/llama")


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (OSError(errno.ENOSPC, "No space left on device"), "HF_HOME to a larger disk"),
        (RuntimeError("the proxy is gone"), "RuntimeError: the proxy is gone"),
    ],
)
def test_whatever_stops_a_download_is_one_message(
    cache: Path, monkeypatch: pytest.MonkeyPatch, error: Exception, words: str
) -> None:
    def stops(*given: object, **named: object) -> None:
        raise error

    monkeypatch.setattr("huggingface_hub.hf_hub_download", stops)
    with pytest.raises(StageError, match=words):
        resolve("me/model")


def test_main_and_a_branch_become_forty_hex_digits(cache: Path, folder: Path) -> None:
    cache_as_hub(cache, "me/main-model", REVISION, folder, ref="main")
    cache_as_hub(cache, "me/branch-model", REVISION, folder, ref="dev")
    assert resolve("me/main-model").revision == REVISION
    assert resolve("me/branch-model", "dev").revision == REVISION
    assert resolve("me/branch-model", REVISION).revision == REVISION


def test_a_snapshot_of_links_is_a_source_by_id_and_by_path(cache: Path, folder: Path, tmp_path: Path) -> None:
    snapshot = cache_as_hub(cache, "me/model", REVISION, folder, ref="main")
    expected = tensors_of(small_config())
    for checkpoint in (resolve("me/model"), resolve(str(snapshot))):
        weights = checkpoint.weights()
        assert all(weights.tensor(name).equal(tensor) for name, tensor in expected.items())
        again = Checkpoint.from_identity(checkpoint.identity(Digests(tmp_path)))
        assert again == checkpoint


def test_what_the_cache_lacks_is_refused_with_the_way_out(cache: Path) -> None:
    with pytest.raises(StageError, match=r"could not be fetched(.|\n)*hf auth login"):
        resolve("me/absent")
    with pytest.raises(StageError, match="not in the hub's local cache"):
        Checkpoint.from_identity({"kind": "hub", "origin": "me/absent", "revision": REVISION})


def test_no_pickle_and_no_code_is_fetched() -> None:
    names = ["pytorch_model.bin", "modeling_x.py", "model.pt", "onnx/model.onnx", "README.md"]
    assert not [name for name in names for pattern in FETCHED if Path(name).match(pattern)]
