"""The report on a terminal: what was compared, the certificate, the continuation, the plans, and the verdict."""

from __future__ import annotations

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from validate.certificate import SHIFT
from validate.comparison import TOLERANCE
from validate.exam.table import show_exam
from validate.findings import Check, Findings
from validate.layers.table import show_layers
from validate.report import PAGE, REPORT, Report, subjects
from validate.runners import Role

GIB = 1 << 30
SHOWN = 20
"""Problems that a terminal is given; report.json has all."""


def show(report: Report, console: Console) -> None:
    """Print a report, the verdict last."""
    console.print(_differences(report))
    console.print(_certificate(report))
    _continuation(report, console)
    show_exam(report.paper, report.findings, console)
    console.print(_summary(report))
    for name, reason in report.left_out.items():
        console.print(f"left out: {name}: {reason}", markup=False)
    for found in report.findings:
        for left in found.left_out:
            console.print(f"left out for {found.runner}: {left}", markup=False)
    show_layers(report.layers, console)
    _plans(report, console)
    _verdict(report, console)


def _differences(report: Report) -> Table:
    """A row for each subject, a column for each runner."""
    compared = [found for found in report.findings if found.role != Role.REFERENCE.value]
    title = f"Largest difference from PyTorch FP32, of the tensor's largest magnitude (limit {TOLERANCE:g})"
    table = Table("", *(found.runner for found in compared), title=title)
    for subject in subjects(compared):
        cells = []
        for found in compared:
            check = next((check for check in found.checks if check.subject == subject), None)
            cells.append(_cell(check))
        table.add_row(escape(subject), *cells)
    table.caption = "PyTorch BF16 shows what BF16 itself does; it is judged for finiteness only"
    return table


def _cell(check: Check | None) -> str:
    if check is None:
        return ""
    if check.problems:
        return "[bold red]NO[/]"
    return "yes" if check.worst is None else f"{check.worst:.1e}"


def _certificate(report: Report) -> Table:
    """A row for each layer: what the config says, and how far its keys moved in each graph."""
    title = f"NoPE certificate: how far a layer's keys move when every position is shifted by {SHIFT}"
    table = Table("layer", "config.json", *(found.runner for found in report.findings), title=title)
    moved = {found.runner: {m.layer: m.key for m in found.movements} for found in report.findings}
    for layer, rotates in enumerate(report.uses_rope):
        cells = [f"{keys[layer]:.1e}" if layer in keys else "" for keys in moved.values()]
        table.add_row(str(layer), "RoPE" if rotates else "[bold]NoPE[/]", *cells)
    return table


def _continuation(report: Report, console: Console) -> None:
    steps = max((len(found.continuation.tokens) for found in report.findings), default=0)
    shown = report.prompt.text or f"{len(report.prompt.ids)} seeded ids (the checkpoint has no tokenizer)"
    table = Table("runner", "writes", title=f"Greedy continuation, {steps} tokens, of: {escape(shown)}")
    for found in report.findings:
        text = report.texts.get(found.runner)
        tokens = " ".join(map(str, found.continuation.tokens))
        table.add_row(found.runner, escape(text if text is not None else tokens))
    console.print(table)
    if report.noise is not None:
        where = f"{len(report.near_ties)} of {steps}"
        where += f" (steps {', '.join(map(str, report.near_ties))})" if report.near_ties else ""
        console.print(
            f"BF16's own noise in PyTorch: {report.noise.largest:.3g} at most, {report.noise.rms:.3g} rms, of logits "
            f"up to {report.noise.magnitude:.3g}. Steps whose two largest logits are nearer than that: {where}."
        )


def _summary(report: Report) -> Table:
    table = Table("runner", "is", "tensors", "elements", "seconds", "GiB", "verdict", title="What was compared")
    for found in report.findings:
        table.add_row(found.runner, found.role, *_counts(found))
    return table


def _counts(found: Findings) -> tuple[str, str, str, str, str]:
    tensors = sum(check.tensors for check in found.checks if check.elements)
    elements = sum(check.elements for check in found.checks)
    verdict = "[bold red]NO[/]" if found.problems else "equal" if found.role == Role.JUDGED.value else "finite"
    seconds = f"{sum(found.seconds.values()):.0f}"
    return f"{tensors:,}", f"{elements:,}", seconds, f"{found.peak_bytes / GIB:.1f}", verdict


def _plans(report: Report, console: Console) -> None:
    for kinship in report.kinships:
        console.print(f"[bold red]NO[/] {kinship.form}" if kinship.problems else escape(kinship.words), soft_wrap=True)
    for plan in report.plans:
        state = "[bold red]NO[/]" if plan.problems else "built from these graphs"
        console.print(f"plan {escape(plan.target)}: {state}")
    if not report.plans:
        console.print("no plan was built")
    console.print(report.engine, markup=False)


def _verdict(report: Report, console: Console) -> None:
    for problem in report.problems[:SHOWN]:
        console.print(f"  {problem}", markup=False)
    if len(report.problems) > SHOWN:
        console.print(f"  and {len(report.problems) - SHOWN} more in {report.folder / REPORT}", markup=False)
    if report.up_to_date:
        console.print("up to date: nothing that the verdict depends on has changed")
    tensors, elements = report.compared
    answer = "[bold green]yes[/]" if report.verdict else "[bold red]NO[/]"
    counted = f"{tensors:,} tensors, {elements:,} elements compared with PyTorch"
    console.print(f"verdict: {answer} for {escape(report.model)}: {counted}")
    for name in (REPORT, PAGE):
        console.print(str(report.folder / name), markup=False, soft_wrap=True)
