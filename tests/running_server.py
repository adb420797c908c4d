"""A server on a free port of this machine, with the small model or a script in its place."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np

from runtime.continuation import Continuation, Piece
from runtime.model import Model
from runtime.sampling import Logits
from runtime.serve_options import ServeOptions
from runtime.server.app import create_app
from runtime.server.background import in_background
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
    options = options or ServeOptions(slots=4, max_queue=8, chunk=64)
    with Service(model, options) as service, in_background(create_app(service)) as url:
        yield Running(service, url)


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
