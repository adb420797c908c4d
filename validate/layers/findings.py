"""What the layer-by-layer comparison found: one row for every tensor, instrument and subject; kept as JSON."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, Literal

Instrument = Literal["structure", "precision"]
"""Structure: FP32 twins against the reference. Precision: each block of the BF16 network against its own inputs."""


@dataclass(frozen=True)
class TensorFinding:
    """One tensor of one subject under one instrument, over all calls together; error and spread are the worst call's.

    Attributes:
        name: the tensor, such as `model.layers.3.self_attn.q_rotary` or `present.3.key`.
        layer: the decoder layer; nothing for embedding, mask, final norm and logits.
        kind: what it is in its layer: `self_attn.q_rotary`, `present.key`, `layer`, `logits`, …
        order: its place in graph order, the same for every subject.
        subject: what was judged, such as `TensorRT network, evaluated on the CPU: model_fp32`.
        scenario: the call that speaks loudest for the measure that decided; empty where it cannot be compared in any,
            such as a missing tensor.
        elements: values compared, over all calls.
        error: largest difference as a part of the largest magnitude that was expected.
        magnitude: that largest magnitude.
        slope: least squares factor between what came out and what was expected; 1 is right. For an attention under
            `precision` it is the factor of its scores.
        bias: mean difference, as a part of the expected root mean square.
        spread: root mean square of the difference, as a part of the expected root mean square; of the worst call.
        rows: standard deviation of the slopes of single tokens, beyond what independent noise explains.
        measure: which of the numbers decided (`error`, `slope`, `bias`, `spread`, `rows`), or the nearest to its limit.
        limit: that measure's limit, as the distance from what is right.
        problem: why the answer is no; empty if it is yes.
    """

    name: str
    layer: int | None
    kind: str
    order: int
    instrument: Instrument
    subject: str
    scenario: str
    elements: int
    error: float
    magnitude: float
    slope: float | None
    bias: float | None
    spread: float | None
    rows: float | None
    measure: str
    limit: float
    problem: str = ""

    @property
    def verdict(self) -> bool:
        """Whether it is right."""
        return not self.problem


@dataclass(frozen=True)
class FirstWrong:
    """The first wrong tensor in graph order, and what to make of it.

    Attributes:
        scenario: as of its row: a call, or empty.
        feeds: compared tensors that feed it, each with whether it is right, in graph order.
        pattern: what it looks like: `bookkeeping`, `structure`, `position`, `slope`, `precision` or `growing`.
        words: what that means, as sentences for a person.
    """

    name: str
    layer: int | None
    instrument: Instrument
    subject: str
    scenario: str
    feeds: tuple[tuple[str, bool], ...]
    pattern: str
    words: str

    @property
    def where(self) -> str:
        """In which layer and in which call it was wrong, in words."""
        layer = "" if self.layer is None else f"layer {self.layer}, "
        return layer + (f'in the call "{self.scenario}"' if self.scenario else "in every call")


@dataclass(frozen=True)
class LastWord:
    """Logits of a subject with nothing marked, against the reference's with nothing marked.

    Attributes:
        subject: what ran, with nothing but the contract's outputs.
        elements: logits compared.
        error: largest difference as a part of the largest magnitude.
        tokens: next tokens compared.
        same: of these, how many have the same largest logit.
        ties: of the others, how many the reference holds for nearly as likely as its own: no fault.
        reference: a sample of the reference's logits, for a picture.
        actual: the subject's at the same places.
        problem: why the answer is no; empty if it is yes.
    """

    subject: str
    elements: int
    error: float
    tokens: int
    same: int
    ties: int
    reference: tuple[float, ...] = ()
    actual: tuple[float, ...] = ()
    problem: str = ""

    @property
    def note(self) -> str:
        """Say that other tokens are no fault; nothing where there are none, or where something is wrong."""
        if self.problem or not self.ties:
            return ""
        words = "next tokens are others, only where the reference holds both for nearly as likely: a tie"
        return f"{self.subject}: {self.ties} of {self.tokens} {words}"


@dataclass(frozen=True)
class LayerFindings:
    """All that the comparison found.

    Attributes:
        asked: what was asked for: `named`, `all`, or layers and names.
        reference: what everything is compared with, in words.
        backend: the TensorRT whose parser made the networks, with its version.
        scenarios: the calls, in order.
        tensors: rows in graph order.
        problems: reasons for a no that belong to no tensor: missing, unexpected, nothing compared.
        notes: what a reader has to know, such as the parser's warnings.
    """

    asked: str
    reference: str
    backend: str
    scenarios: tuple[str, ...]
    tensors: tuple[TensorFinding, ...]
    first: FirstWrong | None
    last_word: tuple[LastWord, ...]
    problems: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()

    @property
    def verdict(self) -> bool:
        """Whether every tensor is right and something was compared."""
        return not self.reasons

    @property
    def reasons(self) -> list[str]:
        """Every reason for a no, the first wrong tensor's explanation first."""
        first = [] if self.first is None else [f"first wrong tensor, {self.first.subject}: {self.first.words}"]
        rows = [f"{row.subject}: {row.problem}" for row in self.tensors if row.problem]
        last = [f"{word.subject}: {word.problem}" for word in self.last_word if word.problem]
        nothing = [] if self.compared[1] else ["nothing was compared"]
        return [*first, *self.problems, *rows, *last, *nothing]

    @property
    def compared(self) -> tuple[int, int]:
        """Tensors and elements compared, over all subjects."""
        return sum(row.elements > 0 for row in self.tensors), sum(row.elements for row in self.tensors)

    @property
    def subjects(self) -> list[str]:
        """What was judged, each once."""
        rows = [row.subject for row in self.tensors]
        return list(dict.fromkeys([*rows, *(word.subject for word in self.last_word)]))

    def to_json(self) -> dict[str, Any]:
        """Give plain JSON values, the verdict first; numbers that JSON has not become strings."""
        tensors, elements = self.compared
        head = {"verdict": "yes" if self.verdict else "no", "compared": {"tensors": tensors, "elements": elements}}
        return {**head, **_plain(asdict(self))}

    @classmethod
    def from_json(cls, raw: Mapping[str, Any]) -> LayerFindings:
        """Read what `to_json` gave."""
        first = raw["first"] and {
            **raw["first"],
            "feeds": tuple((name, right) for name, right in raw["first"]["feeds"]),
        }
        return cls(
            asked=raw["asked"],
            reference=raw["reference"],
            backend=raw["backend"],
            scenarios=tuple(raw["scenarios"]),
            tensors=tuple(_read(TensorFinding, row) for row in raw["tensors"]),
            first=FirstWrong(**first) if first else None,
            last_word=tuple(_read(LastWord, word) for word in raw["last_word"]),
            problems=tuple(raw["problems"]),
            notes=tuple(raw["notes"]),
        )


def _plain(value: Any) -> Any:
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    if isinstance(value, dict):
        return {name: _plain(part) for name, part in value.items()}
    return [_plain(part) for part in value] if isinstance(value, list | tuple) else value


def _read(kind: type[Any], raw: Mapping[str, Any]) -> Any:
    """Make a record; its floats may be strings, and its lists become tuples."""
    values = dict(raw)
    for field in dataclasses.fields(kind):
        value = values.get(field.name)
        if isinstance(value, list):
            values[field.name] = tuple(float(part) for part in value)
        elif isinstance(value, str) and str(field.type).startswith("float"):
            values[field.name] = float(value)
    return kind(**values)
