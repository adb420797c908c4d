"""What a validation reads, and whether it is what the earlier stages made: digests first, work after."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from artifacts.checkpoint import Checkpoint
from artifacts.config import ModelConfig
from artifacts.contract import Form
from artifacts.digest import Digests
from artifacts.errors import refuse
from artifacts.layout import ModelFolder
from artifacts.manifest import FileRecord, Manifest
from validate.certificate import SHIFT
from validate.scenarios import SHORT


@dataclass(frozen=True)
class Inputs:
    """A model's folder whose files are the ones that its manifests name.

    Attributes:
        records: every file that the verdict depends on, by its path relative to the model's folder.
    """

    folder: ModelFolder
    config: ModelConfig
    checkpoint: Checkpoint
    identity: Mapping[str, object]
    digests: Digests
    records: Mapping[str, FileRecord]


def open_inputs(root: Path) -> Inputs:
    """Open a model's folder.

    Raises:
        StageError: a stage has not run, a file is another than its manifest says, surgery worked from another export,
            the checkpoint is not the one that was exported, or the model has too few positions.
    """
    folder = ModelFolder(root)
    digests = folder.digests()
    exported, fused = folder.export_manifest(), folder.surgery_manifest()
    exported.check_outputs(root, digests, made_by=folder.command("export"))
    fused.check_outputs(root, digests, made_by=folder.command("surgery"))
    folder.check_descent(exported, fused)
    config = folder.config()
    if config.max_positions < SHORT + SHIFT:
        raise refuse(
            f"{root} has too few positions to be validated",
            expected=f"at least {SHORT + SHIFT}, for the NoPE certificate",
            found=str(config.max_positions),
            remedy="export a model with more positions",
        )
    checkpoint = _same_checkpoint(folder, exported, digests)
    records = {**exported.outputs, **fused.outputs, **_plans(folder, digests)}
    missing = [name for form in Form if (name := folder.relative(folder.graph(form, twin=True))) not in records]
    if missing:
        raise refuse(
            "the FP32 twins are not in the manifests", found=", ".join(missing), remedy=folder.command("surgery")
        )
    return Inputs(folder, config, checkpoint, exported.checkpoint, digests, records)


def _same_checkpoint(folder: ModelFolder, exported: Manifest, digests: Digests) -> Checkpoint:
    """Open the checkpoint that was exported and insist that its files are the same still."""
    checkpoint = Checkpoint.from_identity(exported.checkpoint)
    now = checkpoint.identity(digests)
    if now == dict(exported.checkpoint):
        return checkpoint
    before, after = exported.checkpoint.get("files", {}), now.get("files", {})
    changed = sorted(name for name in {*before, *after} if before.get(name) != after.get(name))
    raise refuse(
        "the checkpoint is not the one that was exported",
        expected=f"{exported.checkpoint.get('origin')} with the digests in {folder.onnx / 'export.manifest.json'}",
        found=f"another {', '.join(changed) or 'revision'}",
        remedy=folder.command("export"),
    )


def _plans(folder: ModelFolder, digests: Digests) -> dict[str, FileRecord]:
    """Record every file of every plan's folder that its state depends on."""
    files = sorted((folder.root / "build").glob("*/[!.]*"))
    return {folder.relative(path): FileRecord.of(path, digests) for path in files if path.is_file()}
