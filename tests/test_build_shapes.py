"""Shapes as trtexec spells them: read, completed by the formula, and refused with everything that is wrong."""

import re

import pytest

from artifacts.config import ModelConfig
from artifacts.contract import Form, signature
from artifacts.errors import StageError
from build.profiles import Step, default_profiles
from build.shapes import GivenShapes, parse_shapes, resolve
from tests.fused_graph import CONFIG

MODEL = ModelConfig.from_raw(CONFIG)
INPUTS = signature(MODEL, Form.MODEL).inputs
LINEAR = signature(MODEL, Form.MODEL_LINEAR, capacity=128).inputs
FORMULA = default_profiles(1, 256, 64)


def given(**points: str) -> GivenShapes:
    return GivenShapes({point: parse_shapes(text) for point, text in points.items()})


def test_names_may_have_a_wildcard_and_quotes() -> None:
    assert parse_shapes("'input_ids':1x2, past_key_values.*.key:1x2x0x16") == {
        "input_ids": (1, 2),
        "past_key_values.*.key": (1, 2, 0, 16),
    }


@pytest.mark.parametrize("text", ["", "input_ids", "input_ids:", "input_ids:1,2", "a:1x-2", "a:1,a:2", "*a*:1", "a:1x"])
def test_what_cannot_be_read_is_refused(text: str) -> None:
    with pytest.raises(StageError, match="cannot be read"):
        parse_shapes(text)


def test_nothing_given_is_the_formula() -> None:
    assert resolve({}, FORMULA, INPUTS) == FORMULA


def test_inputs_left_out_follow() -> None:
    shapes = given(min="input_ids:1x1", opt="input_ids:1x8,attention_mask:1x72", max="input_ids:1x16")
    prefill, decode = resolve({0: shapes}, FORMULA, INPUTS)
    assert (prefill.opt, prefill.max) == (Step(1, 8, 64), Step(1, 16, FORMULA[0].max.past))
    assert decode == FORMULA[1]


def test_the_cache_and_the_mask_tell_the_new_tokens() -> None:
    text = "attention_mask:2x40,past_key_values.*:2x2x30x16"
    third = resolve({2: given(min=text, opt=text, max=text)}, FORMULA, INPUTS)[2]
    assert (third.name, third.min, third.max) == ("profile-2", Step(2, 10, 30), Step(2, 10, 30))


def test_opt_alone_holds_for_min_and_max_as_in_trtexec() -> None:
    prefill, _ = resolve({0: given(opt="input_ids:1x32,attention_mask:1x32")}, FORMULA, INPUTS)
    assert prefill.min == prefill.opt == prefill.max == Step(1, 32, 0)


def test_the_linear_form_has_no_past() -> None:
    text = "input_ids:2x8,attention_mask:2x128"
    formula = default_profiles(1, 128, 64, linear=True)
    third = resolve({2: given(min=text, opt=text, max=text)}, formula, LINEAR)[2]
    assert (third.max.batch, third.max.new) == (2, 8)


@pytest.mark.parametrize(
    ("points", "problem"),
    [
        ({"max": "input_ids:1x8,attention_mask:1x72,past_key_values.0.key:1x2x60x16"}, "the mask is not past + new"),
        ({"max": "input_ids:1x8,position_ids:1x9"}, "sequence differs"),
        ({"max": "input_ids:2x8,attention_mask:1x9"}, "batch differs"),
        ({"max": "past_key_values.0.key:1x3x0x16"}, "another fixed axis"),
        ({"max": "input_ids:1x8x1"}, "another rank"),
        ({"max": "input_id:1x8"}, "no input is called input_id"),
        ({"max": "input_ids:1x8,attention_mask:1x7"}, "no step has these shapes"),
        ({"max": "input_ids:0x8"}, "no step has these shapes"),
        ({"min": "input_ids:1x4", "max": "input_ids:1x2"}, "does not grow from min to max"),
    ],
)
def test_contradictions_are_refused(points: dict[str, str], problem: str) -> None:
    with pytest.raises(StageError, match=re.escape(problem)):
        resolve({0: given(**points)}, FORMULA, INPUTS)


def test_an_added_profile_must_tell_everything_and_leave_no_gap() -> None:
    with pytest.raises(StageError) as error:
        resolve({3: given(min="input_ids:1x1")}, FORMULA, INPUTS)
    told = [problem.what for problem in error.value.problems]
    assert told[0] == "profiles have a gap"
    assert all("do not tell batch, new and past" in what for what in told[1:])
    assert len(told) == 4


def test_all_problems_come_at_once() -> None:
    points = {"min": "input_id:1x1", "opt": "input_ids:1x2x3", "max": "past_key_values.*:1x9x0x9"}
    with pytest.raises(StageError) as error:
        resolve({0: given(**points)}, FORMULA, INPUTS)
    assert len(error.value.problems) == 3


def test_a_negative_profile_is_refused() -> None:
    with pytest.raises(StageError, match="no such profile"):
        resolve({-1: given(min="input_ids:1x1")}, FORMULA, INPUTS)
