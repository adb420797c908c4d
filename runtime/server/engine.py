"""The one thread that runs the model; whatever goes wrong in a turn ends that turn's texts and not the server."""

from __future__ import annotations

import logging
import threading

from artifacts.errors import Problem, StageError
from runtime.scheduler import Scheduler

_IDLE_SECONDS = 0.5


class Engine(threading.Thread):
    """Turns the scheduler over while there is something to do, and sleeps while there is not."""

    def __init__(self, scheduler: Scheduler) -> None:
        super().__init__(name="engine", daemon=True)
        self._scheduler = scheduler
        self._stopping = threading.Event()

    def run(self) -> None:
        """Work until `stop`."""
        while not self._stopping.is_set():
            # A thread that dies would leave every client waiting for ever.
            try:
                self._turn()
            except Exception:
                logging.getLogger(__name__).exception("a turn failed, and the cache could not be emptied")
                self._stopping.wait(_IDLE_SECONDS)

    def _turn(self) -> None:
        """Take one turn; what fails in it ends the texts that run."""
        try:
            if not self._scheduler.step():
                self._scheduler.wait(_IDLE_SECONDS)
        except Exception as error:
            logging.getLogger(__name__).exception("a turn failed")
            self._scheduler.fail(StageError(Problem("the model failed", found=f"{type(error).__name__}: {error}")))

    def stop(self) -> None:
        """End after the turn that runs now."""
        self._stopping.set()
        self.join()
