"""Before a plan is opened, all that can be known without opening it is checked: file, graph, TensorRT, GPU.

TensorRT's own answer to a plan that does not fit is an error code and a line in its log. This says what the plan is
for, what is here, and which command makes one that fits.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from artifacts.backend import Backend
from artifacts.contract import Form
from artifacts.doctor import Gpu
from artifacts.errors import Problem, StageError, refuse
from artifacts.layout import ModelFolder
from artifacts.manifest import Manifest

PLAN, MANIFEST = "model.plan", "manifest.json"


class PlanFile:
    """A plan in its folder `build/<target>/`, whose manifest was read.

    Raises:
        StageError: there is no such plan; the message lists those that there are.
    """

    def __init__(self, folder: ModelFolder, target: str) -> None:
        self.folder = folder
        self.directory = folder.target("build", target)
        if not (self.directory / MANIFEST).is_file():
            there = sorted(path.parent.name for path in (folder.root / "build").glob(f"*/{MANIFEST}"))
            raise refuse(
                f"{folder.name} has no plan {target!r}",
                expected=f"one of {there}" if there else "a plan made by build",
                found="no such folder",
                remedy=f"{self.build_command} (its table names the target)",
            )
        self.manifest = Manifest.read(self.directory / MANIFEST, made_by=self.build_command)

    @property
    def path(self) -> Path:
        """The engine's file."""
        return self.directory / PLAN

    @property
    def build_command(self) -> str:
        """The command that makes plans of this model."""
        return f"python -m build {self.folder.root}"

    @property
    def backend(self) -> Backend:
        """The TensorRT that runs it."""
        return Backend(self.manifest.facts["backend"])

    @property
    def form(self) -> Form:
        """The graph that it was made from."""
        return Form(self.manifest.facts["form"])

    @property
    def capacity(self) -> int | None:
        """Slots of its linear cache, if it has one."""
        slots: int | None = self.manifest.facts["capacity"]
        return slots

    @property
    def context(self) -> int:
        """Most tokens of a row."""
        return int(self.manifest.facts["max_context"])

    @property
    def chunk(self) -> int:
        """Most new tokens of a step."""
        return int(self.manifest.facts["prefill_chunk"])

    @property
    def rows(self) -> int:
        """Most rows of a step."""
        return int(self.manifest.options["max_batch_size"])

    def check(self, gpus: list[Gpu], version: str | None = None) -> None:
        """Insist that the plan can be opened here.

        Args:
            gpus: the GPUs of this machine.
            version: the version of the plan's TensorRT that is installed; looked up if not given.

        Raises:
            StageError: everything that stands against it.
        """
        problems = [*self._judge_files(), *self._judge_machine(gpus, version or self.backend.version)]
        if problems:
            raise StageError(problems)

    def _judge_files(self) -> Iterator[Problem]:
        """Yield whether the plan is the one that was made, and from the graph that lies there now."""
        digests = self.folder.digests()
        name = self.folder.relative(self.path)
        try:
            self.manifest.check_outputs(self.folder.root, digests, made_by=self.build_command, only=[name])
        except StageError as error:
            yield from error.problems
        graph = f"onnx/{self.form.file_name()}"
        made, now = self.manifest.inputs.get(graph), self.folder.surgery_manifest().outputs.get(graph)
        if made is None or now is None or made.sha256 != now.sha256:
            yield Problem(
                f"the plan {self.directory.name} was made from another {graph}",
                f"sha256 {now.sha256 if now else 'of a graph that surgery made'}",
                f"sha256 {made.sha256 if made else 'of none'}",
                self.build_command,
            )

    def _judge_machine(self, gpus: list[Gpu], version: str) -> Iterator[Problem]:
        """Yield whether this machine has the TensorRT and the GPU that the plan is for."""
        wanted = str(self.manifest.facts["tensorrt_version"])
        if version != wanted and not self.manifest.options["version_compatible"]:
            yield Problem(
                f"the plan {self.directory.name} is for another version of {self.backend.value}",
                wanted,
                version,
                f"{self.build_command}, or install {self.backend.value}=={wanted}",
            )
        capabilities = list(self.manifest.facts["compute_capabilities"])
        here = [gpu.compute_capability for gpu in gpus]
        if not set(here) & set(capabilities) and self.manifest.options["hardware_compatibility_level"] in (
            None,
            "none",
        ):
            yield Problem(
                f"no GPU here runs the plan {self.directory.name}",
                f"compute capability {', '.join(capabilities)}",
                ", ".join(f"{gpu.name} ({gpu.compute_capability})" for gpu in gpus) or "no NVIDIA GPU",
                f"{self.build_command} --compute-capability {' '.join(here) or '<yours>'}, or run without --plan",
            )
