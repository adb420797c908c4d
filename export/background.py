"""The weights are written in a thread while the model is traced: one works on disk and hashes, the other in Python.

On two cores the 3B model's export takes as long as its trace; one after the other, it took half a minute more.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

from artifacts.checkpoint import Checkpoint
from export import data_file
from export.data_file import Rounding
from export.progress import Progress


@contextmanager
def weights_being_written(
    path: Path, checkpoint: Checkpoint, progress: Progress
) -> Iterator[Future[tuple[str, Rounding]]]:
    """Write `model.onnx_data` while the block runs; an error in the block stops it at the next tensor.

    Yields:
        What will hold the file's sha256 and the account of rounding, or the error that ended the writing.
    """
    stopped = threading.Event()

    def advance(written: int) -> None:
        if stopped.is_set():
            raise InterruptedError("the export ended before its weights were written")
        progress.advance(written)

    slots = data_file.plan(checkpoint.config)
    progress.begin_weights(sum(slot.length for slot in slots.values()))
    with ThreadPoolExecutor(max_workers=1) as pool:
        future = pool.submit(data_file.write, path, slots, checkpoint.weights(), advance)
        try:
            yield future
        except BaseException:
            stopped.set()
            raise
