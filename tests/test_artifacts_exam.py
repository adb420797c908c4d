"""An exam goes along with a checkpoint and is read as it was written; what is none is refused."""

import json
from pathlib import Path

import pytest

from artifacts.errors import StageError
from artifacts.exam import EXAM, Case, Exam

ASKED = ({"role": "user", "content": "Copy ABC"},)
EXAMPLE = Exam(
    (*(Case("copy", ASKED, f"ABC{number}") for number in range(10)), Case("tool call", ASKED, "x", tools=({"a": 1},))),
    "A text.",
)


def test_it_is_read_as_it_was_written(tmp_path: Path) -> None:
    EXAMPLE.write(tmp_path / EXAM)
    assert Exam.read(tmp_path) == EXAMPLE


def test_a_folder_may_have_none(tmp_path: Path) -> None:
    assert Exam.read(tmp_path) is None


def test_some_cases_of_a_skill_come_from_all_over_the_exam() -> None:
    assert [case.answer for case in EXAMPLE.of("copy", 2)] == ["ABC2", "ABC7"]
    assert len(EXAMPLE.of("copy", 99)) == len(EXAMPLE.of("copy")) == 10
    assert EXAMPLE.skills == ("copy", "tool call")


@pytest.mark.parametrize(
    "text",
    [
        "{",
        "[]",
        '{"cases": [{}], "text": ""}',
        '{"cases": [{"skil": 1}]}',
        '{"cases": [], "text": 5}',
        '{"cases": [], "text": "", "more": 1}',
        '{"cases": [{"skill": "x", "messages": [], "answer": "y"}], "text": ""}',
        '{"cases": [{"skill": "x", "messages": "abc", "answer": "y"}], "text": ""}',
        '{"cases": [{"skill": "x", "messages": [{"role": "user"}], "answer": "y"}], "text": ""}',
        '{"cases": [{"skill": "x", "messages": [{"role": "user", "content": "?"}], "answer": 5}], "text": ""}',
        '{"text":"","cases":[{"skill":"","messages":[{"role":"user","content":""}],"answer":"","thinks":1}]}',
    ],
)
def test_what_is_no_exam_is_refused(tmp_path: Path, text: str) -> None:
    (tmp_path / EXAM).write_text(text)
    with pytest.raises(StageError, match="is no exam"):
        Exam.read(tmp_path)


def test_every_place_that_is_wrong_is_named_in_one_line(tmp_path: Path) -> None:
    (tmp_path / EXAM).write_text('{"cases": [{"skill": 1, "messages": [], "answer": "y"}]}')
    with pytest.raises(StageError) as caught:
        Exam.read(tmp_path)
    (problem,) = caught.value.problems
    assert problem.found == "cases.0.skill: Input should be a valid string; text: Field required"


def test_a_key_that_is_not_known_is_refused(tmp_path: Path) -> None:
    EXAMPLE.write(tmp_path / EXAM)
    raw = json.loads((tmp_path / EXAM).read_text())
    raw["cases"][0]["anwser"] = "x"
    (tmp_path / EXAM).write_text(json.dumps(raw))
    with pytest.raises(StageError, match="anwser"):
        Exam.read(tmp_path)
