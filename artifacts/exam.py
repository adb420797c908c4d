"""An exam: questions with their right answers, which a checkpoint may bring along as `exam.json`.

What a model can no longer do shows as a wrong answer. Each case is a conversation for the chat template, and the text
that the model should write next, up to its end-of-turn token.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, ClassVar

from artifacts.errors import refuse

EXAM = "exam.json"
SHOWN = 600
"""Characters that a message tells of what is wrong with an exam."""
_STRICT = {"extra": "forbid"}
"""A key that is not known is an error (see pydantic's `ConfigDict`)."""


@dataclass(frozen=True)
class Case:
    """One question.

    Attributes:
        skill: what it asks for.
        messages: the conversation so far, the user's question last.
        answer: the whole text of the right answer, a think block included where the model thinks.
        thinks: whether the model is to think.
        tools: functions that it may call, as OpenAI's API describes them.
        needs: what in the conversation the answer depends on; empty where that is the question alone.
    """

    __pydantic_config__: ClassVar = _STRICT
    skill: str
    messages: tuple[Mapping[str, str], ...]
    answer: str
    thinks: bool = False
    tools: tuple[Mapping[str, Any], ...] = ()
    needs: str = ""


@dataclass(frozen=True)
class Exam:
    """All questions, and a text of the kind that the model knows."""

    __pydantic_config__: ClassVar = _STRICT
    cases: tuple[Case, ...]
    text: str

    @property
    def skills(self) -> tuple[str, ...]:
        """Every skill, in the exam's order."""
        return tuple(dict.fromkeys(case.skill for case in self.cases))

    def of(self, skill: str, count: int | None = None) -> tuple[Case, ...]:
        """Give the cases of one skill, or so many of them, from all over the exam."""
        cases = tuple(case for case in self.cases if case.skill == skill)
        if count is None or count >= len(cases):
            return cases
        return tuple(cases[(2 * number + 1) * len(cases) // (2 * count)] for number in range(count))

    def write(self, path: Path) -> None:
        """Write it as JSON."""
        text = json.dumps(asdict(self), indent=1, ensure_ascii=False)
        path.write_text(text + "\n", encoding="utf-8")

    @classmethod
    def read(cls, folder: Path) -> Exam | None:
        """Read the exam of a folder that has one.

        Raises:
            StageError: the file is no exam.
        """
        path = folder / EXAM
        if not path.exists():
            return None
        from pydantic import TypeAdapter, ValidationError

        try:
            exam = TypeAdapter(cls).validate_json(path.read_bytes(), strict=True)
            for number, case in enumerate(exam.cases):
                if not case.messages or case.messages[-1].get("role") != "user" or "content" not in case.messages[-1]:
                    raise ValueError(f"cases.{number}.messages does not end with what a user says")
        except ValueError as error:
            found = str(error)
            if isinstance(error, ValidationError):
                faults = [(".".join(map(str, fault["loc"])) or "the file", fault["msg"]) for fault in error.errors()]
                found = "; ".join(f"{where}: {what}" for where, what in faults)
            raise refuse(
                f"{path} is no exam",
                expected='{"cases": [{"skill", "messages", "answer", "thinks", "tools", "needs"}, …], "text": "…"}',
                found=found[:SHOWN],
                remedy="get the file again, or remove it: a checkpoint needs none",
            ) from None
        return exam
