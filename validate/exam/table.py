"""The exam on a terminal: right answers of each skill by each runner, and one turn of each skill to be read."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from validate.exam.paper import Paper
from validate.findings import Findings

SPEAKER = "model_linear_fp32"


def show_exam(paper: Paper, findings: Sequence[Findings], console: Console) -> None:
    """Print what the runners made of a paper; nothing where there was none."""
    if paper.questions:
        console.print(_skills(paper, findings))
        console.print(_turns(paper, findings))
    if paper.text:
        console.print(_perplexity(paper, findings))


def _skills(paper: Paper, findings: Sequence[Findings]) -> Table:
    title = "Exam: right answers, decoded greedily from each runner's own cache"
    headings = (escape(skill).replace(", ", ",\n") for skill in paper.skills)
    table = Table("runner", *headings, title=title)
    for found in findings:
        if found.sheet is not None:
            scores = [
                f"{right}/{asked}" for right, asked in (found.sheet.right(paper, skill) for skill in paper.skills)
            ]
            table.add_row(found.runner, *scores)
    return table


def _perplexity(paper: Paper, findings: Sequence[Findings]) -> Table:
    table = Table("runner", "perplexity", title=f"Perplexity of {escape(paper.source)}, {len(paper.text):,} tokens")
    for found in findings:
        if found.sheet is not None and found.sheet.perplexity is not None:
            table.add_row(found.runner, f"{found.sheet.perplexity:.4f}")
    table.caption = "of the runners that give every position's logits"
    return table


def _turns(paper: Paper, findings: Sequence[Findings]) -> Table:
    """The first question of each skill, and what the graph that chat and serve run answers."""
    sheets = {found.runner: found.sheet for found in findings if found.sheet is not None and found.sheet.texts}
    runner = SPEAKER if SPEAKER in sheets else next(iter(sheets), "nobody")
    table = Table("skill", "asked", "answered", title=f"One turn of each skill, as {runner} speaks")
    for skill in paper.skills if sheets else ():
        number = next(number for number, question in enumerate(paper.questions) if question.skill == skill)
        table.add_row(escape(skill), escape(paper.questions[number].asked), escape(sheets[runner].texts[number]))
    return table
