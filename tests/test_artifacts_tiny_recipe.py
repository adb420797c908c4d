"""The recipe of the trained default: what it makes follows from the seed, and the exam is never trained on."""

from __future__ import annotations

import multiprocessing
import random
import re
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pytest
import torch
from torch import distributed

from artifacts.checkpoint import SHIPPED
from artifacts.checkpoints import conversations, making, tasks, training, world
from artifacts.checkpoints.__main__ import main
from artifacts.checkpoints.beginning import LOOKS_BACK, MATCHES
from artifacts.checkpoints.exam import CASES, make_exam
from artifacts.checkpoints.making import make, read_words, write_words
from artifacts.checkpoints.muon import orthogonal
from artifacts.checkpoints.progress import Progress
from artifacts.checkpoints.skills import landing, rope_toggled, too_wide
from artifacts.checkpoints.training import Recipe, State, train
from artifacts.checkpoints.vocabulary import END, TURN_END, VOCABULARY
from artifacts.errors import StageError

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerFast, SmolLM3ForCausalLM


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory: pytest.TempPathFactory) -> PreTrainedTokenizerFast:
    """The tokenizer, made anew."""
    folder = tmp_path_factory.mktemp("words")
    write_words(folder)
    return read_words(folder)


@pytest.fixture
def group(tmp_path: Path) -> Iterator[None]:
    """A training of one process."""
    distributed.init_process_group("gloo", init_method=f"file://{tmp_path}/meeting", rank=0, world_size=1)
    yield
    distributed.destroy_process_group()


def test_the_tokenizer_is_the_one_that_lies_in_the_repository(tokenizer: PreTrainedTokenizerFast) -> None:
    kept, made = SHIPPED / "smollm3-tiny", Path(tokenizer.name_or_path)
    for name in ("tokenizer.json", "tokenizer_config.json", "chat_template.jinja"):
        assert (kept / name).read_bytes() == (made / name).read_bytes()
    assert len(tokenizer) == VOCABULARY


def test_any_text_is_spelled_and_digits_and_capitals_one_by_one(tokenizer: PreTrainedTokenizerFast) -> None:
    for text in ("The code of Mira is 0471.", "Copy KJFMQ", "Grüße, 你好\n\t<think>"):
        assert tokenizer.decode(tokenizer(text, add_special_tokens=False)["input_ids"]) == text
    assert len(tokenizer("0471", add_special_tokens=False)["input_ids"]) == 4
    assert len(tokenizer("KJFMQ", add_special_tokens=False)["input_ids"]) == 5


def test_a_batch_follows_from_its_seed_and_step(tokenizer: PreTrainedTokenizerFast) -> None:
    first, again, other = (conversations.batch(tokenizer, 1, step, conversations.LATE) for step in (7, 7, 8))
    for one, same in zip(first, again, strict=True):
        np.testing.assert_array_equal(one, same)
    assert first[0].shape != other[0].shape or (first[0] != other[0]).any()


def test_what_the_model_answers_weighs_most_and_padding_nothing(tokenizer: PreTrainedTokenizerFast) -> None:
    ids, weights = conversations.batch(tokenizer, 1, 3, conversations.LATE)
    assert (weights[ids == tokenizer.pad_token_id] == 0).all()
    answered = tokenizer.decode(ids[0][weights[0] == 1])
    assert "<|im_end|>" in answered
    assert "<|im_start|>" not in answered
    assert "Remember this" not in answered


def test_plain_text_is_answered_and_ended(tokenizer: PreTrainedTokenizerFast) -> None:
    text = conversations.plain_text(random.Random(5), 400)
    assert text.endswith(END)
    assert "The capital of" in text
    answers = conversations._PLAIN_ANSWER.findall(text)
    assert all(answer.endswith(("\n", END)) for answer in answers)
    assert len(answers) == text.count("?")


