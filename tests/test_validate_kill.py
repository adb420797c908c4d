"""A validation that is killed takes its worker with it, and the next run sweeps up what it left."""

import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

from artifacts.layout import ModelFolder
from validate import validation

ROOT = Path(__file__).parent.parent


@pytest.mark.slow
def test_a_killed_run_leaves_no_worker_and_the_next_one_completes(fused: ModelFolder, tmp_path: Path) -> None:
    """Needs half a minute: the worker finds out that nobody listens when it has loaded its model; then a whole run."""
    folder = ModelFolder(tmp_path / fused.name)
    shutil.copytree(fused.root, folder.root)
    command = [sys.executable, "-m", "validate", str(folder.root)]
    process = subprocess.Popen(command, cwd=ROOT, stderr=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
    while not (workers := psutil.Process(process.pid).children()):
        assert process.poll() is None
        time.sleep(0.05)
    process.send_signal(signal.SIGKILL)
    process.wait()
    gone, alive = psutil.wait_procs(workers, timeout=120)
    assert (len(gone), alive) == (1, [])
    left = [path.name for path in (folder.root / "validate").iterdir()]
    assert len(left) == 1
    assert left[0].startswith(validation._WORK)
    assert validation.validate(folder.root).verdict
    assert not [path.name for path in (folder.root / "validate").iterdir() if path.name.startswith(validation._WORK)]
