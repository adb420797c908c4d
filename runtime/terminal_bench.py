"""Measure how fast a model makes text, and compare it with other ways to run the same weights."""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
from rich.table import Table

from artifacts.benchmark import heading, markdown, replace_between
from artifacts.command import DONE, stderr, stdout
from artifacts.errors import StageError, refuse
from runtime import options
from runtime.bench import ROUNDS, Row, bandwidth, measure, overhead
from runtime.model import Model
from runtime.peers import Subject, ours, peer
from runtime.settings import Sampling, Settings
from runtime.terminal_generate import loaded

BEGIN, END = "<!-- runtime: written by make bench-runtime -->", "<!-- runtime: end -->"
PROMPTS, NEW = (128, 512), 64
"""Tokens in and out of a comparison."""
TURNS = 5
"""Rounds of a comparison; with three, two copies of the same session were seen 12 % apart."""

Section = tuple[str, Sequence[str], list[Sequence[str]]]
"""A title, a header and rows."""


def bench(given: argparse.Namespace) -> int:
    """Measure prompts of several lengths and several texts at once; the best of several rounds counts."""
    model = Model(given.model, options.run_options(given))
    if model.linear:
        model.check_shared(max([*given.batches, given.streams, 1]))
    if given.write and not given.write.is_file():
        raise refuse(
            f"there is no document {given.write}",
            expected=f"a file; the tables go between {BEGIN} and {END}",
            found="no such file",
            remedy="correct --write, or leave it out",
        )
    with loaded(model):
        sections = list(_sections(model, given))
    for title, header, rows in sections:
        table = Table(*header, title=title, title_justify="left")
        for row in rows:
            table.add_row(*row)
        stdout().print(table)
    if given.write:
        texts = [f"{title}\n\n{markdown(header, rows)}" for title, header, rows in sections]
        body = "\n\n".join([heading(given.model.name), *texts])
        replace_between(given.write, BEGIN, END, body)
    return DONE


def _sections(model: Model, given: argparse.Namespace) -> Iterator[Section]:
    """Yield a section for everything that was asked for and that fits into the context."""
    speed = bandwidth()
    rows = []
    for row in measure(model, given.prompts, given.batches if model.linear else [1], given.new, speed):
        stderr().print(" ".join(row.cells()))
        rows.append(row.cells())
    yield f"Prompts and texts at once; memory is read at {speed / 1e9:.1f} GB/s", Row.HEADER, list(rows)
    lengths = [length for length in PROMPTS if length + NEW <= model.context]
    if lengths:
        yield "Share of a step outside the session's run", ("tokens chosen", "share"), _overheads(model, max(lengths))
    if lengths and given.against:
        yield _against(model, given.against, lengths)
    if lengths and given.streams:
        yield _streams(model, given.streams, min(lengths))


def _prompt(model: Model, length: int) -> list[int]:
    found: list[int] = np.random.default_rng(0).integers(0, model.config.vocab_size, length).tolist()
    return found


def _overheads(model: Model, length: int) -> list[Sequence[str]]:
    """Give the share of a step that is ours, greedy and with every limit of sampling."""
    rows = []
    for name, sampling in (
        ("greedily", Sampling()),
        ("by top-k and top-p", Sampling(0.6, top_k=50, top_p=0.95, seed=0)),
    ):
        settings = Settings(sampling, max_tokens=NEW, ignore_stop_ids=True)
        share = min(overhead(model, settings, _prompt(model, length)) for _ in range(ROUNDS))
        rows.append((name, f"{share:.1%}"))
    return [*rows]


def _against(model: Model, names: Sequence[str], lengths: Sequence[int]) -> Section:
    """Compare with others in rounds that take turns; one that cannot run this model is left out, with the reason."""
    with tempfile.TemporaryDirectory() as work:
        subjects = [ours("this project", model)]
        for name in names:
            try:
                subjects.append(peer(name, model, Path(work)))
            except StageError as error:
                stderr().print(f"{name} is left out: {error}", markup=False)
        for length in lengths:
            for _ in range(TURNS):
                for subject in subjects:
                    subject.round(_prompt(model, length), NEW)
    title = f"{NEW} tokens out, in FP32 on the same weights; ratios to the first line of as many tokens in"
    header = ("tokens in", "what", "prefill, tokens/s", "ratio", "decode, tokens/s", "ratio")
    return title, header, [_compared(subject, subjects[0], length) for length in lengths for subject in subjects]


def _compared(subject: Subject, first: Subject, length: int) -> Sequence[str]:
    (prefill, decode), best = subject.best[length], first.best[length]
    speeds = (f"{length / prefill:.0f}", f"{(NEW - 1) / decode:.1f}")
    ratios = (f"1 : {prefill / best[0]:.2f}", f"1 : {decode / best[1]:.2f}")
    return str(length), subject.name, speeds[0], ratios[0], speeds[1], ratios[1]


def _streams(model: Model, count: int, length: int) -> Section:
    """Compare many clients of the server with one text, in rounds that take turns."""
    from runtime.bench_server import concurrent

    single, many = ours("one", model), []
    prompts = [_prompt(model, length)] * count
    for _ in range(TURNS):
        single.round(prompts[0], NEW)
        many.append(concurrent(model, prompts, NEW))
    one = (NEW - 1) / single.best[length][1]
    title = f"Streams of {length} tokens in and {NEW} out, at a context of {model.context}"
    rows = [
        ("one, without the server", f"{one:.1f}", "1.00"),
        (f"{count} through the server", f"{max(many):.1f}", f"{max(many) / one:.2f}"),
    ]
    return title, ("streams", "tokens/s in all", "ratio"), list(rows)