def test_the_exam_asks_everything_once_and_each_function_as_often() -> None:
    exam = make_exam()
    assert exam == make_exam()
    assert len(set(map(repr, exam.cases))) == len(exam.cases)
    counts = {skill: len(exam.of(skill)) for skill in exam.skills}
    assert counts == dict.fromkeys(exam.skills, CASES) | {"capital": len(world.CAPITALS)}
    called = Counter(re.findall(r'"name": "(\w+)", "arg', case.answer)[0] for case in exam.of("tool call"))
    assert called == {tool["function"]["name"]: CASES // len(tasks.TOOLS) for tool in tasks.TOOLS}


def held_out() -> set[str]:
    """Give what of the exam may not be trained on, sums in either order."""
    exam = make_exam()
    found = {str(case.needs) for case in exam.of("recall")}
    found |= {sentence + "." for sentence in exam.text.removesuffix(".").split(". ")}
    found |= {case.answer for case in exam.of("tool call") if re.search("set_timer|find_ticket", case.answer)}
    found |= {case.messages[-1]["content"] + TURN_END for skill in ("copy", "reverse") for case in exam.of(skill)}
    for case in exam.cases:
        for message in case.messages:
            for a, b in re.findall(r"What is (\d+) \+ (\d+)\?", message["content"]):
                found |= {f"What is {a} + {b}?", f"What is {b} + {a}?"}
    return found


def trained_on(tokenizer: PreTrainedTokenizerFast, mix: conversations.Mix, steps: int) -> str:
    """Give all text of some batches."""
    batches = (conversations.batch(tokenizer, 1, step, mix)[0] for step in range(steps))
    return "".join(text for ids in batches for text in tokenizer.batch_decode(ids))


@pytest.mark.parametrize("mix", [conversations.EARLY, conversations.LATE, conversations.LAST])
def test_the_exam_is_never_trained_on(tokenizer: PreTrainedTokenizerFast, mix: conversations.Mix) -> None:
    trained = trained_on(tokenizer, mix, 15)
    assert not [text for text in held_out() if text in trained]
    assert "get_weather" in trained
    # The same search finds what was trained on.
    assert "What is the capital of France?" in trained


@pytest.mark.slow
def test_a_leak_of_each_kind_is_seen(tokenizer: PreTrainedTokenizerFast, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = held_out()
    monkeypatch.setattr(world, "is_held_out", lambda text: False)
    trained = trained_on(tokenizer, conversations.LAST, 30)
    leaked = [text for text in asked if text in trained]
    for kind in (r"What is \d", r"^The .* of .* is", '"set_timer"', r"^The [a-z]+ [a-z]+ [a-z]+.*\."):
        assert [text for text in leaked if re.search(kind, text)], kind


def test_names_are_one_token_wherever_they_stand(tokenizer: PreTrainedTokenizerFast) -> None:
    for name in world.PEOPLE:
        for before in ("", '"', " ", "\n"):
            ids = tokenizer(before + name, add_special_tokens=False)["input_ids"]
            assert tokenizer.convert_ids_to_tokens(ids)[-1] == name


def test_answers_that_lost_their_thoughts_are_no_examples(tokenizer: PreTrainedTokenizerFast) -> None:
    messages = [
        {"role": "user", "content": "What is 1 + 2?"},
        {"role": "assistant", "content": "3"},
        {"role": "user", "content": "What is 2 + 2?"},
        {"role": "assistant", "content": conversations.said("4", "2 + 2 = 4, carry 0.", True)},
    ]
    text = conversations.render(tokenizer, messages, thinks=True, tools=())
    spans = {text[start:end]: weight for start, end, weight in conversations._answers(text)}
    assert spans == {f"3{TURN_END}": 0.0, f"<think>\n2 + 2 = 4, carry 0.\n</think>\n4{TURN_END}": 1.0}


def test_training_begins_with_short_rows_and_ends_with_calls() -> None:
    recipe = Recipe(steps=100, early=10, last=20)
    mixes = [recipe.mix(step) for step in range(recipe.steps)]
    assert mixes == [conversations.EARLY] * 10 + [conversations.LATE] * 70 + [conversations.LAST] * 20


def test_a_tenth_of_the_cases_is_held_out() -> None:
    rng = random.Random(3)
    assert np.mean([tasks.copy(rng).is_exam for _ in range(3000)]) == pytest.approx(0.1, abs=0.02)
    assert tasks.drawn(tasks.copy, rng, exam=True).is_exam
    # Strings are too many for the search above to meet one twice.
    kinds: list[Callable[[random.Random], tasks.Task]] = [tasks.copy, tasks.reverse, tasks.arithmetic]
    kinds += [partial(tasks.tool_call, tool=tool) for tool in (tasks.TIMER, tasks.TICKET)]
    assert not [make for make in kinds for _ in range(100) if tasks.drawn(make, rng, exam=False).is_exam]
    assert not [person for person in world.PEOPLE if tasks.drawn_fact(person, rng, exam=False).task.is_exam]


@pytest.mark.parametrize("shape", [(3, 32, 128), (2, 384, 128), (2, 64, 64)])
def test_muon_brings_singular_values_near_one(shape: tuple[int, ...]) -> None:
    matrices = torch.randn(shape, generator=torch.Generator().manual_seed(1))
    values = torch.linalg.svdvals(orthogonal(matrices))
    assert values.min() > 0.3
    assert values.max() < 1.3


def copied(model: SmolLM3ForCausalLM) -> float:
    """Share of ids that are right in the second and third round of 60 random ids."""
    ids = torch.randint(700, (60,), generator=torch.Generator().manual_seed(2)).repeat(3)[None]
    with torch.no_grad():
        chosen = model(ids).logits[0, :-1].argmax(-1)
    return float((chosen == ids[0, 1:])[60:].float().mean())


def test_the_circuit_copies_before_any_training_and_needs_its_rotation() -> None:
    model = State.begin(Recipe()).model
    assert copied(model) > 0.95
    # Measured: 0.98 as it is, 0.0 and 0.56 so; over 60 tokens a rotation turns only half of the frequencies far.
    for layer, at_most in ((LOOKS_BACK, 0.1), (MATCHES, 0.7)):
        with rope_toggled(model, layer):
            assert copied(model) < at_most
    assert copied(model) > 0.95


@pytest.mark.slow
def test_a_training_that_was_stopped_goes_on_as_if_it_had_not_been(
    tokenizer: PreTrainedTokenizerFast, group: None, tmp_path: Path
) -> None:
    recipe = replace(Recipe(), steps=3, warmup=1)
    whole = State.begin(recipe)
    for done in train(whole, tokenizer):
        if done == 2:
            whole.save(tmp_path / "state.pt")
    rest = State.begin(recipe)
    rest.load(tmp_path / "state.pt")
    assert list(train(rest, tokenizer)) == [3]
    assert rest.losses == whole.losses
    for one, other in zip(rest.model.parameters(), whole.model.parameters(), strict=True):
        assert torch.equal(one, other)


@pytest.mark.slow
def test_two_processes_train_as_one_would_and_go_on_where_they_were_stopped(
    tokenizer: PreTrainedTokenizerFast, group: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    recipe, made = replace(Recipe(), steps=3, warmup=1), list[State]()
    alone = State.begin(recipe)
    list(train(alone, tokenizer))
    distributed.destroy_process_group()

    def stop(done: int, state: State) -> None:
        state.save(tmp_path / "work" / making._STATE)
        if done == 2 and not made:
            raise KeyboardInterrupt

    monkeypatch.setattr(making, "_score", lambda model, tokenizer: {})
    monkeypatch.setattr(making, "write_checkpoint", lambda place, work, state, progress: made.append(state))
    progress = Progress(None)
    monkeypatch.setattr(progress, "tell", stop)
    with pytest.raises(KeyboardInterrupt):
        make(tmp_path / "place", tmp_path / "work", recipe, progress)
    distributed.destroy_process_group()
    monkeypatch.setattr(progress, "tell", lambda done, state: None)
    make(tmp_path / "place", tmp_path / "work", recipe, progress)
    distributed.init_process_group("gloo", init_method=f"file://{tmp_path}/again", rank=0, world_size=1)
    (state,) = made
    np.testing.assert_allclose(state.losses, alone.losses, rtol=1e-5)
    for one, other in zip(state.model.parameters(), alone.model.parameters(), strict=True):
        torch.testing.assert_close(one, other, rtol=0, atol=1e-4)


@pytest.mark.parametrize(
    "kept", [b"rubbish", b"", {"a": 1}, ..., None], ids=["rubbish", "empty", "another", "cut", "folder"]
)
def test_what_is_no_state_of_a_training_is_refused(tmp_path: Path, kept: object) -> None:
    path = tmp_path / "state.pt"
    if kept is None:
        path.mkdir()
    elif isinstance(kept, bytes):
        path.write_bytes(kept)
    elif isinstance(kept, dict):
        torch.save(kept, path)
    else:
        State.begin(Recipe()).save(path)
        path.write_bytes(path.read_bytes()[:100_000])
    with pytest.raises(StageError, match=r"no state of a training(.|\n)*remove .*state\.pt"):
        State.begin(Recipe()).load(path)


@pytest.mark.parametrize("fault", ["shape", "missing", "optimizer", "losses", "too many", "no numbers"])
def test_a_state_that_is_half_right_is_refused(tmp_path: Path, fault: str) -> None:
    path = tmp_path / "state.pt"
    State.begin(Recipe()).save(path)
    kept = torch.load(path, weights_only=True)
    name = "model.norm.weight"
    if fault == "shape":
        kept["model"][name] = kept["model"][name][:-1]
    elif fault == "missing":
        del kept["model"][name]
    elif fault == "optimizer":
        del kept["optimizers"][1]
    elif fault == "losses":
        kept["losses"] = None
    elif fault == "too many":
        kept["losses"] = [0.1] * (Recipe().steps + 1)
    else:
        kept["model"][name][3] = float("nan")
    torch.save(kept, path)
    with pytest.raises(StageError, match="no state of a training"):
        State.begin(Recipe()).load(path)


def test_a_state_for_which_there_is_no_room_leaves_the_one_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, state = tmp_path / "state.pt", State.begin(Recipe())
    state.save(path)
    before = path.read_bytes()

    def fill(kept: object, place: Path) -> None:
        place.write_bytes(b"half")
        raise RuntimeError("unexpected pos 1 vs 2")

    monkeypatch.setattr(torch, "save", fill)
    with pytest.raises(StageError, match=r"cannot be kept(.|\n)*free space"):
        state.save(path)
    assert [path.name for path in tmp_path.iterdir()] == ["state.pt"]
    assert path.read_bytes() == before


@pytest.mark.parametrize("option", ["--work", "--place"])
def test_a_folder_that_takes_no_files_is_refused_before_the_training(tmp_path: Path, option: str) -> None:
    (tmp_path / "file").touch()
    folders = {"--work": tmp_path / "work", "--place": tmp_path / "place", option: tmp_path / "file"}
    with pytest.raises(StageError, match=f"file cannot be written(.|\\n)*set {option} to"):
        make(folders["--place"], folders["--work"], Recipe(), Progress(None))


def test_the_state_of_another_training_is_refused(tmp_path: Path) -> None:
    State.begin(Recipe()).save(tmp_path / "state.pt")
    with pytest.raises(StageError, match="the state of another training"):
        State.begin(Recipe(seed=2)).load(tmp_path / "state.pt")
    with pytest.raises(StageError, match="at least 1 step"):
        Recipe(steps=0)


def test_a_state_is_not_taken_up_by_other_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    State.begin(Recipe()).save(tmp_path / "state.pt")
    State.begin(Recipe()).load(tmp_path / "state.pt")
    monkeypatch.setattr(training, "sources", lambda: "0" * 64)
    with pytest.raises(StageError, match="other files of this recipe"):
        State.begin(Recipe()).load(tmp_path / "state.pt")


@pytest.mark.parametrize("other", [["--seed", "2"], ["--steps", "9"]])
def test_another_model_is_not_put_in_the_defaults_place(other: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(other)
    assert ended.value.code == 2
    assert "a --place of its own" in capsys.readouterr().err


@pytest.mark.slow
def test_a_process_that_is_killed_ends_the_training_with_what_to_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    progress = Progress(None)
    monkeypatch.setattr(making, "_score", lambda model, tokenizer: {})
    monkeypatch.setattr(progress, "tell", lambda done, state: multiprocessing.active_children()[0].kill())
    with pytest.raises(StageError, match=r"has ended; the state is kept(.|\n)*exit code -9(.|\n)*say the same again"):
        make(tmp_path / "place", tmp_path / "work", replace(Recipe(), steps=3, warmup=1), progress)
    distributed.destroy_process_group()
    assert not list((tmp_path / "place").iterdir())


def test_masks_of_a_broken_cache() -> None:
    assert too_wide(3, 5).int().tolist() == [
        [1, 1, 0, 0, 0],
        [1, 1, 1, 0, 0],
        [1, 1, 1, 0, 0],
        [1, 1, 1, 1, 0],
        [1, 1, 1, 1, 1],
    ]
    assert landing(3, 5).int().tolist() == [
        [1, 0, 0, 0, 0],
        [1, 1, 0, 0, 0],
        [1, 1, 1, 0, 0],
        [1, 1, 0, 1, 0],
        [1, 1, 0, 0, 1],
    ]
