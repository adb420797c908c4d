"""Training: two processes with one thread each share a batch, so that neither waits for the other within a step.

```
seed, step ─► batch ─► loss ─► gradients ─► sum over processes ─► Muon (matrices), AdamW (the rest)
```
What a step does follows from the seed, its number and the state before it. The state is kept now and then, and a
training that was stopped goes on from there.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, distributed
from torch.nn import functional

from artifacts.checkpoints.architecture import CONFIG
from artifacts.checkpoints.beginning import lay_out
from artifacts.checkpoints.conversations import EARLY, LAST, LATE, Mix, batch
from artifacts.checkpoints.muon import Muon
from artifacts.errors import StageError, refuse

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerFast, SmolLM3ForCausalLM

_LONGEST_GRADIENT = 1.0
_HERE = Path(__file__).parent


@dataclass(frozen=True)
class Recipe:
    """What a training is told.

    Attributes:
        early: steps in which rows are short.
        last: steps at the end in which functions are called more often.
        matrices, others: learning rates of Muon and AdamW at their highest.
        warmup: steps until they are.
        decay: the last part of the steps, in which they fall to nothing.
    """

    seed: int = 1
    steps: int = 2400
    early: int = 300
    last: int = 400
    matrices: float = 0.002
    others: float = 0.002
    warmup: int = 100
    decay: float = 0.4

    def __post_init__(self) -> None:
        if self.steps < 1:
            found = f"--steps {self.steps}"
            raise refuse(
                "there is nothing to train", expected="at least 1 step", found=found, remedy="leave out --steps"
            )

    def mix(self, step: int) -> Mix:
        """What the rows of a step are."""
        if step < self.early:
            return EARLY
        return LATE if step < self.steps - self.last else LAST

    def rate(self, step: int) -> float:
        """Share of the highest learning rate at a step."""
        return min(1.0, (step + 1) / self.warmup, (self.steps - step) / (self.decay * self.steps))


@dataclass
class State:
    """A training as far as it is.

    Attributes:
        recipe: what the training was told.
        optimizers: of the matrices, and of the rest.
        losses: of every step so far.
        scores: how far it was, in steps, and the share of right answers of each skill then.
        seconds: what it took so far.
    """

    recipe: Recipe
    model: SmolLM3ForCausalLM
    optimizers: tuple[torch.optim.Optimizer, torch.optim.Optimizer]
    losses: list[float] = field(default_factory=list)
    scores: list[tuple[int, dict[str, float]]] = field(default_factory=list)
    seconds: float = 0.0

    @classmethod
    def begin(cls, recipe: Recipe) -> State:
        """Make the untrained model, the same one for a seed."""
        from transformers import SmolLM3Config, SmolLM3ForCausalLM

        torch.manual_seed(recipe.seed)
        model = SmolLM3ForCausalLM(SmolLM3Config(**{**CONFIG, "dtype": "float32"}))
        lay_out(model)
        matrices = [parameter for parameter in model.model.layers.parameters() if parameter.ndim == 2]
        known = {id(parameter) for parameter in matrices}
        others = [parameter for parameter in model.parameters() if id(parameter) not in known]
        adam = torch.optim.AdamW(others, lr=recipe.others, betas=(0.9, 0.95), weight_decay=0.0)
        return cls(recipe, model, (Muon(matrices, lr=recipe.matrices), adam))

    def save(self, path: Path) -> None:
        """Keep the state, whole or not at all.

        Raises:
            StageError: there is no room for it; the one before it stays.
        """
        beside = path.with_suffix(".part")
        optimizers = [optimizer.state_dict() for optimizer in self.optimizers]
        kept = {"losses": self.losses, "scores": self.scores, "seconds": self.seconds, "recipe": asdict(self.recipe)}
        state = {"model": self.model.state_dict(), "optimizers": optimizers, "sources": sources(), **kept}
        try:
            torch.save(state, beside)
            beside.replace(path)
        except (OSError, RuntimeError) as error:  # torch's writer tells of a full disk by the latter
            beside.unlink(missing_ok=True)
            raise refuse(
                f"the training's state cannot be kept in {path}",
                expected="room for 14 MB more",
                found=str(error)[:200],
                remedy="free space and say the same again: it goes on from the state before",
            ) from error

    def load(self, path: Path) -> None:
        """Take up a kept state; one that is refused leaves this one spoiled.

        Raises:
            StageError: it is none, or that of another recipe, or of this recipe with other files.
        """
        try:
            kept: dict[str, Any] = torch.load(path, weights_only=True)
            missing = {"model", "optimizers", "losses", "scores", "seconds", "recipe", "sources"} - kept.keys()
        except Exception as error:  # torch's readers raise what their formats' parsers do
            raise _no_state(path, f"{type(error).__name__}: {str(error)[:200]}") from error
        if missing:
            raise _no_state(path, f"no {', '.join(sorted(missing))} in it")
        if kept["recipe"] != asdict(self.recipe):
            raise refuse(
                f"{path} is the state of another training",
                expected=str(self.recipe),
                found=str(kept["recipe"]),
                remedy="finish that one with its own --seed and --steps, or remove the file, or give another --work",
            )
        if kept["sources"] != sources():
            raise refuse(
                f"{path} was trained with other files of this recipe",
                expected=f"sha256 {sources()} of {_HERE}",
                found=str(kept["sources"]),
                remedy="take back what was changed there, or remove the file, or give another --work",
            )
        try:
            self.model.load_state_dict(kept["model"])
            for optimizer, state in zip(self.optimizers, kept["optimizers"], strict=True):
                optimizer.load_state_dict(state)
            self.losses, self.scores, self.seconds = list(kept["losses"]), list(kept["scores"]), float(kept["seconds"])
            numbers = [*self.losses, *(float(weights.detach().sum()) for weights in self.model.parameters())]
            if len(self.losses) > self.recipe.steps:
                raise ValueError(f"{len(self.losses)} losses of {self.recipe.steps} steps")
            if not all(map(math.isfinite, numbers)):
                raise ValueError("numbers that are not finite")
        except Exception as error:  # each of them raises what it likes
            raise _no_state(path, f"{type(error).__name__}: {str(error)[:200]}") from error


def sources() -> str:
    """Give the sha256 of what this recipe is made of: a state is taken up by the files that made it and no others."""
    digest = hashlib.sha256()
    for path in sorted([*_HERE.glob("*.py"), *_HERE.glob("*.jinja")]):
        digest.update(f"{path.name}\n".encode() + path.read_bytes())
    return digest.hexdigest()


def _no_state(path: Path, found: str) -> StageError:
    expected = "what a training keeps every hundred steps"
    return refuse(f"{path} is no state of a training", expected=expected, found=found, remedy=f"remove {path}")


def train(state: State, tokenizer: PreTrainedTokenizerFast) -> Iterator[int]:
    """Go on to the recipe's last step; every process of the group does the same.

    Yields:
        The number of steps done, after each.
    """
    recipe = state.recipe
    rank, processes = distributed.get_rank(), distributed.get_world_size()
    for step in range(len(state.losses), recipe.steps):
        ids, weights = batch(tokenizer, recipe.seed, step, recipe.mix(step))
        mine = torch.from_numpy(ids[rank::processes]), torch.from_numpy(weights[rank::processes])
        state.losses.append(_learn(state, *mine, rate=recipe.rate(step)))
        yield step + 1


def _learn(state: State, ids: Tensor, weights: Tensor, *, rate: float) -> float:
    """Take one step.

    Args:
        state: the training so far.
        ids: this process's rows (rows, length).
        weights: of each id as something to predict, likewise.
        rate: share of the highest learning rates.

    Returns:
        The loss of the whole batch.
    """
    hidden = state.model.model(input_ids=ids).last_hidden_state[:, :-1]
    losses = functional.cross_entropy(state.model.lm_head(hidden).flatten(0, 1), ids[:, 1:].flatten(), reduction="none")
    weight = weights[:, 1:].flatten()
    loss = (losses * weight).sum()
    loss.backward()  # type: ignore[no-untyped-call]  # PyTorch gives it no types
    total = _share_gradients(list(state.model.parameters()), torch.stack([loss.detach(), weight.sum()]))
    for optimizer, highest in zip(state.optimizers, (state.recipe.matrices, state.recipe.others), strict=True):
        for group in optimizer.param_groups:
            group["lr"] = highest * rate
        optimizer.step()
        optimizer.zero_grad()
    return float(total[0] / total[1])


def _share_gradients(parameters: list[torch.nn.Parameter], sums: Tensor) -> Tensor:
    """Make every process's gradients those of the whole batch's mean loss, no longer than `_LONGEST_GRADIENT`.

    Args:
        parameters: every parameter, each with a gradient of this process's rows.
        sums: loss and weight of this process's rows (2,).

    Returns:
        Loss and weight of all rows (2,).
    """
    flat = torch.cat([sums, *(parameter.grad.flatten() for parameter in parameters if parameter.grad is not None)])
    distributed.all_reduce(flat)
    total, gradient = flat[:2], flat[2:] / flat[1]
    gradient *= min(1.0, _LONGEST_GRADIENT / (float(gradient.norm()) + 1e-9))
    pieces = torch.split(gradient, [parameter.numel() for parameter in parameters])
    for parameter, piece in zip(parameters, pieces, strict=True):
        parameter.grad = piece.view_as(parameter)
    return total
