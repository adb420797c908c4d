"""What every runner is asked: the questions of the checkpoint's exam and a text, in token ids."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import jinja2

from artifacts.config import ModelConfig
from artifacts.errors import refuse
from artifacts.exam import Case, Exam
from validate.prompt import Reader

ASKED = 5
"""Cases of each skill that every runner answers: ten runners of a small model take a minute for them."""
LONGEST_TEXT = 2048
"""Tokens of a text that are read; enough for three digits of its perplexity."""
SHORTEST_TEXT = 2
"""Tokens: the first one is given, and at least one must be there to be foreseen."""


@dataclass(frozen=True)
class Question:
    """One case in ids, and in words that a person can read.

    Attributes:
        prompt: ids of the conversation, up to where the assistant's turn begins.
        answer: ids of the right answer, the end of its turn the last.
        asked: the user's question.
        right: the right answer.
    """

    skill: str
    prompt: tuple[int, ...]
    answer: tuple[int, ...]
    asked: str
    right: str


@dataclass(frozen=True)
class Paper:
    """Everything that is asked of every runner; empty for a model that has no exam, where no text was given.

    Attributes:
        text: ids whose perplexity is measured.
        source: where the text comes from.
    """

    questions: tuple[Question, ...] = ()
    text: tuple[int, ...] = ()
    source: str = ""

    @property
    def skills(self) -> tuple[str, ...]:
        """Every skill, in the exam's order."""
        return tuple(dict.fromkeys(question.skill for question in self.questions))

    def to_json(self) -> dict[str, Any]:
        """Give plain JSON values."""
        return asdict(self)

    @classmethod
    def from_json(cls, raw: Mapping[str, Any]) -> Paper:
        """Read what `to_json` gave."""
        questions = (
            Question(**{**one, "prompt": tuple(one["prompt"]), "answer": tuple(one["answer"])})
            for one in raw["questions"]
        )
        return cls(tuple(questions), tuple(raw["text"]), raw["source"])


def paper(folder: Path, config: ModelConfig, reader: Reader, text: Path | None) -> Paper:
    """Spell the exam of a model's `onnx/` folder, and the text.

    Args:
        folder: where the exam lies.
        config: the model's facts.
        reader: spells text.
        text: a file to read instead of the exam's own text.

    Raises:
        StageError: there is a text and no tokenizer, the text cannot be read or is too short, or the exam is none.
    """
    exam = Exam.read(folder)
    if text is None and exam is None:
        return Paper()
    if not reader.has_tokenizer:
        raise refuse(
            "this model has no tokenizer, so it can neither read a text nor answer an exam",
            expected="a checkpoint with tokenizer.json",
            found="--text" if text is not None else "exam.json and no tokenizer",
            remedy="leave out --text" if text is not None else "export a checkpoint that is whole",
        )
    if text is not None:
        ids, source = _ids(text, reader), str(text)
    else:
        ids, source = reader.spell(exam.text if exam else ""), "the exam's text"
    questions = _questions(exam, reader, config) if exam and exam.cases else ()
    most = min(LONGEST_TEXT, config.max_positions)
    return Paper(questions, ids[:most], f"{source} (its beginning)" if len(ids) > most else source)


def _questions(exam: Exam, reader: Reader, config: ModelConfig) -> tuple[Question, ...]:
    if reader.lacks:
        raise refuse(
            "this model has an exam and a tokenizer that cannot ask it",
            expected="a chat template, and an eos_token that ends a turn",
            found=f"no {' and no '.join(reader.lacks)}",
            remedy="export a checkpoint that is whole, or one without exam.json",
        )
    chosen = [case for skill in exam.skills for case in exam.of(skill, ASKED)]
    try:
        questions = tuple(_spelled(case, reader) for case in chosen)
    except jinja2.TemplateError as error:
        raise refuse(
            "this model has an exam and a chat template that cannot ask it",
            expected="a template that renders every case",
            found=f"{type(error).__name__}: {error}",
            remedy="export a checkpoint that is whole, or one without exam.json",
        ) from error
    longest = max(len(question.prompt) + len(question.answer) for question in questions)
    if longest > config.max_positions:
        raise refuse(
            "a question of the exam is longer than the model's positions",
            expected=f"at most {config.max_positions} tokens",
            found=f"{longest}",
            remedy="export a checkpoint whose exam.json is its own",
        )
    return questions


def _spelled(case: Case, reader: Reader) -> Question:
    prompt = reader.turn(case.messages, thinks=case.thinks, tools=case.tools)
    answer = (*reader.spell(case.answer), reader.end_of_turn)
    return Question(case.skill, prompt, answer, case.messages[-1]["content"], case.answer)


def read_text(path: Path) -> str:
    """Read the text that a person gives.

    Raises:
        StageError: there is no such file, or it is no UTF-8.
    """
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise refuse(
            f"the text {path} cannot be read", expected="a UTF-8 text file", found=str(error), remedy="correct --text"
        ) from error


def _ids(path: Path, reader: Reader) -> tuple[int, ...]:
    text = read_text(path)
    ids = reader.spell(text)
    if len(ids) < SHORTEST_TEXT:
        found = f"{len(ids)} tokens"
        raise refuse(
            f"the text {path} is too short", expected="at least two tokens", found=found, remedy="a longer one"
        )
    return ids
