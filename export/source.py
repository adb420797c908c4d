"""MODEL becomes a checkpoint: a name in this repository, `random:<preset>`, a folder, or a hub repository.

Of a repository only safetensors, JSON, tokenizer and template files are fetched; never code, never a pickle. Its config
is fetched and judged first: nobody waits for gigabytes to be told that the model is another kind.
"""

from __future__ import annotations

import re
from pathlib import Path

from artifacts.checkpoint import FETCHED, Checkpoint, cached_snapshot, shipped_names
from artifacts.config import ModelConfig
from artifacts.errors import StageError, refuse
from artifacts.random_model import PREFIX
from artifacts.weights import weight_files
from artifacts.writing import cannot_write, is_refusal_of_the_disk

PINNED = {"HuggingFaceTB/SmolLM3-3B": "a07cc9a04f16550a088caea529712d1d335b0ac1"}
"""Revisions that we were tested with; REVISION= (`--revision`) changes them."""

_HEX40 = re.compile(r"[0-9a-f]{40}")
_REPOSITORY = re.compile(r"[A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*")


def resolve(model: str, revision: str | None = None) -> Checkpoint:
    """Find a checkpoint, and download it if it is a hub repository that the local cache lacks.

    Args:
        model: a hub id, a folder, `random:<preset>`, or the name of a checkpoint in this repository.
        revision: a branch, tag or revision of a hub repository; the pinned one, else `main`, if not given.

    Raises:
        StageError: there is no such model, or a revision was given where there is none.
    """
    if not model:
        expected = "smollm3-tiny, a checkpoint folder, a hub id, or random:tiny"
        raise refuse("no model was given", expected=expected, found="''", remedy="give MODEL (--model)")
    folder = Path(model).expanduser()
    is_shipped, is_folder = model in shipped_names(), folder.is_dir()
    if model.startswith(PREFIX) or is_shipped or is_folder:
        if revision is not None:
            raise refuse(
                "a revision was given for a model that has none",
                expected="a hub repository, such as HuggingFaceTB/SmolLM3-3B",
                found=f"MODEL={model} REVISION={revision}",
                remedy="leave out REVISION (--revision)",
            )
        if is_shipped:
            return Checkpoint.shipped(model)
        return Checkpoint.of_folder(folder) if is_folder else Checkpoint.random(model)
    if not _REPOSITORY.fullmatch(model):
        raise refuse(
            f"there is no model {model!r}",
            expected="smollm3-tiny, a checkpoint folder, a hub id such as HuggingFaceTB/SmolLM3-3B, or random:tiny",
            found="neither a folder nor a name of that form",
            remedy="correct MODEL (--model)",
        )
    return _of_hub(model, revision or PINNED.get(model, "main"))


def _of_hub(repository: str, revision: str) -> Checkpoint:
    folder = _cached(repository, revision) or _fetched(repository, revision)
    if not _HEX40.fullmatch(folder.name):
        raise refuse(
            f"{repository} at {revision} has no 40-hex revision",
            expected="a snapshot folder that is named after its revision",
            found=str(folder),
            remedy="remove it from the hub's cache and export again",
        )
    return Checkpoint("hub", repository, folder.name, folder)


def _cached(repository: str, revision: str) -> Path | None:
    """Find a fixed revision that is whole in the local cache: it cannot have changed, so the hub need not be asked.

    What other programs fetched may lack the tokenizer; a checkpoint that has none is asked for every time.
    """
    if not _HEX40.fullmatch(revision):
        return None
    try:
        folder = cached_snapshot(repository, revision)
        weight_files(folder)
    except StageError:
        return None
    return folder if (folder / "config.json").is_file() and (folder / "tokenizer.json").is_file() else None


def _fetched(repository: str, revision: str) -> Path:
    from huggingface_hub import constants, hf_hub_download, snapshot_download

    try:
        config = hf_hub_download(repository, "config.json", revision=revision)
        ModelConfig.read(Path(config).parent)
        return Path(snapshot_download(repository, revision=revision, allow_patterns=list(FETCHED)))
    except StageError:
        raise
    except Exception as error:  # the client's own, and those of the two HTTP libraries that it may use
        if is_refusal_of_the_disk(error):
            raise cannot_write(Path(constants.HF_HUB_CACHE), error, setting="HF_HOME") from error
        raise _unreachable(repository, revision, error) from error


def _unreachable(repository: str, revision: str, error: Exception) -> StageError:
    return refuse(
        f"{repository} is no folder here, and could not be fetched from the hub at {revision}",
        expected="a checkpoint folder, or a repository that the hub or its local cache has",
        found=f"{type(error).__name__}: {str(error).splitlines()[0] if str(error) else ''}",
        remedy="correct MODEL or REVISION, sign in with `hf auth login`, or give MODEL a checkpoint folder",
    )
