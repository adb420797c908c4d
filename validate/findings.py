"""What one runner was found to do: checks with their counts, movements, a continuation; kept as JSON."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from validate.certificate import Movement
from validate.comparison import Tally
from validate.exam import Sheet
from validate.greedy import Continuation

SHOWN = 12
"""Problems of one check that are kept; a wrong graph has thousands."""


@dataclass(frozen=True)
class Check:
    """One thing that was judged about one runner.

    Attributes:
        subject: what was looked at.
        tensors: tensors compared.
        elements: values compared.
        logits: largest difference of logits, as a part of their largest magnitude; nothing if none was compared.
        cache: the same of the cache tensors.
        tolerance: the limit of both; nothing where only finiteness is judged.
        problems: why the answer is no; empty if it is yes.
    """

    subject: str
    tensors: int
    elements: int
    logits: float | None = None
    cache: float | None = None
    tolerance: float | None = None
    problems: tuple[str, ...] = ()

    @classmethod
    def of(cls, subject: str, tally: Tally) -> Check:
        """Finish a tally."""
        worst = {group: difference.relative for group, difference in tally.worst.items()}
        return cls(
            subject,
            tally.tensors,
            tally.elements,
            worst.get("logits"),
            worst.get("cache"),
            tally.tolerance,
            abridged(tally.finish()),
        )

    @property
    def worst(self) -> float | None:
        """The larger of the two differences."""
        return max((part for part in (self.logits, self.cache) if part is not None), default=None)


@dataclass(frozen=True)
class Noise:
    """How far logits are from the reference's, over all passages: what the arithmetic itself does.

    Attributes:
        largest: largest difference of a logit.
        rms: root of the mean squared difference.
        magnitude: largest logit of the reference.
    """

    largest: float
    rms: float
    magnitude: float


@dataclass
class Findings:
    """All that was found out about one runner.

    Attributes:
        sheet: what it made of the exam; nothing where there is none.
        left_out: scenarios that do not fit this model or graph, and why.
        seconds: of loading and of running.
        peak_bytes: largest resident memory of the runner's process, weights that it maps included.
    """

    runner: str
    role: str
    checks: list[Check] = field(default_factory=list)
    movements: tuple[Movement, ...] = ()
    continuation: Continuation = field(default_factory=Continuation)
    noise: Noise | None = None
    sheet: Sheet | None = None
    left_out: list[str] = field(default_factory=list)
    seconds: dict[str, float] = field(default_factory=dict)
    peak_bytes: int = 0

    @property
    def problems(self) -> list[str]:
        """Every reason for a no, with the check that found it."""
        return [f"{check.subject}: {problem}" for check in self.checks for problem in check.problems]

    def to_json(self) -> dict[str, Any]:
        """Give plain JSON values; numbers that are not finite become the strings "inf" and "nan"."""
        raw = asdict(self)
        raw["movements"] = [
            {"layer": m.layer, "key": _number(m.key), "value": _number(m.value)} for m in self.movements
        ]
        raw["continuation"]["gaps"] = [_number(gap) for gap in self.continuation.gaps]
        if self.noise is not None:
            raw["noise"] = {name: _number(value) for name, value in asdict(self.noise).items()}
        raw["sheet"] = None if self.sheet is None else self.sheet.to_json()
        for check in raw["checks"]:
            check |= {"logits": _number(check["logits"]), "cache": _number(check["cache"])}
        return raw

    @classmethod
    def from_json(cls, raw: Mapping[str, Any]) -> Findings:
        """Read what `to_json` gave."""
        checks = [
            Check(
                **{
                    **check,
                    "problems": tuple(check["problems"]),
                    "logits": _float(check["logits"]),
                    "cache": _float(check["cache"]),
                }
            )
            for check in raw["checks"]
        ]
        moved = tuple(Movement(m["layer"], float(m["key"]), float(m["value"])) for m in raw["movements"])
        rest = {
            "checks": checks,
            "movements": moved,
            "continuation": Continuation(
                raw["continuation"]["tokens"], [float(g) for g in raw["continuation"]["gaps"]]
            ),
            "noise": Noise(*(float(raw["noise"][name]) for name in ("largest", "rms", "magnitude")))
            if raw["noise"]
            else None,
            "sheet": Sheet.from_json(raw["sheet"]) if raw["sheet"] else None,
        }
        return cls(**{**raw, **rest})


def abridged(problems: list[str]) -> tuple[str, ...]:
    """Keep the first problems and the number of the others."""
    more = len(problems) - SHOWN
    return tuple(problems) if more <= 0 else (*problems[:SHOWN], f"and {more} more of the kind")


def _number(value: float | None) -> float | str | None:
    """JSON has no infinity and no NaN."""
    return value if value is None or abs(value) < float("inf") else str(value)


def _float(value: float | str | None) -> float | None:
    return None if value is None else float(value)
