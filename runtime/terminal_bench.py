"""Measure how fast a model makes text, and compare it with other ways to run the same weights."""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

import numpy as np
from rich.table import Table

from artifacts.benchmark import heading, markdown, replace_between
from artifacts.checkpoint import Checkpoint
from artifacts.command import DONE, stderr, stdout
from artifacts.errors import refuse
from runtime import options
from runtime.bench import ROUNDS, Row, bandwidth, graph_name, measure, overhead
from runtime.model import Model, RunOptions
from runtime.peers import Subject, genai, ours, transformers
from runtime.settings import Sampling, Settings
from runtime.terminal_generate import loaded

BEGIN, END = "<!-- runtime: written by make bench-runtime -->", "<!-- runtime: end -->"
PROMPTS, NEW = (128, 512), 64
"""Tokens in and out of a comparison."""
TURNS = 5
"""Rounds of a comparison: the same session, alone and at once, was seen 12 % apart in the best of three."""

Section = tuple[str, Sequence[str], list[Sequence[str]]]
"""A title, a header and rows."""


def bench(given: argparse.Namespace) -> int:
    """Measure prompts of several lengths and several texts at once; the best of several rounds counts."""
    sections = list(_sections(given))
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


def _sections(given: argparse.Namespace) -> Iterator[Section]:
    """Yield a section for everything that was asked for."""
    chosen = options.run_options(given)
    speed = bandwidth()
    rows: list[Sequence[str]] = []
    shares: list[Sequence[str]] = []
    for linear in [True, False] if given.plan is None else [True]:
        with loaded(Model(given.model, replace(chosen, linear=linear))) as model:
            batches = given.batches if model.linear else [1]
            for row in measure(model, given.prompts, batches, given.new, speed):
                stderr().print(" ".join(row.cells()))
                rows.append(row.cells())
            shares += _overheads(model)
    yield f"Prompts and texts at once; memory is read at {speed / 1e9:.1f} GB/s", Row.HEADER, list(rows)
    yield "Share of a step outside the session's run", ("graph", "tokens chosen", "share"), list(shares)
    if given.against:
        yield _against(given, chosen)
    if given.streams:
        yield _streams(given, chosen)


def _prompt(model: Model, length: int) -> list[int]:
    found: list[int] = np.random.default_rng(0).integers(0, model.config.vocab_size, length).tolist()
    return found


def _overheads(model: Model) -> Iterator[Sequence[str]]:
    """Yield the share of a step that is ours, greedy and with every limit of sampling."""
    for name, sampling in (
        ("greedily", Sampling()),
        ("by top-k and top-p", Sampling(0.6, top_k=50, top_p=0.95, seed=0)),
    ):
        settings = Settings(sampling, max_tokens=NEW, ignore_stop_ids=True)
        share = min(overhead(model, settings, _prompt(model, max(PROMPTS))) for _ in range(ROUNDS))
        yield graph_name(model), name, f"{share:.1%}"


def _against(given: argparse.Namespace, chosen: RunOptions) -> Section:
    """Compare with others in rounds that take turns."""
    with ExitStack() as stack:
        model = stack.enter_context(loaded(Model(given.model, chosen)))
        concatenated = stack.enter_context(loaded(Model(given.model, replace(chosen, linear=False))))
        subjects = [ours(f"this project, {graph_name(one)}", one) for one in (model, concatenated)]
        checkpoint = Checkpoint.from_identity(model.folder.export_manifest().checkpoint).folder
        if checkpoint is None:
            raise refuse("a random model has no checkpoint that others could load", remedy="leave --against out")
        work = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        for name in given.against:
            subjects.append(
                transformers(checkpoint) if name == "transformers" else genai(checkpoint, model.config, work)
            )
        for length in PROMPTS:
            for _ in range(TURNS):
                for subject in subjects:
                    subject.round(_prompt(model, length), NEW)
    title = f"{NEW} tokens out, in FP32 on the same weights; ratios to the first line of as many tokens in"
    header = ("tokens in", "what", "prefill, tokens/s", "ratio", "decode, tokens/s", "ratio")
    return title, header, [_compared(subject, subjects[0], length) for length in PROMPTS for subject in subjects]


def _compared(subject: Subject, first: Subject, length: int) -> Sequence[str]:
    (prefill, decode), best = subject.best[length], first.best[length]
    speeds = (f"{length / prefill:.0f}", f"{(NEW - 1) / decode:.1f}")
    ratios = (f"1 : {prefill / best[0]:.2f}", f"1 : {decode / best[1]:.2f}")
    return str(length), subject.name, speeds[0], ratios[0], speeds[1], ratios[1]


def _streams(given: argparse.Namespace, chosen: RunOptions) -> Section:
    """Compare many clients of the server with one text through the concatenated graph, in rounds that take turns."""
    from runtime.bench_server import concurrent

    many = []
    with (
        loaded(Model(given.model, replace(chosen, linear=False))) as model,
        loaded(Model(given.model, chosen)) as linear,
    ):
        single = ours("one", model)
        prompts = [_prompt(model, min(PROMPTS))] * given.streams
        for _ in range(TURNS):
            single.round(prompts[0], NEW)
            many.append(concurrent(linear, prompts, NEW))
        title = f"Streams of {len(prompts[0])} tokens in and {NEW} out, at a context of {linear.context}"
    one = (NEW - 1) / single.best[len(prompts[0])][1]
    rows = [
        (f"one, {graph_name(model)}", f"{one:.1f}", "1.00"),
        (f"{given.streams} through the server", f"{max(many):.1f}", f"{max(many) / one:.2f}"),
    ]
    return title, ("streams", "tokens/s in all", "ratio"), list(rows)
