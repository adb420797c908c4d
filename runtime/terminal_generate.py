"""Continue a text at the terminal, as it is made."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from contextlib import contextmanager

from artifacts.command import DONE, piped_lines, stderr
from runtime import options
from runtime.model import Model
from runtime.speed import Speed


def generate(given: argparse.Namespace) -> int:
    """Continue a text; the continuation goes to stdout, how fast it was to stderr."""
    prompt = "".join(piped_lines()) if given.prompt == "-" else given.prompt
    model = Model(given.model, options.run_options(given))
    settings = options.settings(given, model.defaults)
    ids = model.tokenizer.encode(prompt, add_special_tokens=True)
    with loaded(model):
        speed = Speed(len(ids))
        for piece in speed.watch(model.generator().stream(ids, settings)):
            print(piece.text, end="", flush=True)
        print()
        stderr().print(f"[dim]{speed}[/]")
    return DONE


@contextmanager
def loaded(model: Model) -> Iterator[Model]:
    """Load a model, and say so while it takes its time."""
    with stderr().status(f"loading {model.folder.name}"):
        model.__enter__()
    try:
        yield model
    finally:
        model.__exit__(None, None, None)
