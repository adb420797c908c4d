"""What export is asked to do; checked where it is made, and kept in the manifest."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from artifacts.layout import DEFAULT_OUT, ModelFolder, check_name, short_name


@dataclass(frozen=True)
class ExportOptions:
    """Options of the export stage.

    Attributes:
        model: the name of a checkpoint of this repository, a hub id, a checkpoint folder, or `random:<preset>`.
        out: the folder that holds the models' folders.
        name: the model's short name; derived from `model` if not given.
        revision: a revision of a hub repository; the pinned one or `main` if not given.
    """

    model: str
    out: Path = DEFAULT_OUT
    name: str | None = None
    revision: str | None = None

    def __post_init__(self) -> None:
        if self.name is not None:
            check_name(self.name)

    @property
    def folder(self) -> ModelFolder:
        """The folder of this model's artifacts."""
        return ModelFolder(self.out / (self.name or short_name(self.model)))
