"""A server on a free port of this machine, with the small model or a script in its place."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
import uvicorn

from runtime.continuation import Continuation, Piece
from runtime.model import Model
from runtime.sampling import Logits
from runtime.serve_options import ServeOptions
from runtime.server.app import create_app
from runtime.server.service import Service

END = 503
"""`<|im_end|>` of the test tokenizer."""


@dataclass
class Running:
    """A server that answers."""

    service: Service
    url: str


@contextmanager
def serving(model: Model, options: ServeOptions | None = None) -> Iterator[Running]:
    """Serve an entered model until the end of the block."""
    with Service(model, options or ServeOptions(slots=4, max_queue=8, chunk=64)) as service:
        server = uvicorn.Server(uvicorn.Config(create_app(service), "127.0.0.1", 0, log_level="error"))
        thread = threading.Thread(target=server.run, daemon=True)
        thread.start()
        while not server.started:
            time.sleep(0.01)
        port = server.servers[0].sockets[0].getsockname()[1]
        try:
            yield Running(service, f"http://127.0.0.1:{port}")
        finally:
            server.should_exit = True
            thread.join()


def scripted(model: Model, answers: Sequence[str]) -> type[Continuation]:
    """Give a kind of text that says prepared answers, one after the other, whatever the prompt says.

    Only the choice of tokens is replaced: the model runs, and nobody looks at its logits.
    """
    left = [model.tokenizer.encode(text, add_special_tokens=False) for text in answers]

    class Scripted(Continuation):
        def __init__(self, *arguments: Any, **options: Any) -> None:
            super().__init__(*arguments, **options)
            self._say = [*left.pop(0), END]

        def take(self, logits: Logits) -> Piece:
            wanted = np.zeros_like(logits)
            wanted[self._say.pop(0)] = 20
            return super().take(wanted)

    return Scripted
