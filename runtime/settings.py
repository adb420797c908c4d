"""How to choose tokens and when to stop; the checkpoint's generation_config.json gives what a caller leaves out."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any

from artifacts.errors import Problem, StageError, refuse

MEND = "correct the value, or leave it out"

HOTTEST = 100.0
"""Highest temperature; at it the most and the least likely token are all but equally likely."""

LEAST_PENALTY, MOST_PENALTY = 0.01, 100.0
"""Bounds of the repetition penalty; logits stay far from the ends of FP32."""


@dataclass(frozen=True)
class Sampling:
    """How one token is chosen from a row of logits; checked where it is made.

    Attributes:
        temperature: divisor of the logits, to 100; 0 takes the most likely token (greedy) and ignores the limits below.
        top_k: keep the k most likely tokens; 0 keeps all.
        top_p: keep the fewest most likely tokens whose probabilities reach this sum.
        min_p: keep tokens at least this likely, as a share of the most likely one's probability.
        repetition_penalty: divide positive and multiply negative logits of tokens seen before, by 0.01 to 100
            (arXiv:1909.05858).
        seed: the same seed gives the same tokens; `None` takes another each time.
    """

    temperature: float = 0.0
    top_k: int = 0
    top_p: float = 1.0
    min_p: float = 0.0
    repetition_penalty: float = 1.0
    seed: int | None = None

    def __post_init__(self) -> None:
        problems = list(_judge_sampling(self))
        if problems:
            raise StageError(problems)

    @property
    def greedy(self) -> bool:
        """Whether the most likely token is always taken."""
        return self.temperature == 0


@dataclass(frozen=True)
class Settings:
    """What a caller may say of one continuation.

    Attributes:
        sampling: how tokens are chosen.
        max_tokens: most new tokens; `None` leaves the context as the only limit.
        stop: strings that end the text; they are not part of it.
        ignore_stop_ids: go on past the checkpoint's own stop ids (for measurements).
    """

    sampling: Sampling = field(default_factory=Sampling)
    max_tokens: int | None = None
    stop: tuple[str, ...] = ()
    ignore_stop_ids: bool = False

    def __post_init__(self) -> None:
        problems = []
        if self.max_tokens is not None and not _is_integer(self.max_tokens, 1):
            problems.append(Problem("max_tokens is no positive integer", "1 or more", repr(self.max_tokens), MEND))
        if not all(isinstance(text, str) and text for text in self.stop):
            problems.append(Problem("a stop string is empty or no text", "text", repr(self.stop)[:200], MEND))
        if problems:
            raise StageError(problems)

    def with_sampling(self, **changes: Any) -> Settings:
        """Give the same settings with some values of the sampling changed; `None` values change nothing."""
        given = {name: value for name, value in changes.items() if value is not None}
        return replace(self, sampling=replace(self.sampling, **given))


@dataclass(frozen=True)
class Defaults:
    """What the checkpoint itself says of generation.

    Attributes:
        settings: from generation_config.json; a key that the file lacks has no effect on the choice.
        stop_ids: ids that end the text: the union of config.json, generation_config.json and the tokenizer.
    """

    settings: Settings
    stop_ids: frozenset[int]

    @classmethod
    def read(cls, folder: Path, tokenizer_stop_id: int | None = None) -> Defaults:
        """Read the defaults from a folder with config.json and, where there is one, generation_config.json.

        Args:
            folder: a checkpoint's folder or a model's `onnx/`.
            tokenizer_stop_id: the tokenizer's `eos_token_id`.

        Raises:
            StageError: a file is no JSON object, or a value is out of range.
        """
        config, generation = _read_json(folder / "config.json"), _read_json(folder / "generation_config.json")
        stop_ids = {*_ids(config), *_ids(generation), *([] if tokenizer_stop_id is None else [tokenizer_stop_id])}
        names = {field.name for field in fields(Sampling)} - {"seed"}
        values = {name: generation[name] for name in names if generation.get(name) is not None}
        if not generation.get("do_sample", False):
            values["temperature"] = 0.0
        else:
            values.setdefault("temperature", 1.0)
        sampling = Sampling(**values)
        return cls(Settings(sampling, max_tokens=generation.get("max_new_tokens")), frozenset(stop_ids))


def _judge_sampling(sampling: Sampling) -> Iterator[Problem]:
    """Yield every value that is out of range."""
    ranges = {
        "temperature": (_is_number(sampling.temperature, 0, HOTTEST), f"a number >= 0 and <= {HOTTEST:g}"),
        "top_k": (_is_integer(sampling.top_k, 0), "an integer >= 0"),
        "top_p": (_is_number(sampling.top_p, 0, 1) and sampling.top_p > 0, "a number > 0 and <= 1"),
        "min_p": (_is_number(sampling.min_p, 0, 1), "a number >= 0 and <= 1"),
        "repetition_penalty": (
            _is_number(sampling.repetition_penalty, LEAST_PENALTY, MOST_PENALTY),
            f"a number >= {LEAST_PENALTY:g} and <= {MOST_PENALTY:g}",
        ),
        "seed": (sampling.seed is None or _is_integer(sampling.seed), "an integer, or none"),
    }
    for name, (good, expected) in ranges.items():
        if not good:
            yield Problem(f"{name} is out of range", expected, repr(getattr(sampling, name)), MEND)


def _is_number(value: object, low: float, high: float) -> bool:
    number = isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
    return number and low <= float(value) <= high  # type: ignore[arg-type]  # `number` says that it is one


def _is_integer(value: object, low: int | None = None) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and (low is None or value >= low)


def _ids(raw: Mapping[str, Any]) -> list[int]:
    """Give `eos_token_id` as a list, whether the file has one id, several or none."""
    ids = raw.get("eos_token_id")
    return [] if ids is None else list(ids) if isinstance(ids, list) else [ids]


def _read_json(path: Path) -> dict[str, Any]:
    """Read a JSON object; a file that is not there is an empty one."""
    try:
        raw = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return {}
    except ValueError as error:
        raise refuse(f"{path} is not JSON", found=str(error), remedy="export the model again") from None
    if not isinstance(raw, dict):
        raise refuse(f"{path} is not a JSON object", found=type(raw).__name__, remedy="export the model again")
    return raw
