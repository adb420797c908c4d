"""One runner in a process of its own: `python -m validate.worker ORDER RUNNER`, where ORDER is a JSON file.

Instead of a runner's name `layers` may stand, for the comparison layer by layer.

It prints `done total` on stdout as it goes, and writes its findings beside the order. A process of its own gives all
its memory back, and takes nothing with it when it is killed.
"""

from __future__ import annotations

import ctypes
import json
import resource
import signal
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from artifacts.checkpoint import Checkpoint
from artifacts.command import DONE, run
from artifacts.layout import ModelFolder
from validate.exam import Paper
from validate.examination import Examination
from validate.layers import NAMED
from validate.reference import Reference
from validate.runners import RUNNERS

LAYERS = "layers"
PR_SET_PDEATHSIG = 1
"""Of Linux's prctl(2): the signal that a process gets when its parent ends."""
SMALL = 1 << 25
"""Parameters below which handing work to a second thread costs PyTorch more than the work: measured, 0.9 s instead of
0.01 s a call on a machine whose two cores are busy."""


@dataclass(frozen=True)
class Order:
    """What every worker of one validation is told; it lies in the folder that results go to.

    Attributes:
        root: the model's folder.
        checkpoint: the checkpoint's identity.
        prompt: token ids of the prompt.
        tokens: how many tokens continue it.
        layers: which tensors are compared layer by layer (see `validate.layers.compare`).
        brief: whether the comparison layer by layer leaves out what costs a large model minutes.
        paper: the exam's questions and a text.
    """

    folder: Path
    root: Path
    checkpoint: dict[str, Any]
    prompt: tuple[int, ...]
    tokens: int
    layers: str = NAMED
    brief: bool = False
    paper: Paper = field(default_factory=Paper)

    @property
    def path(self) -> Path:
        """The order's file."""
        return self.folder / "order.json"

    def findings(self, runner: str) -> Path:
        """Where a runner's findings go."""
        return self.folder / f"{runner}.json"

    def write(self) -> None:
        """Write the order's file."""
        raw = {"root": str(self.root), "checkpoint": self.checkpoint, "prompt": self.prompt, "tokens": self.tokens}
        raw |= {"layers": self.layers, "brief": self.brief, "paper": self.paper.to_json()}
        self.path.write_text(json.dumps(raw), encoding="utf-8")

    @classmethod
    def read(cls, path: Path) -> Order:
        """Read an order's file."""
        raw = json.loads(path.read_text(encoding="utf-8"))
        root, prompt, paper = Path(raw["root"]), tuple(raw["prompt"]), Paper.from_json(raw["paper"])
        return cls(path.parent, root, raw["checkpoint"], prompt, raw["tokens"], raw["layers"], raw["brief"], paper)


def main(arguments: Sequence[str]) -> int:
    """Carry out an order for one runner."""
    _end_with_parent()
    order = Order.read(Path(arguments[0]))
    if arguments[1] == LAYERS:
        return compare_layers(order)
    runner = next(runner for runner in RUNNERS if runner.name == arguments[1])
    folder = ModelFolder(order.root)
    examination = Examination(folder.config(), order.prompt, order.tokens, Reference(order.folder), order.paper)
    if (runner.form is None or runner.network) and examination.config.num_parameters < SMALL:
        _use_one_thread()
    begun = time.monotonic()
    with runner.open(folder, Checkpoint.from_identity(order.checkpoint)) as session:
        loaded = time.monotonic()
        findings = examination.run(runner, session, tell)
    findings.seconds = {"load": loaded - begun, "run": time.monotonic() - loaded}
    findings.peak_bytes = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    order.findings(runner.name).write_text(json.dumps(findings.to_json(), allow_nan=False), encoding="utf-8")
    return DONE


def compare_layers(order: Order) -> int:
    """Carry out an order for the comparison layer by layer."""
    from validate.layers.compare import STEPS, Graphs, compare

    folder = ModelFolder(order.root)
    config = folder.config()
    if config.num_parameters < SMALL:
        _use_one_thread()
    graphs = Graphs.of(folder)
    found = compare(config, graphs, order.folder, order.layers, lambda step: tell(step, STEPS), brief=order.brief)
    order.findings(LAYERS).write_text(json.dumps(found.to_json(), allow_nan=False), encoding="utf-8")
    return DONE


def tell(done: int, total: int) -> None:
    """Say how far it is; a parent that is gone ends this process here."""
    print(done, total, flush=True)


def _end_with_parent() -> None:
    """Let Linux end this process when the one that started it is killed: it may hold gigabytes."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)


def _use_one_thread() -> None:
    import torch

    torch.set_num_threads(1)


if __name__ == "__main__":
    run(main, sys.argv[1:])
