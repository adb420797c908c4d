"""Where everything of one model lies: `OUT/<model>/` and the names in it.

::

    onnx/               one folder for every graph, because they share one data file
      model.onnx_data     all weights, once: the checkpoint's BF16 bits, written by export, never touched again
      rotary.onnx_data    cos and sin tables, BF16 and FP32, made by the checkpoint's rotary module in export
      export.onnx         the raw export
      model.onnx          fused, concatenated cache, logits of the last position
      model_linear.onnx   fused, linear cache
      model_all.onnx      fused, concatenated cache, logits of every position
      *_fp32.onnx         the FP32 twin of each of the four
      config.json  generation_config.json  tokenizer files  chat_template.jinja
      export.manifest.json  surgery.manifest.json
    build/<target>/     model.plan  network.json  trtexec.txt  build.log  manifest.json
    validate/<target>/  report.json  report.html  plots/  manifest.json  polygraphy/<piece>/ (make debug)
"""

from __future__ import annotations

import json
import re
import shlex
from dataclasses import dataclass
from pathlib import Path

from artifacts.config import ModelConfig
from artifacts.contract import Form
from artifacts.digest import Digests
from artifacts.errors import Problem, StageError, refuse
from artifacts.manifest import Manifest

DATA_FILE = "model.onnx_data"
ROTARY_FILE = "rotary.onnx_data"
DEFAULT_OUT = Path("artifacts/out")


@dataclass(frozen=True)
class ModelFolder:
    """One model's folder, `OUT/<model>/`: paths, and the manifests that tell what is in it."""

    root: Path

    @property
    def name(self) -> str:
        """The model's short name."""
        return self.root.name

    @property
    def onnx(self) -> Path:
        """The folder of every graph."""
        return self.root / "onnx"

    def graph(self, form: Form, *, twin: bool = False) -> Path:
        """Path of one graph."""
        return self.onnx / form.file_name(twin=twin)

    def target(self, stage: str, target: str) -> Path:
        """Folder of one plan (`build`) or one report (`validate`)."""
        return self.root / stage / target

    def relative(self, path: Path) -> str:
        """Path as manifests spell it, relative to the model's folder."""
        return path.relative_to(self.root).as_posix()

    def digests(self) -> Digests:
        """The memory of digests of this model's files."""
        return Digests(self.root)

    def config(self) -> ModelConfig:
        """The model's facts, from the config that export put beside the graphs.

        Raises:
            StageError: there is no model here, or its config cannot be used.
        """
        if not (self.onnx / "config.json").is_file():
            raise refuse(
                f"{self.root} holds no model",
                expected="OUT/<model>, a folder that make export and make surgery have filled",
                found=f"no {self.onnx / 'config.json'}",
                remedy=self.command("surgery"),
            )
        return ModelConfig.read(self.onnx)

    def command(self, stage: str) -> str:
        """Spell the Make command that runs a stage on this model again, as a shell takes it, for messages."""
        try:
            text = (self.onnx / "export.manifest.json").read_text(encoding="utf-8")
            checkpoint = json.loads(text)["checkpoint"]
            model, revision = str(checkpoint["origin"]), checkpoint.get("revision")
        except (OSError, ValueError, KeyError, TypeError, AttributeError):
            model, revision = "<the checkpoint>", None
        root = self.root if self.root.name.strip(".") else self.root.resolve()
        given = {"MODEL": model, "NAME": root.name, "OUT": str(root.parent)}
        given |= {"REVISION": revision} if revision else {}
        # Make reads a dollar sign before the shell does.
        return f"make {stage} " + " ".join(
            f"{name}={shlex.quote(value).replace('$', '$$')}" for name, value in given.items()
        )

    def export_manifest(self) -> Manifest:
        """What export made; refused with the command that makes it if it is not there."""
        return Manifest.read(self.onnx / "export.manifest.json", made_by=self.command("export"))

    def surgery_manifest(self) -> Manifest:
        """What surgery made; refused with the command that makes it if it is not there."""
        return Manifest.read(self.onnx / "surgery.manifest.json", made_by=self.command("surgery"))

    def check_descent(self, exported: Manifest, fused: Manifest) -> None:
        """Insist that surgery read what export made last.

        Raises:
            StageError: every file that has changed since, or another checkpoint.
        """
        problems = [
            Problem(
                f"the fused graphs are older than the export: {name} has changed since",
                f"sha256 {record.sha256}, from which they were made",
                f"sha256 {exported.outputs[name].sha256}",
                self.command("surgery"),
            )
            for name, record in fused.inputs.items()
            if name in exported.outputs and exported.outputs[name] != record
        ]
        if fused.checkpoint != exported.checkpoint:
            what = "the fused graphs are of another checkpoint than the export"
            titles = [
                f"{made.checkpoint.get('origin')} {made.checkpoint.get('revision')}" for made in (exported, fused)
            ]
            problems.insert(0, Problem(what, titles[0], titles[1], self.command("surgery")))
        if problems:
            raise StageError(problems)


def short_name(model: str) -> str:
    """Derive `<model>` from a name, a hub id, a checkpoint folder or `random:<preset>`: its last part, in lower case.

    >>> short_name("HuggingFaceTB/SmolLM3-3B"), short_name("random:tiny"), short_name("runs/My Model/")
    ('smollm3-3b', 'random-tiny', 'my-model')
    """
    last = model.replace(":", "-") if model.startswith("random:") else Path(model).resolve().name
    return check_name(re.sub(r"[^a-z0-9._-]+", "-", last.lower()).strip("-."))


def check_name(name: str) -> str:
    """Insist that a model's name is one plain folder name.

    Raises:
        StageError: it is empty, hidden, or leaves the output folder.
    """
    if not re.fullmatch(r"[A-Za-z0-9_][A-Za-z0-9._-]*", name):
        raise refuse(
            "the model's name is no plain folder name",
            expected="letters, digits, '.', '_' and '-', not beginning with '.' or '-'",
            found=repr(name),
            remedy="give another NAME (--name)",
        )
    return name
