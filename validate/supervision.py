"""Run the runners one after another, each in a process of its own, and say clearly what became of one that died."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Container, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from rich.console import Console

from artifacts.command import COULD_NOT
from artifacts.config import ModelConfig
from artifacts.doctor import memory_available, memory_limit
from artifacts.errors import Problem, StageError, refuse
from validate.findings import Findings
from validate.layers import LayerFindings
from validate.runners import RUNNERS, Role, Runner
from validate.worker import LAYERS, Order

GIB = 1 << 30
ROOT = Path(__file__).parent.parent
TAIL = 12
"""Lines of a dead worker's stderr that its message quotes."""


def run_all(order: Order, config: ModelConfig, console: Console, left_out: Container[str] = ()) -> list[Findings]:
    """Run every runner in the list's order, but those that are left out.

    Raises:
        StageError: a runner needs more memory than is free, was killed, or could not do it.
    """
    found = []
    wanted = [runner for runner in RUNNERS if runner.name not in left_out]
    for number, runner in enumerate(wanted, 1):
        check_memory(runner, config)
        findings = supervise(order, runner, console, f"{number}/{len(wanted)} {runner.name}")
        took = sum(findings.seconds.values())
        verdict = "problems" if findings.problems else runner.role.value
        console.print(
            f"validate: {number}/{len(wanted)} {runner.name}: {verdict}, "
            f"{took:.0f} s, {findings.peak_bytes / GIB:.1f} GiB"
        )
        found.append(findings)
    return found


def check_memory(runner: Runner, config: ModelConfig) -> None:
    """Refuse before the machine does: a runner whose weights do not fit would be killed after minutes."""
    needed = runner.memory(config)
    free = memory_available()
    if free < needed:
        raise refuse(
            f"{runner.name} does not fit into memory",
            expected=f"about {needed / GIB:.1f} GiB free",
            found=f"{free / GIB:.1f} GiB free",
            remedy="end other programs, or validate on a machine with more memory",
        )


def supervise(order: Order, runner: Runner, console: Console, label: str) -> Findings:
    """Run one runner and read its findings."""
    return Findings.from_json(attend(order, runner.name, console, label))


def run_layers(order: Order, config: ModelConfig, console: Console) -> LayerFindings:
    """Compare layer by layer; one FP32 twin is in memory at a time.

    Raises:
        StageError: it needs more memory than is free, was killed, or could not be done.
    """
    check_memory(Runner(LAYERS, Role.JUDGED), config)
    begun = time.monotonic()
    found = LayerFindings.from_json(attend(order, LAYERS, console, "layer by layer"))
    verdict = "right" if found.verdict else "problems"
    console.print(f"validate: layer by layer: {verdict}, {time.monotonic() - begun:.0f} s")
    return found


def attend(order: Order, name: str, console: Console, label: str) -> Any:
    """Let a worker carry out its part of an order and give the JSON that it wrote."""
    # Not in the order's folder: on a disk that is full its last words would be lost.
    with tempfile.TemporaryFile("w+", errors="replace") as stderr, _worker(order, name, stderr.fileno()) as process:
        with console.status(f"{label}: loading") as status:
            assert process.stdout is not None
            for line in process.stdout:
                done, _, total = line.strip().partition(" ")
                status.update(f"{label}: {done} of {total} parts")
        code = process.wait()
        if code == 0:
            return json.loads(order.findings(name).read_text(encoding="utf-8"))
        stderr.seek(0)
        raise death(name, code, stderr.read())


@contextmanager
def _worker(order: Order, name: str, stderr: int) -> Iterator[subprocess.Popen[str]]:
    """Start a worker, and end it if this process is interrupted before it is done."""
    command = [sys.executable, "-m", "validate.worker", str(order.path), name]
    path = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")]))
    environment = {**os.environ, "PYTHONPATH": path}
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=stderr, text=True, env=environment)
    try:
        yield process
    finally:
        if process.poll() is None:
            process.kill()
            process.wait()


def death(name: str, code: int, errors: str) -> StageError:
    """Say what became of a worker that did not end well.

    Args:
        name: what ran.
        code: exit code; negative if a signal ended it.
        errors: its stderr.
    """
    said = errors.find("error: ")
    if code == COULD_NOT and said >= 0 and "Traceback" not in errors:
        # A refusal has said all that there is to say.
        return StageError(Problem(errors[said:].removeprefix("error: ").strip()))
    memory = f"free memory (the machine has {memory_limit() / GIB:.1f} GiB), then run it again"
    tail = "\n".join(errors.strip().splitlines()[-TAIL:])
    if code < 0:
        ended = signal.Signals(-code).name
        reason = ", which is what the system does when memory runs out" if -code == signal.SIGKILL else ""
        return refuse(f"{name} was ended by {ended}{reason}", found=tail, remedy=memory)
    if any(sign in errors for sign in ("MemoryError", "bad_alloc", "not enough memory", "Failed to allocate memory")):
        return refuse(f"{name} ran out of memory", found=tail, remedy=memory)
    if any(sign in errors for sign in ("No space left on device", "Disk quota exceeded")):
        return refuse(
            f"{name} could not write its results",
            expected="room for 0.7 MB a token of SmolLM3-3B, beside the report",
            found=tail,
            remedy="free space or set OUT to a larger disk",
        )
    return refuse(
        f"{name} could not be examined (exit code {code})",
        expected="exit code 0",
        found=tail,
        remedy="make the graphs again (make export surgery), or report it with these lines",
    )
