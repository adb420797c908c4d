"""A manifest says what a stage made, from what, with which options and tools; it is written last.

One schema for every stage. A stage believes a file only if its digest is the one that the manifest names, and calls
itself up to date only if inputs, options and tool versions are all the same.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from artifacts import __version__
from artifacts.digest import Digests, sha256_of
from artifacts.errors import Problem, StageError, refuse

SCHEMA = 1


@dataclass(frozen=True)
class FileRecord:
    """Size in bytes and sha256 of one file."""

    size: int
    sha256: str

    @classmethod
    def of(cls, path: Path, digests: Digests) -> FileRecord:
        """Record a file as it is now."""
        return cls(path.stat().st_size, digests.of(path))

    @classmethod
    def written(cls, path: Path, sha256: str | None = None) -> FileRecord:
        """Record a file that was just written; its digest is read from it where writing did not tell it."""
        return cls(path.stat().st_size, sha256 or sha256_of(path))


@dataclass(frozen=True)
class Manifest:
    """What one run of a stage made.

    Attributes:
        stage: `export`, `surgery`, `build` or `validate`.
        options: the stage's options as JSON values.
        checkpoint: the checkpoint's identity (see `artifacts.checkpoint.Checkpoint.identity`).
        inputs: files that the stage read, by their path relative to the model's folder.
        outputs: files that the stage wrote, likewise.
        tools: versions of the tools that matter to the result.
        facts: what the stage found out and later stages or people want to know.
    """

    stage: str
    options: Mapping[str, Any]
    checkpoint: Mapping[str, Any]
    inputs: Mapping[str, FileRecord]
    outputs: Mapping[str, FileRecord]
    tools: Mapping[str, str]
    facts: Mapping[str, Any] = field(default_factory=dict)
    schema: int = SCHEMA
    version: str = __version__

    def write(self, path: Path) -> None:
        """Write the manifest as JSON to a path given by `Writing.path`, asked for last."""
        path.write_text(json.dumps(asdict(self), indent=2, ensure_ascii=False) + "\n", encoding="utf-8")

    @classmethod
    def read(cls, path: Path, *, made_by: str) -> Manifest:
        """Read a manifest.

        Args:
            path: the manifest's file.
            made_by: the command that makes it, for the message if it is not there.

        Raises:
            StageError: it is missing, cannot be read, is no JSON, or has another schema.
        """
        try:
            raw = json.loads(path.read_text(encoding="utf-8"))
            if raw.get("schema") != SCHEMA:
                raise refuse(
                    f"{path} has another schema",
                    expected=str(SCHEMA),
                    found=str(raw.get("schema")),
                    remedy=f"remove {path}, then {made_by}",
                )
            if not isinstance(raw["checkpoint"], dict):
                raise ValueError(f"its checkpoint is {raw['checkpoint']!r}")
            for kind in ("inputs", "outputs"):
                raw[kind] = {name: FileRecord(**record) for name, record in raw[kind].items()}
            return cls(**raw)
        except FileNotFoundError:
            found = "no such file"
            raise refuse(
                f"{path} is missing", expected="what an earlier stage made", found=found, remedy=made_by
            ) from None
        except OSError as error:
            expected, found = "a file that an earlier stage made, in OUT/<model>", error.strerror or str(error)
            raise refuse(f"{path} cannot be read", expected=expected, found=found, remedy=made_by) from None
        except (ValueError, TypeError, KeyError, AttributeError) as error:
            remedy = f"remove {path}, then {made_by}"
            expected = "JSON, as an earlier stage wrote it"
            raise refuse(f"{path} is not a manifest", expected=expected, found=str(error), remedy=remedy) from None

    def check_outputs(self, root: Path, digests: Digests, *, made_by: str, only: Iterable[str] | None = None) -> None:
        """Insist that the files that this manifest names are the ones that lie there.

        Args:
            root: the model's folder, to which the paths are relative.
            digests: the memory of digests.
            made_by: the command that mends it.
            only: paths to check; all of them if not given.

        Raises:
            StageError: every file that is missing or another one.
        """
        problems = []
        for name in self.outputs if only is None else only:
            record = self.outputs.get(name)
            problem = _compare(root / name, record, digests, made_by)
            if problem:
                problems.append(problem)
        if problems:
            raise StageError(problems)

    def changed_inputs(self, root: Path, digests: Digests) -> list[str]:
        """Name the files that this manifest's stage read and that are other ones now, or gone."""
        return [name for name, record in self.inputs.items() if _compare(root / name, record, digests, "")]

    def is_current(
        self,
        root: Path,
        digests: Digests,
        *,
        options: Mapping[str, Any],
        checkpoint: Mapping[str, Any],
        inputs: Mapping[str, FileRecord],
        tools: Mapping[str, str],
    ) -> bool:
        """Whether a run with these options, inputs and tools would make again what lies there."""
        same = (self.options, self.checkpoint, self.inputs, self.tools, self.version) == (
            json.loads(json.dumps(options)),
            json.loads(json.dumps(checkpoint)),
            dict(inputs),
            dict(tools),
            __version__,
        )
        return same and not any(_compare(root / n, record, digests, "") for n, record in self.outputs.items())


def _compare(path: Path, record: FileRecord | None, digests: Digests, made_by: str) -> Problem | None:
    """Say what is wrong with a file, or nothing."""
    if record is None:
        return Problem(f"{path} is not in the manifest", "a file that the stage made", "none of that name", made_by)
    if not path.is_file():
        return Problem(f"{path} is missing", f"{record.size} bytes, sha256 {record.sha256}", "no such file", made_by)
    size = path.stat().st_size
    if size != record.size:
        return Problem(f"{path} is not the file that was made", f"{record.size} bytes", f"{size} bytes", made_by)
    digest = digests.of(path)
    if digest != record.sha256:
        return Problem(f"{path} is not the file that was made", f"sha256 {record.sha256}", f"sha256 {digest}", made_by)
    return None
