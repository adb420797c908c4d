"""A checkpoint: where a model's weights and facts come from, and which ones they are exactly.

Four kinds: a repository of the hub at a 40-hex revision, one that lies in this repository, a local folder, and a seeded
random model.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

from artifacts.config import ModelConfig, read_raw
from artifacts.digest import Digests
from artifacts.errors import refuse
from artifacts.exam import EXAM
from artifacts.random_model import PREFIX, SEED, RandomWeights, preset_config
from artifacts.weights import SafetensorsWeights, Weights, weight_files

FETCHED = ("*.safetensors", "*.json", "*.jinja", "tokenizer.model", "merges.txt")
"""What is taken from a repository of the hub, and what its local cache has to have: never code, never a pickle."""

CheckpointKind = Literal["hub", "shipped", "folder", "random"]

SHIPPED = Path(__file__).parent / "checkpoints"
"""The checkpoints that lie in this repository; `smollm3-tiny` is the default model."""

COMPANIONS = (
    "config.json",
    "generation_config.json",
    "tokenizer.json",
    "tokenizer_config.json",
    "tokenizer.model",
    "special_tokens_map.json",
    "added_tokens.json",
    "vocab.json",
    "merges.txt",
    "chat_template.jinja",
    EXAM,
)
"""Files that go along with the weights, as Transformers names them, and the exam where there is one."""


@dataclass(frozen=True)
class Checkpoint:
    """One checkpoint.

    Attributes:
        kind: where it comes from.
        origin: the hub's repository id, the name of a folder in `SHIPPED`, the folder's path, or `random:<preset>`.
        revision: the 40-hex revision of a hub repository.
        folder: where the files lie; None for a random model.
    """

    kind: CheckpointKind
    origin: str
    revision: str | None = None
    folder: Path | None = None

    @classmethod
    def of_folder(cls, folder: Path) -> Checkpoint:
        """Take a local folder in the layout of `save_pretrained`."""
        return cls("folder", str(folder.resolve()), None, folder.resolve())

    @classmethod
    def shipped(cls, name: str) -> Checkpoint:
        """Take a checkpoint of this repository by its name, wherever the repository lies.

        Raises:
            StageError: there is none of that name.
        """
        if name not in shipped_names():
            raise refuse(
                f"this repository has no checkpoint {name!r}",
                expected=", ".join(shipped_names()),
                found=f"no {SHIPPED / name}",
                remedy="get the repository again, or export with another MODEL",
            )
        return cls("shipped", name, None, SHIPPED / name)

    @classmethod
    def random(cls, origin: str) -> Checkpoint:
        """Take a seeded random model by its full name, `random:<preset>`.

        Raises:
            StageError: there is no such preset.
        """
        preset_config(origin.removeprefix(PREFIX))
        return cls("random", origin)

    @classmethod
    def from_identity(cls, record: Mapping[str, Any]) -> Checkpoint:
        """Find again the checkpoint that a manifest names; whether it is unchanged, `identity` tells.

        Raises:
            StageError: it is no longer there.
        """
        kind, origin = record.get("kind"), str(record.get("origin"))
        if kind == "random":
            return cls.random(origin)
        if kind == "shipped":
            return cls.shipped(origin)
        if kind == "hub":
            revision = str(record.get("revision"))
            return cls("hub", origin, revision, cached_snapshot(origin, revision))
        if not Path(origin).is_dir():
            raise refuse(
                "the checkpoint of this model is no longer where it was",
                expected=f"the folder {origin}",
                found="no such folder",
                remedy="put it back, or export again with MODEL=<where it is now>",
            )
        return cls.of_folder(Path(origin))

    @property
    def title(self) -> str:
        """The checkpoint in a few words: kind, origin and revision, without what is in it."""
        return f"{self.kind} {self.origin}" + (f" at {self.revision}" if self.revision else "")

    @cached_property
    def raw_config(self) -> dict[str, Any]:
        """The checkpoint's config.json as it is."""
        if self.folder is None:
            return preset_config(self.origin.removeprefix(PREFIX))
        return read_raw(self.folder)

    @cached_property
    def config(self) -> ModelConfig:
        """The model's facts; a config that we do not carry is refused with every reason."""
        return ModelConfig.from_raw(self.raw_config)

    def weights(self) -> Weights:
        """Open the weights; only headers are read.

        Raises:
            StageError: no safetensors, or corrupt ones.
        """
        return RandomWeights(self.config) if self.folder is None else SafetensorsWeights(self.folder)

    def companions(self) -> list[Path]:
        """Config, tokenizer and template files that lie in the checkpoint."""
        if self.folder is None:
            return []
        return [self.folder / name for name in COMPANIONS if (self.folder / name).is_file()]

    def identity(self, digests: Digests) -> dict[str, Any]:
        """Tell exactly which checkpoint this is, by sha256 of its files, or by config and seed of a random model."""
        if self.folder is None:
            text = json.dumps(self.raw_config, sort_keys=True)
            files = {"config.json": hashlib.sha256(text.encode()).hexdigest()}
            return {"kind": self.kind, "origin": self.origin, "revision": None, "seed": SEED, "files": files}
        paths = [*self.companions(), *weight_files(self.folder)]
        files = {path.name: digests.of(path) for path in paths}
        return {"kind": self.kind, "origin": self.origin, "revision": self.revision, "files": files}


def shipped_names() -> list[str]:
    """Name the checkpoints that lie in this repository."""
    return sorted(path.parent.name for path in SHIPPED.glob("*/config.json"))


def cached_snapshot(repository: str, revision: str) -> Path:
    """Find a hub repository in the local cache, without the network.

    Raises:
        StageError: it is not in the cache, or not whole.
    """
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import LocalEntryNotFoundError

    try:
        # With the same patterns as the download: the client knows what else the repository holds, and would miss it.
        found = snapshot_download(repository, revision=revision, allow_patterns=list(FETCHED), local_files_only=True)
        return Path(found)
    except (LocalEntryNotFoundError, ValueError):
        raise refuse(
            f"{repository} at {revision} is not in the hub's local cache",
            expected="the checkpoint that was exported",
            found="no such snapshot",
            remedy=f"make export MODEL={repository} REVISION={revision}, where the hub can be reached",
        ) from None
