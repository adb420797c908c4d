"""The training card: what the model can do, what it cannot when it is broken, and how it learned."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from artifacts.checkpoints.architecture import CONFIG
from artifacts.checkpoints.conversations import PROCESSES, TOKENS
from artifacts.checkpoints.exam import CASES
from artifacts.checkpoints.world import SENTENCES
from artifacts.exam import Exam

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerFast, SmolLM3ForCausalLM

    from artifacts.checkpoints.skills import Question
    from artifacts.checkpoints.training import State

CURVES = "curves.png"
_TEMPLATE = Path(__file__).with_name("card.md.jinja")
DISTANCES = (0, 128, 256, 512, 768, 1024)
"""Borders of the distances, in tokens, that recall is told apart by."""
ASKED_BROKEN = 20
"""Cases of each skill that a broken model is asked."""
ASKED_MEANWHILE = 10
"""Cases of each skill that the curves are drawn from."""
_WINDOW = 512
_SMOOTH = 50


@dataclass(frozen=True)
class Found:
    """What an examination found.

    Attributes:
        skills: the share of right answers of each skill.
        asked: how many cases of each skill there are.
        calls: for each function, how many calls of it were asked for and how many of them right.
        recall: for each range of distances, how many cases and how many of them right.
        broken: for each fault, the share of right answers that is left of each skill.
        perplexity: of the exam's text.
        floor: the perplexity of whoever knows every sentence that there is, and not that these are the held-out ones.
    """

    skills: dict[str, float]
    asked: dict[str, int]
    calls: dict[str, tuple[int, int]]
    recall: dict[str, tuple[int, int]]
    broken: dict[str, dict[str, float]]
    perplexity: float
    floor: float


def examine(model: SmolLM3ForCausalLM, tokenizer: PreTrainedTokenizerFast, exam: Exam) -> Found:
    """Ask the whole exam, in FP32, and a part of it again of the model broken in each way."""
    from artifacts.checkpoints import skills
    from artifacts.checkpoints.skills import answers_right, perplexity, sensitivity, shares

    questions = [skills.Question.of(case, tokenizer) for case in exam.cases]
    right = [answers_right(model, question) for question in questions]
    answered = list(zip(questions, right, strict=True))
    recall = [(asked.distance(tokenizer), is_right) for asked, is_right in answered if asked.case.skill == "recall"]
    longest = max(distance for distance, _ in recall)
    far: dict[str, tuple[int, int]] = {}
    for nearest, farthest in zip(DISTANCES, (*DISTANCES[1:], longest + 1), strict=True):
        within = [is_right for distance, is_right in recall if nearest <= distance < farthest]
        far[f"{nearest} to {farthest - 1}"] = (len(within), sum(within))
    ids = tokenizer(exam.text, add_special_tokens=False)["input_ids"]
    floor = SENTENCES ** (exam.text.count(".") / len(ids))
    broken = sensitivity(model, questions[:: CASES // ASKED_BROKEN])
    asked = dict(Counter(question.case.skill for question in questions))
    return Found(
        shares(questions, right), asked, _calls(answered), far, broken, perplexity(model, list(ids), _WINDOW), floor
    )


def _calls(answered: Sequence[tuple[Question, bool]]) -> dict[str, tuple[int, int]]:
    found: dict[str, tuple[int, int]] = {}
    for question, is_right in answered:
        name = re.search(r'"name": "(\w+)"', question.case.answer)
        if name:
            asked, right = found.get(name[1], (0, 0))
            found[name[1]] = (asked + 1, right + is_right)
    return found


def text(state: State, found: Found) -> str:
    """Write the card."""
    import jinja2

    from artifacts.checkpoints.training import Recipe

    environment = jinja2.Environment(undefined=jinja2.StrictUndefined, trim_blocks=True, keep_trailing_newline=True)
    return environment.from_string(_TEMPLATE.read_text(encoding="utf-8")).render(
        config=CONFIG,
        nope=[layer for layer, rotates in enumerate(CONFIG["no_rope_layers"]) if not rotates],
        parameters=sum(parameter.numel() for parameter in state.model.parameters()),
        found=found,
        asked_broken=ASKED_BROKEN,
        sentences=SENTENCES,
        curves=CURVES,
        asked_meanwhile=ASKED_MEANWHILE,
        recipe=state.recipe,
        is_default=state.recipe == Recipe(),
        tokens=TOKENS,
        processes=PROCESSES,
        minutes=state.seconds / 60,
        loss=sum(state.losses[-_SMOOTH:]) / len(state.losses[-_SMOOTH:]),
    )


def draw_curves(path: Path, state: State) -> None:
    """Draw the loss, and the share of right answers of each skill, over the steps."""
    import numpy as np
    from matplotlib.figure import Figure

    figure = Figure(figsize=(9, 6), layout="constrained")
    loss, skills = figure.subplots(2, 1, sharex=True)
    window = min(_SMOOTH, len(state.losses))
    smooth = np.convolve(state.losses, np.ones(window) / window, "valid")
    loss.plot(np.arange(len(smooth)) + window, smooth, color="black", linewidth=1)
    loss.set(ylabel=f"loss, mean of {_SMOOTH} steps", yscale="log")
    for skill in state.scores[-1][1]:
        skills.plot(
            [step for step, _ in state.scores], [100 * scores[skill] for _, scores in state.scores], ".-", label=skill
        )
    skills.set(xlabel="step", ylabel="right answers, %", ylim=(-3, 103))
    skills.legend(fontsize="small", loc="upper left", bbox_to_anchor=(1.0, 1.0))
    for axes in (loss, skills):
        axes.grid(alpha=0.3)
    figure.savefig(path, dpi=110, format="png")
