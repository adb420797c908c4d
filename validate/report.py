"""The report: what was compared, what came of it, and the verdict; kept as report.json."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from artifacts.errors import refuse
from validate import greedy
from validate.exam import Paper
from validate.findings import Findings, Noise
from validate.kinship import FORMS, Kinship
from validate.layers import ENGINE, LayerFindings
from validate.plans import PlanState
from validate.prompt import Prompt
from validate.runners import RUNNERS, Role

REPORT, PAGE = "report.json", "report.html"


@dataclass(frozen=True)
class Report:
    """Everything that a validation found, and where it lies.

    Attributes:
        uses_rope: for each layer whether config.json says that it rotates.
        texts: the continuation of each runner as text; empty without a tokenizer.
        layers: what the comparison layer by layer found; nothing if it was not made.
        folder: the report's folder, `OUT/<model>/validate/<target>/`.
        left_out: runners that were not run, and why.
        kinships: how the BF16 graphs stand to those that are judged.
        paper: the exam's questions and the text, which each runner's findings have the answers to.
        up_to_date: whether an earlier run had found all this already.
    """

    model: str
    target: str
    uses_rope: tuple[bool, ...]
    prompt: Prompt
    findings: tuple[Findings, ...]
    texts: Mapping[str, str]
    plans: tuple[PlanState, ...]
    folder: Path
    layers: LayerFindings | None = None
    left_out: Mapping[str, str] = field(default_factory=dict)
    kinships: tuple[Kinship, ...] = ()
    paper: Paper = field(default_factory=Paper)
    up_to_date: bool = field(default=False, compare=False)

    @property
    def compared(self) -> tuple[int, int]:
        """Tensors and elements of the judged runners that were compared with the reference."""
        judged = [check for found in self.judged for check in found.checks if check.elements]
        return sum(check.tensors for check in judged), sum(check.elements for check in judged)

    @property
    def judged(self) -> tuple[Findings, ...]:
        """Findings of the runners that must be equal to the reference."""
        return tuple(found for found in self.findings if found.role == Role.JUDGED.value)

    @property
    def problems(self) -> list[str]:
        """Every reason for a no: what was found wrong, what was not compared, and plans of other graphs."""
        reasons = [f"{found.runner}: {problem}" for found in self.findings for problem in found.problems]
        accounted = {*self.left_out, *(found.runner for found in self.findings)}
        reasons += [f"{runner.name} was not examined" for runner in RUNNERS if runner.name not in accounted]
        reasons += [
            f"{found.runner}: nothing was compared"
            for found in self.judged
            if not sum(check.elements for check in found.checks)
        ]
        layers = ["layers were not compared"] if self.layers is None else self.layers.reasons
        reasons += [f"layer by layer: {reason}" for reason in layers]
        related = {kinship.form for kinship in self.kinships}
        reasons += [f"{form.value} was not held against its kin" for form in FORMS if form.value not in related]
        reasons += [problem for kinship in self.kinships for problem in kinship.problems]
        return reasons + [problem for plan in self.plans for problem in plan.problems]

    @property
    def verdict(self) -> bool:
        """Whether everything that was judged is equal to the reference."""
        return not self.problems

    @property
    def engine(self) -> str:
        """What ran on a GPU and what did not, as the subjects' labels have it."""
        labels = [] if self.layers is None else self.layers.subjects
        graphs = dict.fromkeys(label.rpartition(": ")[2] for label in labels if label.startswith(ENGINE))
        if not graphs:
            return "No engine was run: the graphs were, on the CPU. A plan is looked at, not opened."
        return (
            f"Engines were built from {', '.join(graphs)} and run on a GPU, for the comparison layer by layer; the "
            "rest ran on the CPU. A plan is looked at, not opened."
        )

    @property
    def noise(self) -> Noise | None:
        """What BF16 itself does to the logits, as PyTorch shows it."""
        return next((found.noise for found in self.findings if found.role == Role.NOISE.value), None)

    @property
    def near_ties(self) -> list[int]:
        """Steps of the continuation at which BF16 may choose another token, and would not be wrong."""
        reference = next((found for found in self.findings if found.role == Role.REFERENCE.value), None)
        if reference is None or self.noise is None:
            return []
        return greedy.near_ties(reference.continuation, self.noise.largest)

    def to_json(self) -> dict[str, Any]:
        """Give plain JSON values, the verdict first."""
        tensors, elements = self.compared
        return {
            "verdict": "yes" if self.verdict else "no",
            "problems": self.problems,
            "compared": {"tensors": tensors, "elements": elements},
            "model": self.model,
            "target": self.target,
            "engine": self.engine,
            "uses_rope": self.uses_rope,
            "prompt": {"text": self.prompt.text, "ids": self.prompt.ids},
            "texts": dict(self.texts),
            "near_ties": self.near_ties,
            "left_out": dict(self.left_out),
            "paper": self.paper.to_json(),
            "runners": [found.to_json() for found in self.findings],
            "kinships": [asdict(kinship) for kinship in self.kinships],
            "layers": None if self.layers is None else self.layers.to_json(),
            "plans": [{"target": plan.target, "problems": plan.problems} for plan in self.plans],
        }

    def write(self, path: Path) -> None:
        """Write report.json."""
        text = json.dumps(self.to_json(), indent=1, ensure_ascii=False, allow_nan=False)
        path.write_text(text + "\n", encoding="utf-8")

    @classmethod
    def read(cls, folder: Path) -> Report:
        """Read the report of an earlier run."""
        raw = json.loads((folder / REPORT).read_text(encoding="utf-8"))
        return cls(
            raw["model"],
            raw["target"],
            tuple(raw["uses_rope"]),
            Prompt(tuple(raw["prompt"]["ids"]), raw["prompt"]["text"]),
            tuple(Findings.from_json(found) for found in raw["runners"]),
            raw["texts"],
            tuple(PlanState(plan["target"], tuple(plan["problems"])) for plan in raw["plans"]),
            folder,
            layers=None if raw["layers"] is None else LayerFindings.from_json(raw["layers"]),
            left_out=raw["left_out"],
            kinships=tuple(Kinship(**{**one, "problems": tuple(one["problems"])}) for one in raw["kinships"]),
            paper=Paper.from_json(raw["paper"]),
            up_to_date=True,
        )


def read_report(folder: Path, remedy: str) -> Report:
    """Read the report of an earlier run, which may be one of another version.

    Raises:
        StageError: it is missing, or none of this version.
    """
    try:
        return Report.read(folder)
    except FileNotFoundError:
        raise refuse(f"{folder / REPORT} is missing", expected="a report", remedy=remedy) from None
    except (ValueError, KeyError, TypeError) as error:
        raise refuse(f"{folder / REPORT} is no report of this version", found=repr(error), remedy=remedy) from None


def subjects(findings: Sequence[Findings]) -> list[str]:
    """Every subject that any runner was checked on; those of the judged runners come first, in their order."""
    ordered = sorted(findings, key=lambda found: found.role != Role.JUDGED.value)
    return list(dict.fromkeys(check.subject for found in ordered for check in found.checks))
