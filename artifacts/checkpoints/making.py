"""From a seed to the checkpoint: tokenizer, training, rounding to BF16, exam, card.

```
seed ─► tokenizer, template ─► training (state in a work folder) ─► BF16 weights ─► exam ─► checkpoint folder
```
"""

from __future__ import annotations

import json
import multiprocessing
import os
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from artifacts.checkpoints import card
from artifacts.checkpoints.architecture import CONFIG, GENERATION
from artifacts.checkpoints.conversations import PROCESSES
from artifacts.checkpoints.exam import make_exam
from artifacts.checkpoints.progress import Progress
from artifacts.checkpoints.vocabulary import SETTINGS, write_tokenizer
from artifacts.errors import refuse
from artifacts.writing import Writing, cannot_write, probe

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerFast, SmolLM3ForCausalLM

    from artifacts.checkpoints.training import Recipe, State

TEMPLATE = "chat_template.jinja"
_STATE = "state.pt"
_KEPT_EVERY, _SCORED_EVERY = 100, 200
"""Steps."""


def make(place: Path, work: Path, recipe: Recipe, progress: Progress) -> None:
    """Train the tiny model and write its checkpoint.

    Args:
        place: the checkpoint's folder.
        work: where the state of the training is kept until it is done; one that was stopped goes on from there.
        recipe: seed, steps and rates.
        progress: is told of steps, losses and scores.

    Raises:
        StageError: a folder cannot be written, or what is kept there is no state of this training.
    """
    for folder, option in ((work, "--work"), (place, "--place")):
        _probe(folder, option)
    state = _begin(work, recipe)
    write_words(work)
    with tempfile.TemporaryDirectory() as meeting, _peers(work, recipe, Path(meeting) / "meeting"):
        _train(work, state, progress, 0, Path(meeting) / "meeting")
    write_checkpoint(place, work, state, progress)
    (work / _STATE).unlink()


def write_words(folder: Path) -> None:
    """Write what turns messages into ids: tokenizer and chat template."""
    template = (Path(__file__).parent / TEMPLATE).read_text(encoding="utf-8")
    (folder / TEMPLATE).write_text(template, encoding="utf-8")
    write_tokenizer(folder, template)
    (folder / "tokenizer_config.json").write_text(json.dumps(SETTINGS, indent=2) + "\n", encoding="utf-8")


def read_words(folder: Path) -> PreTrainedTokenizerFast:
    """Load the tokenizer with its chat template."""
    from transformers import PreTrainedTokenizerFast

    tokenizer = PreTrainedTokenizerFast.from_pretrained(folder)
    assert isinstance(tokenizer, PreTrainedTokenizerFast)
    return tokenizer


def write_checkpoint(place: Path, work: Path, state: State, progress: Progress) -> None:
    """Round the weights, ask the whole exam, and write every file of the checkpoint."""
    from safetensors.torch import save_file

    tokenizer, exam = read_words(work), make_exam()
    weights = {name: tensor.bfloat16() for name, tensor in state.model.model.state_dict(prefix="model.").items()}
    state.model.load_state_dict({name: tensor.float() for name, tensor in weights.items()}, strict=False)
    progress.step("asking the exam")
    found = card.examine(state.model, tokenizer, exam)
    with Writing(place) as writing:
        save_file(weights, writing.path("model.safetensors"), metadata={"format": "pt"})
        writing.path("model.safetensors").chmod(0o644)
        for name, content in (("config.json", CONFIG), ("generation_config.json", GENERATION)):
            writing.path(name).write_text(json.dumps(content, indent=2) + "\n", encoding="utf-8")
        for name in ("tokenizer.json", "tokenizer_config.json", TEMPLATE):
            writing.path(name).write_bytes((work / name).read_bytes())
        exam.write(writing.path("exam.json"))
        card.draw_curves(writing.path(card.CURVES), state)
        writing.path("README.md").write_text(card.text(state, found), encoding="utf-8")


@contextmanager
def _peers(work: Path, recipe: Recipe, meeting: Path) -> Iterator[None]:
    """Run the other processes of the training beside this one; they end with it.

    Raises:
        StageError: one of them has ended before.
    """
    others = [
        multiprocessing.get_context("spawn").Process(target=_follow, args=(work, recipe, rank, meeting), daemon=True)
        for rank in range(1, PROCESSES)
    ]
    for other in others:
        other.start()
    try:
        yield
    except RuntimeError as error:  # gloo's, when nobody answers
        for other in others:
            other.join(timeout=2)
        ended = [f"exit code {other.exitcode}" for other in others if other.exitcode is not None]
        if not ended:
            raise
        raise refuse(
            "a process of the training has ended; the state is kept as it was after the last hundred steps",
            expected=f"{PROCESSES} processes until the last step",
            found=f"{', '.join(ended)} (-9: the system may have been short of memory)",
            remedy="free memory and say the same again: it goes on from there",
        ) from error
    finally:
        for other in others:
            other.join(timeout=10)
            other.terminate()


def _probe(folder: Path, option: str) -> None:
    """Insist on a folder that takes files, before forty minutes' work and not after it."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        probe(folder)
    except OSError as error:
        raise cannot_write(folder, error, setting=option) from error


def _begin(work: Path, recipe: Recipe) -> State:
    """Give the state that is kept, or the untrained one."""
    import torch

    from artifacts.checkpoints.training import State

    torch.set_num_threads(1)
    state, kept = State.begin(recipe), work / _STATE
    if kept.exists():
        state.load(kept)
    return state


def _follow(work: Path, recipe: Recipe, rank: int, meeting: Path) -> None:
    """Train beside the first process, and tell nobody; the first one says that it was interrupted."""
    first = multiprocessing.parent_process()
    try:
        _train(work, _begin(work, recipe), Progress(None), rank, meeting)
    except KeyboardInterrupt:
        pass
    except RuntimeError:  # gloo's, when nobody answers
        if first is not None:
            first.join(timeout=2)
        if first is None or first.is_alive():
            raise


def _train(work: Path, state: State, progress: Progress, rank: int, meeting: Path) -> None:
    """Train in one of the processes; the first keeps the state, scores it and tells of it."""
    from torch import distributed

    from artifacts.checkpoints.training import train

    recipe, kept = state.recipe, work / _STATE
    os.environ["GLOO_SOCKET_IFNAME"] = "lo"
    distributed.init_process_group("gloo", init_method=f"file://{meeting}", rank=rank, world_size=PROCESSES)
    # Nobody may write a newer state before all have read this one.
    distributed.barrier()
    tokenizer = read_words(work)
    begun, before = time.monotonic(), state.seconds
    progress.begin(recipe.steps, len(state.losses))
    for done in train(state, tokenizer):
        state.seconds = before + time.monotonic() - begun
        if rank == 0:
            if done % _SCORED_EVERY == 0 or done == recipe.steps:
                state.scores.append((done, _score(state.model, tokenizer)))
            if done % _KEPT_EVERY == 0 or done == recipe.steps:
                state.save(kept)
            progress.tell(done, state)
    distributed.destroy_process_group()


def _score(model: SmolLM3ForCausalLM, tokenizer: PreTrainedTokenizerFast) -> dict[str, float]:
    from artifacts.checkpoints.skills import Question, score

    exam = make_exam()
    cases = [case for skill in exam.skills for case in exam.of(skill, card.ASKED_MEANWHILE)]
    return score(model, [Question.of(case, tokenizer) for case in cases])
