"""A text is the same alone or among others, rows are free when they end, and nothing leaks from one to another."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest

from artifacts.errors import Problem, StageError, refuse
from runtime.continuation import Continuation, Piece
from runtime.linear_cache import LinearCache
from runtime.model import Model, RunOptions
from runtime.scheduler import QueueFull, Scheduler, Ticket
from runtime.settings import Sampling, Settings
from tests.small_model import write_small_model

CONTEXT, ROWS = 400, 4
TEXTS = [f"Tell me story {number} about Paris. " * (number + 1) for number in range(7)]


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Model]:
    folder = write_small_model(tmp_path_factory.mktemp("out") / "small")
    with Model(folder.root, RunOptions(linear=True, context=CONTEXT)) as model:
        yield model


@pytest.fixture
def scheduler(model: Model) -> Scheduler:
    return Scheduler(LinearCache(model.session, rows=ROWS, context=CONTEXT, chunk=32), max_queue=8)


class Asked:
    """A text that was asked for, and what came of it."""

    def __init__(self, model: Model, text: str, count: int = 12, sampling: Sampling | None = None) -> None:
        settings = Settings(sampling or Sampling(), max_tokens=count, ignore_stop_ids=True)
        prompt = model.tokenizer.encode(text, add_special_tokens=False)
        self.got: list[Piece | StageError] = []
        one = Continuation(model.tokenizer, prompt, settings, frozenset(), context=CONTEXT)
        self.ticket = Ticket(one, self.got.append)

    @property
    def tokens(self) -> list[int]:
        return [piece.token for piece in self.got if isinstance(piece, Piece)]

    @property
    def finished(self) -> bool:
        return bool(self.got) and (isinstance(self.got[-1], StageError) or self.got[-1].finish is not None)


def run(scheduler: Scheduler) -> int:
    steps = 0
    while scheduler.step():
        steps += 1
    return steps


def alone(model: Model, text: str, count: int = 12) -> list[int]:
    ids = model.tokenizer.encode(text, add_special_tokens=False)
    return [p.token for p in model.generator().stream(ids, Settings(max_tokens=count, ignore_stop_ids=True))]


def test_texts_are_the_same_alone_and_among_others(model: Model, scheduler: Scheduler) -> None:
    """Seven texts of different lengths share four rows, and come at different times."""
    asked = [Asked(model, text, count=5 + 3 * number) for number, text in enumerate(TEXTS)]
    scheduler.submit([one.ticket for one in asked[:2]])
    for one in asked[2:]:
        scheduler.step()
        scheduler.submit([one.ticket])
    run(scheduler)
    for number, one in enumerate(asked):
        assert one.tokens == alone(model, TEXTS[number], 5 + 3 * number)
        assert one.finished


def test_a_long_prompt_is_read_between_the_steps_of_others(model: Model, scheduler: Scheduler) -> None:
    short, long = Asked(model, "Tell", 30), Asked(model, "A key was named early. " * 20, 2)
    scheduler.submit([short.ticket])
    scheduler.step()
    scheduler.submit([long.ticket])
    before = len(short.got)
    chunks = -(-len(long.ticket.continuation.prompt) // 32)
    assert chunks >= 5
    for _ in range(chunks - 1):
        scheduler.step()
    assert (len(short.got) - before, len(long.got)) == (chunks - 1, 0)
    scheduler.step()
    assert len(long.got) == 2
    run(scheduler)
    assert short.tokens == alone(model, "Tell", 30)


def test_a_row_is_free_in_the_very_turn_that_ends_its_text(model: Model, scheduler: Scheduler) -> None:
    scheduler.submit([Asked(model, "Tell", 1).ticket])
    scheduler.step()
    assert (scheduler.live, scheduler.held) == (0, 0)


def test_a_text_that_nobody_wants_frees_its_row_within_two_steps(model: Model, scheduler: Scheduler) -> None:
    leaving, staying = Asked(model, "Leaving", 200), Asked(model, "Staying", 20)
    waiting = [Asked(model, "Waiting", 3) for _ in range(4)]
    scheduler.submit([leaving.ticket, staying.ticket, *(one.ticket for one in waiting)])
    for _ in range(5):
        scheduler.step()
    got = len(leaving.got)
    scheduler.cancel(leaving.ticket)
    for _ in range(2):
        scheduler.step()
    assert leaving.ticket not in [row.ticket for row in scheduler._rows.values()]
    run(scheduler)
    assert len(leaving.got) == got
    assert staying.tokens == alone(model, "Staying", 20)
    assert all(one.tokens == alone(model, "Waiting", 3) for one in waiting)


def test_one_who_leaves_the_queue_never_runs(model: Model, scheduler: Scheduler) -> None:
    asked = [Asked(model, "Tell", 3) for _ in range(6)]
    scheduler.submit([one.ticket for one in asked])
    scheduler.cancel(asked[5].ticket)
    run(scheduler)
    assert [bool(one.got) for one in asked] == [True] * 5 + [False]


def test_a_full_queue_refuses_all_or_none(model: Model, scheduler: Scheduler) -> None:
    asked = [Asked(model, "Tell", 3) for _ in range(ROWS + 8)]
    scheduler.submit([one.ticket for one in asked])
    with pytest.raises(QueueFull):
        scheduler.submit([Asked(model, "One more").ticket])
    run(scheduler)
    assert all(one.finished for one in asked)
    with pytest.raises(QueueFull):
        scheduler.submit([Asked(model, "Many").ticket for _ in range(ROWS + 9)])
    assert scheduler.waiting == 0


def test_the_last_slot_of_a_row_is_used(model: Model, scheduler: Scheduler) -> None:
    one = Asked(model, "Tell", 10_000)
    scheduler.submit([one.ticket])
    run(scheduler)
    assert len(one.ticket.continuation.prompt) + len(one.tokens) == CONTEXT


def test_seeds_do_not_depend_on_the_neighbours(model: Model, scheduler: Scheduler) -> None:
    sampling = Sampling(temperature=1.0, seed=11)
    first, again = Asked(model, "Tell", 8, sampling), Asked(model, "Tell", 8, sampling)
    scheduler.submit([first.ticket])
    run(scheduler)
    scheduler.submit([Asked(model, "Noise", 9).ticket, again.ticket])
    run(scheduler)
    assert first.tokens == again.tokens


def test_a_run_that_fails_fails_its_texts_and_nothing_else(
    model: Model, scheduler: Scheduler, monkeypatch: pytest.MonkeyPatch
) -> None:
    failing = [Asked(model, "Tell", 9) for _ in range(2)]
    scheduler.submit([one.ticket for one in failing])
    scheduler.step()
    with monkeypatch.context() as patch:
        patch.setattr(model.session, "bind", lambda tensors: (_ for _ in ()).throw(refuse("no memory")))
        for _ in range(3):
            scheduler.step()
    assert all(isinstance(one.got[-1], StageError) for one in failing)
    later = Asked(model, "Tell", 9)
    scheduler.submit([later.ticket])
    run(scheduler)
    assert later.tokens == alone(model, "Tell", 9)


def test_a_text_ends_even_if_its_row_cannot_be_freed(
    model: Model, scheduler: Scheduler, monkeypatch: pytest.MonkeyPatch
) -> None:
    one, later = Asked(model, "Tell", 3), Asked(model, "Tell", 9)
    scheduler.submit([one.ticket])
    with monkeypatch.context() as patch:
        patch.setattr(scheduler._cache, "keep", lambda row, count: (_ for _ in ()).throw(refuse("no memory")))
        with pytest.raises(StageError, match="no memory"):
            run(scheduler)
    assert one.finished
    assert one.tokens == alone(model, "Tell", 3)
    scheduler.fail(StageError(Problem("as the server's thread does")))
    scheduler.submit([later.ticket])
    run(scheduler)
    assert later.tokens == alone(model, "Tell", 9)


def test_logits_that_are_no_numbers_end_one_text(
    model: Model, scheduler: Scheduler, monkeypatch: pytest.MonkeyPatch
) -> None:
    good, bad = Asked(model, "Tell", 6), Asked(model, "Tell", 6)
    monkeypatch.setattr(bad.ticket.continuation._sampler, "choose", raising)
    scheduler.submit([bad.ticket, good.ticket])
    run(scheduler)
    assert isinstance(bad.got[-1], StageError)
    assert good.tokens == alone(model, "Tell", 6)


def raising(logits: np.ndarray) -> int:
    raise FloatingPointError("nan")


def test_after_the_end_nothing_runs_and_whoever_asks_is_told(model: Model, scheduler: Scheduler) -> None:
    running, waiting = Asked(model, TEXTS[0]), [Asked(model, text) for text in TEXTS[1:6]]
    scheduler.submit([running.ticket, *(one.ticket for one in waiting)])
    scheduler.step()
    scheduler.close(refuse("the server ends"))
    late = Asked(model, TEXTS[0])
    scheduler.submit([late.ticket])
    assert all(isinstance(one.got[-1], StageError) for one in (running, *waiting, late))
    assert not scheduler.step()
    assert (scheduler.live, scheduler.waiting, scheduler.held) == (0, 0, 0)
