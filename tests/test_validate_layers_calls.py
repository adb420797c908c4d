"""The calls hold what they say, masks are made of slots, and padding is taken out before anything is compared."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from artifacts import names
from artifacts.contract import LOGITS
from tests.numpy_session import CONFIG
from validate.layers.anatomy import Part
from validate.layers.calls import Call, calls
from validate.layers.evidence import Evidence, look
from validate.layers.record import Record
from validate.layers.rows import rows

NORM = Part("model.layers.1.input_layernorm", 1, names.NORM, ())
KEY = Part("present.1.key", 1, "present.key", ())


@pytest.fixture(scope="module")
def known() -> dict[str, Call]:
    return {call.name: call for call in calls(CONFIG)}


def test_calls_follow_one_another_beyond_position_300(known: dict[str, Call]) -> None:
    chunk, step = known["chunk of 5 after 301"], known["decode at position 306"]
    assert (chunk.after, chunk.past, chunk.ids.shape) == ("prefill of 301", 301, (1, 5))
    assert (step.after, step.past, step.positions.tolist()) == (chunk.name, 306, [[306]])


def test_a_batch_is_padded_on_the_left(known: dict[str, Call]) -> None:
    first, step = known["left-padded batch of 3: prefill"], known["left-padded batch of 3: decode"]
    assert first.seen.sum(axis=1).tolist() == [11, 7, 4]
    assert first.seen[1].tolist() == [0] * 4 + [1] * 7
    assert first.positions[1].tolist() == [0] * 4 + [*range(7)]
    assert step.positions.ravel().tolist() == [11, 7, 4]
    assert (first.ids[first.seen == 0] == 0).all()


def test_calls_that_do_not_fit_the_positions_are_left_out() -> None:
    short = replace(CONFIG, max_position_embeddings=64)
    assert "prefill of 301" not in {call.name for call in calls(short)}


def test_the_mask_is_of_slots_and_every_query_sees_itself(known: dict[str, Call]) -> None:
    mask = known["left-padded batch of 3: prefill"].mask
    assert mask.shape == (3, 1, 11, 11)
    assert mask[1, 0, 5].tolist() == [False] * 4 + [True] * 2 + [False] * 5
    assert mask[1, 0, 2].tolist() == [False] * 2 + [True] + [False] * 8
    assert known["chunk of 5 after 301"].mask[0, 0, 1].sum() == 303


def test_rows_are_real_tokens_with_their_positions(known: dict[str, Call]) -> None:
    call = known["left-padded batch of 3: prefill"]
    values = np.arange(3 * 11 * 2, dtype=np.float32).reshape(3, 11, 2)
    found = rows(NORM, call, values)
    assert found is not None
    assert found.values.shape == (22, 2)
    assert found.positions[11:18].tolist() == [*range(7)]
    assert found.values[11].tolist() == values[1, 4].tolist()


def test_rows_of_a_cache_are_its_real_slots(known: dict[str, Call]) -> None:
    call = known["left-padded batch of 3: decode"]
    found = rows(KEY, call, np.zeros((3, 2, 12, 8), np.float32))
    assert found is not None
    assert found.values.shape == (12 + 8 + 5, 16)
    assert rows(KEY, call, np.zeros((3, 2, 11, 8), np.float32)) is None


def test_logits_of_the_last_position_are_compared_with_the_last_of_all(known: dict[str, Call]) -> None:
    call, part = known["prefill of 10"], Part(LOGITS, None, LOGITS, ())
    every, last = np.random.default_rng(0).random((1, 10, 4)), np.zeros((1, 1, 4))
    found = rows(part, call, every, like=last)
    assert found is not None
    assert found.values.tolist() == every[:, -1].tolist()
    assert found.positions.tolist() == [9]


def test_a_past_is_the_cache_before_rounded_to_bf16(known: dict[str, Call], tmp_path: Path) -> None:
    record, call = Record(tmp_path), known["decode at position 10"]
    record.write(known["prefill of 10"], "present.0.key", np.full((1, 2, 10, 8), 1.0009765, np.float32))
    past = record.past(call, CONFIG, ["past_key_values.0.key"])
    assert set(past) == {"past_key_values.0.key"}
    assert (past["past_key_values.0.key"] == 1.0).all()
    assert record.past(known["prefill of 10"], CONFIG)["past_key_values.2.value"].shape == (1, 2, 0, 8)


def test_a_name_with_a_slash_comes_back_from_its_file(known: dict[str, Call], tmp_path: Path) -> None:
    record, call = Record(tmp_path), known["prefill of 10"]
    record.write(call, "model.layers.0.mlp/Mul", np.ones(3, np.float32))
    assert record.names(call) == {"model.layers.0.mlp/Mul"}
    assert record.read(call, "model.layers.0.mlp/Mul").tolist() == [1, 1, 1]


def seen(call: Call, actual: np.ndarray, expected: np.ndarray, others: dict[str, np.ndarray] | None = None) -> Evidence:
    candidates = [(name, lambda value=value: value) for name, value in (others or {}).items()]
    found = look(KEY if actual.ndim == 4 else NORM, call, actual, expected, 1e-4, candidates)
    assert found is not None
    return found


def test_evidence_tells_where_a_tensor_goes_wrong(known: dict[str, Call]) -> None:
    call = known["prefill of 301"]
    right = np.random.default_rng(1).standard_normal((1, 301, 16)).astype(np.float32)
    wrong = right.copy()
    wrong[:, 257:] += 1
    assert seen(call, wrong, right).begins == 257
    scaled = seen(call, right * np.float32(1.01), right)
    assert scaled.scaled
    assert scaled.slope == pytest.approx(1.01, abs=1e-4)
    assert scaled.begins is None


def test_evidence_tells_padded_rows_swaps_and_permuted_heads(known: dict[str, Call]) -> None:
    call, random = known["left-padded batch of 3: prefill"], np.random.default_rng(2)
    right = random.standard_normal((3, 11, 16)).astype(np.float32)
    wrong = right.copy()
    wrong[1:] += 1
    assert seen(call, wrong, right).padded_only
    one, other = random.standard_normal((2, 3, 2, 11, 8)).astype(np.float32)
    assert seen(call, other, one, {"present.2.key": other}).holds == "present.2.key"
    assert seen(call, one[:, ::-1], one).heads == (1, 0)
