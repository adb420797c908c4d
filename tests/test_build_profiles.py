"""The two profiles leave no step out, and a hole that is planted is found."""

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from artifacts.config import ModelConfig
from artifacts.contract import Form, signature
from build.profiles import Step, StepProfile, default_profiles, first_hole
from tests.fused_graph import CONFIG

MODEL = ModelConfig.from_raw(CONFIG)
contexts = st.integers(2, 700)
batches = st.integers(1, 9)


def chunked(context: int, chunk: int, prompt: int) -> list[tuple[int, int]]:
    """Steps (past, new) of a generation: the prompt in chunks, then a token at a time to the end of the context."""
    starts = range(0, prompt, chunk)
    return [(past, min(chunk, prompt - past)) for past in starts] + [(past, 1) for past in range(prompt, context)]


@given(batches, contexts, st.data())
@settings(deadline=None)
def test_every_step_of_every_generation_is_taken(batch: int, context: int, data: st.DataObject) -> None:
    chunk, prompt = data.draw(st.integers(2, context)), data.draw(st.integers(1, context))
    profiles = default_profiles(batch, context, chunk)
    for past, new in chunked(context, chunk, prompt):
        for rows in {1, batch}:
            assert any(profile.takes(Step(rows, new, past)) for profile in profiles)


@given(batches, st.integers(2, 60), st.data())
@settings(deadline=None)
def test_the_search_for_holes_agrees_with_trying_every_step(batch: int, context: int, data: st.DataObject) -> None:
    chunk = data.draw(st.integers(2, context))
    prefill, decode = default_profiles(batch, context, chunk)
    cut_below = data.draw(st.booleans())
    step = Step(
        data.draw(st.integers(1, batch)), data.draw(st.integers(1, chunk)), data.draw(st.integers(0, context - 1))
    )
    profiles = (replace(prefill, min=step) if cut_below else replace(prefill, max=step), decode)
    steps = [
        Step(rows, new, past)
        for rows in range(1, batch + 1)
        for past in range(context)
        for new in range(1, min(chunk, context - past) + 1)
    ]
    holes = [step for step in steps if not any(profile.takes(step) for profile in profiles)]
    found = first_hole(profiles, batch, context, chunk)
    assert (found in holes) if holes else found is None


@given(batches, contexts, st.data(), st.booleans())
@settings(deadline=None)
def test_at_every_point_the_mask_is_past_plus_new_and_the_batch_is_one(
    batch: int, context: int, data: st.DataObject, linear: bool
) -> None:
    chunk = data.draw(st.integers(2, context))
    form = Form.MODEL_LINEAR if linear else Form.MODEL
    inputs = signature(MODEL, form, capacity=context if linear else None).inputs
    for profile in default_profiles(batch, context, chunk, linear=linear):
        shapes = profile.shapes(inputs)
        assert {len({shape[point][0] for shape in shapes.values()}) for point in range(3)} == {1}
        for point in range(3):
            new, total = shapes["input_ids"][point][1], shapes["attention_mask"][point][1]
            past = shapes["past_key_values.0.key"][point][2]
            assert (total == past == context) if linear else total == past + new
            assert shapes["position_ids"][point] == shapes["input_ids"][point]
        for least, best, most in shapes.values():
            assert all(a <= b <= c for a, b, c in zip(least, best, most, strict=True))


def test_the_last_token_of_the_context_has_a_profile() -> None:
    prefill, decode = default_profiles(1, 4096, 512)
    assert decode.takes(Step(1, 1, 4095))
    assert prefill.takes(Step(1, 512, 3584))
    assert prefill.takes(Step(1, 96, 4000)), "a chunk that begins anywhere, as in the second turn of a chat"


def planted(profile: StepProfile, past: int) -> StepProfile:
    return replace(profile, max=replace(profile.max, past=past))


@pytest.mark.parametrize(
    ("prefill_past", "decode_past", "hole"),
    [
        (4095, 4095, None),
        (4095, 4094, None),  # prefill takes what decode leaves out
        (4094, 4094, Step(1, 1, 4095)),  # a box that ends at the context, past + 2 = 4096, loses the last token
        (3584, 4095, Step(1, 3, 3585)),  # a chunk that begins between two multiples of the chunk
        (3583, 4095, Step(1, 3, 3584)),  # the last chunk
        (0, 4095, Step(1, 3, 1)),  # only the first chunk
    ],
)
def test_a_planted_hole_is_found(prefill_past: int, decode_past: int, hole: Step | None) -> None:
    prefill, decode = default_profiles(1, 4096, 512)
    assert first_hole((planted(prefill, prefill_past), planted(decode, decode_past)), 1, 4096, 512) == hole


def test_a_hole_in_the_batch_is_found() -> None:
    prefill, decode = default_profiles(4, 64, 8)
    four = replace(prefill, min=replace(prefill.min, batch=4))
    only = replace(decode, min=replace(decode.min, batch=3))
    assert first_hole((four, only), 4, 64, 8) == Step(1, 1, 0)


def test_a_linear_cache_needs_new_tokens_only() -> None:
    prefill, decode = default_profiles(1, 128, 16, linear=True)
    assert first_hole((prefill, decode), 1, 128, 16, linear=True) is None
    late = replace(prefill, min=replace(prefill.min, new=4))
    assert first_hole((late, decode), 1, 128, 16, linear=True) == Step(1, 3, 0)


def test_decode_may_have_two_rows() -> None:
    """One row, min = max, makes TensorRT-RTX store the weights twice; see test_build_plan."""
    assert default_profiles(1, 4096, 512)[1].max.new == 2
