"""How fast a model runs, beside the limit that the machine's memory sets: a decode step reads every weight once.

Everything is measured in one run, and the best of several rounds counts: a shared machine only ever makes a round
slower.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import numpy as np

from artifacts.config import ModelConfig
from runtime.cache import Cache
from runtime.linear_cache import LinearCache
from runtime.memory import BindableSession, Bound, Memory
from runtime.model import Model
from runtime.settings import Settings

FP32 = 4
ROUNDS = 3


@dataclass(frozen=True)
class Row:
    """One line of the table.

    Attributes:
        context: tokens of each prompt.
        batch: texts at once.
        first: seconds from nothing to the first token of one text.
        prefill: tokens of the prompt a second.
        decode: new tokens a second, all texts together.
        limit: the decode speed at which memory could be read no faster.
    """

    context: int
    batch: int
    first: float
    prefill: float
    decode: float
    limit: float

    HEADER = ("context", "batch", "first token, s", "prefill, tokens/s", "decode, tokens/s", "memory's limit")

    def cells(self) -> tuple[str, ...]:
        """The line as text."""
        share = f"{self.limit:.0f} ({self.decode / self.limit:.0%})"
        numbers = (f"{self.first:.2f}", f"{self.prefill:.0f}", f"{self.decode:.1f}", share)
        return (str(self.context), str(self.batch), *numbers)


def bandwidth() -> float:
    """Bytes a second that this machine reads from memory: a matrix too large for its caches times a vector."""
    matrix, vector = np.ones((16384, 8192), np.float32), np.ones(8192, np.float32)
    seconds = []
    for _ in range(5):
        begin = time.perf_counter()
        matrix @ vector
        seconds.append(time.perf_counter() - begin)
    return matrix.nbytes / min(seconds)


def decode_limit(config: ModelConfig, context: int, batch: int, bytes_a_second: float) -> float:
    """Give the tokens a second at which weights and caches in FP32 can be read no faster."""
    cache = context * config.num_hidden_layers * 2 * config.num_key_value_heads * config.head_dim
    return batch * bytes_a_second / (FP32 * (config.num_parameters + batch * cache))


def measure(model: Model, contexts: Sequence[int], batches: Sequence[int], new: int, speed: float) -> Iterator[Row]:
    """Measure an entered model.

    Args:
        model: the one to measure.
        contexts: tokens of the prompts; those that leave no room for the new ones are left out.
        batches: texts at once.
        new: tokens that each text gets.
        speed: see `bandwidth`.
    """
    for batch in batches:
        cache = model.cache(rows=batch)
        for context in contexts:
            if context + new > model.context:
                continue
            rounds = [_round(cache, context, batch, new, model.config.vocab_size) for _ in range(ROUNDS)]
            first, decode = (min(values) for values in zip(*rounds, strict=True))
            limit = decode_limit(model.config, context, batch, speed)
            yield Row(context, batch, first, context / first, batch * (new - 1) / decode, limit)
        del cache


def _round(cache: Cache, context: int, batch: int, new: int, vocabulary: int) -> tuple[float, float]:
    """Give seconds of one prompt, and of all further tokens."""
    random = np.random.default_rng(0)
    prompts = random.integers(0, vocabulary, (batch, context)).tolist()
    begin = time.perf_counter()
    for row, prompt in enumerate(prompts):
        cache.keep(row, 0)
        for start in range(0, context, cache.chunk):
            cache.extend(row, prompt[start : start + cache.chunk])
    first = (time.perf_counter() - begin) / batch
    begin = time.perf_counter()
    for token in range(new - 1):
        if isinstance(cache, LinearCache):
            cache.step(dict.fromkeys(range(batch), token))
        else:
            cache.extend(0, [token])
    return first, time.perf_counter() - begin


def overhead(model: Model, settings: Settings, prompt: Sequence[int]) -> float:
    """Give the share of a step that is spent outside the session's run: cache, choice of token, text."""
    with _timed(model.session) as spent:
        stream = model.generator().stream(prompt, settings)
        next(stream)
        begin, before = time.perf_counter(), spent[0]
        for _ in stream:
            pass
        whole = time.perf_counter() - begin
    return 1 - (spent[0] - before) / whole


@contextmanager
def _timed(session: BindableSession) -> Iterator[list[float]]:
    """Add up the seconds that a session runs inside the block."""
    spent = [0.0]
    bind = session.bind

    class Timed:
        def __init__(self, bound: Bound) -> None:
            self._bound = bound

        def run(self) -> None:
            begin = time.perf_counter()
            self._bound.run()
            spent[0] += time.perf_counter() - begin

    def timed(tensors: Mapping[str, Memory]) -> Bound:
        return Timed(bind(tensors))

    session.bind = timed  # type: ignore[method-assign]  # for the length of this block
    try:
        yield spent
    finally:
        session.bind = bind  # type: ignore[method-assign]
