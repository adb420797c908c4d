"""The exam is answered from the runner's own cache and held against the reference; each fault of an answer is seen."""

import json
import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from rich.console import Console

from artifacts.contract import Form
from artifacts.errors import StageError
from artifacts.exam import EXAM, Case, Exam
from tests.chat_model import CHAT
from tests.numpy_session import CONFIG, NumpySession
from validate.exam import Paper, Question, Sheet, judge_answers, judge_perplexity, paper, read_text, sit
from validate.exam.paper import ASKED
from validate.exam.sheet import WINDOW, perplexity
from validate.exam.table import show_exam
from validate.examination import ANSWERS, PERPLEXITY, Examination
from validate.findings import Findings
from validate.greedy import Continuation
from validate.prompt import Reader
from validate.reference import Reference
from validate.runners import RUNNERS, Role, Runner

LAYERS = CONFIG.num_hidden_layers
TEXT = tuple(int(token) for token in np.random.default_rng(5).integers(CONFIG.vocab_size, size=60))


def asked(*answers: tuple[int, ...]) -> Paper:
    """Two questions, with these right answers."""
    prompts = ((1, 2, 3, 4, 5, 6), tuple(range(7, 40)))
    questions = (Question(f"skill {n}", prompts[n], answer, "?", "!") for n, answer in enumerate(answers))
    return Paper(tuple(questions), TEXT, "a text")


@pytest.fixture(scope="module")
def right() -> Paper:
    """A paper whose right answers are what the model writes, so that every answer is right."""
    unknown = asked(tuple(range(-8, 0)), tuple(range(-5, 0)))
    written = [one.tokens for one in sit(NumpySession(), unknown, LAYERS).answers if one]
    # A turn ends where its last token comes first.
    return asked(*(tuple(tokens[: tokens.index(tokens[-1]) + 1]) for tokens in written))


@pytest.mark.parametrize("form", list(Form))
def test_every_form_gives_the_same_answers(form: Form, right: Paper) -> None:
    sheet, reference = sit(NumpySession(form), right, LAYERS), sit(NumpySession(), right, LAYERS)
    assert [sheet.right(right, skill) for skill in right.skills] == [(1, 1), (1, 1)]
    assert judge_answers(sheet, reference, right) == []
    assert (sheet.perplexity is None) == (form in (Form.MODEL, Form.MODEL_LINEAR))


def test_an_answer_ends_with_the_end_of_its_turn(right: Paper) -> None:
    first = right.questions[0]
    early = replace(right, questions=(replace(first, answer=(*([-1] * 7), first.answer[0])),))
    sheet = sit(NumpySession(), early, LAYERS)
    assert sheet.answers[0] is not None
    assert sheet.answers[0].tokens == [first.answer[0]]
    assert sheet.right(early, first.skill) == (0, 1)


def test_a_wrong_weight_is_seen_as_another_answer_and_another_perplexity(right: Paper) -> None:
    reference = sit(NumpySession(), right, LAYERS)
    wrong = NumpySession(Form.MODEL_ALL)
    wrong.weights[1]["v"] *= -1
    sheet = sit(wrong, right, LAYERS)
    assert "another answer than PyTorch's from step" in judge_answers(sheet, reference, right)[0]
    assert "expected PyTorch's" in judge_perplexity(sheet, reference)[0]


def test_a_near_tie_may_go_either_way_and_nothing_else(right: Paper) -> None:
    reference = sit(NumpySession(), right, LAYERS)
    other = Sheet([None if one is None else Continuation([*one.tokens[:-1], 0], one.gaps) for one in reference.answers])
    assert len(judge_answers(other, reference, right)) == 2
    for one in reference.answers:
        assert one is not None
        one.gaps[-1] = 1e-9
    assert judge_answers(other, reference, right) == []


def test_a_shorter_answer_and_a_missing_one_are_seen(right: Paper) -> None:
    reference = sit(NumpySession(), right, LAYERS)
    first, second = reference.answers
    assert first is not None
    short = Sheet([Continuation(first.tokens[:-1], first.gaps[:-1]), second])
    assert len(judge_answers(short, reference, right)) == 1
    assert judge_answers(Sheet([first]), reference, right) == ["1 questions were answered, 2 were asked"]


def test_a_question_that_does_not_fit_the_cache_is_left_out(right: Paper) -> None:
    sheet = sit(NumpySession(Form.MODEL_LINEAR, capacity=20), right, LAYERS)
    assert sheet.answers[1] is None
    assert sheet.right(right, "skill 1") == (0, 0)


def test_perplexity_is_that_of_each_window_by_itself() -> None:
    text = np.random.default_rng(6).integers(CONFIG.vocab_size, size=WINDOW - 300 + 3)
    session = NumpySession()
    whole = perplexity(session, tuple(map(int, text)), LAYERS)
    surprise = []
    for end in range(1, len(text)):
        from validate.cache import empty_cache
        from validate.play import run_call
        from validate.scenarios import Passage

        passage = Passage("text", tuple(map(int, text[:end])))
        cache = empty_cache(session, LAYERS, 1)
        logits = run_call(session, cache, [passage], np.arange(end)[None], 0)["logits"][0, -1].astype(np.float64)
        surprise.append(np.log(np.exp(logits).sum()) - logits[text[end]])
    assert whole == pytest.approx(math.exp(np.mean(surprise)), rel=1e-6)


def test_a_perplexity_that_is_no_number_is_a_no(right: Paper) -> None:
    reference = Sheet(perplexity=3.0)
    assert judge_perplexity(Sheet(perplexity=3.0 + 2e-4), reference) == []
    assert judge_perplexity(Sheet(perplexity=3.001), reference)
    assert judge_perplexity(Sheet(perplexity=math.nan), reference)
    kept = Sheet.from_json(json.loads(json.dumps(Sheet([None], 1.0, math.inf).to_json(), allow_nan=False)))
    assert kept.perplexity == math.inf


def test_an_examination_judges_answers_and_perplexity(tmp_path: Path, right: Paper) -> None:
    examination = Examination(CONFIG, tuple(range(6)), 12, Reference(tmp_path), right)
    reference = examination.run(RUNNERS[0], NumpySession())
    assert reference.sheet is not None
    runner = Runner("model_all", Role.JUDGED, Form.MODEL_ALL)
    same = examination.run(runner, NumpySession(Form.MODEL_ALL))
    assert not same.problems
    assert Findings.from_json(json.loads(json.dumps(same.to_json()))) == same
    broken = NumpySession(Form.MODEL_ALL)
    broken.weights[1]["v"] *= -1
    found = examination.run(runner, broken)
    wrong = {check.subject for check in found.checks if check.problems}
    assert {ANSWERS, PERPLEXITY} <= wrong


def test_questions_that_do_not_fit_are_left_out_and_not_counted(tmp_path: Path, right: Paper) -> None:
    examination = Examination(CONFIG, tuple(range(6)), 12, Reference(tmp_path), right)
    examination.run(RUNNERS[0], NumpySession())
    for slots, answered in ((20, 1), (2, 0)):
        runner = Runner("linear", Role.JUDGED, Form.MODEL_LINEAR)
        found = examination.run(runner, NumpySession(Form.MODEL_LINEAR, capacity=slots))
        assert any(f"exam: {2 - answered} of 2 questions" in left for left in found.left_out)
        assert [check.tensors for check in found.checks if check.subject == ANSWERS] == ([answered] if answered else [])


def test_a_paper_is_spelled_by_the_models_own_tokenizer(tmp_path: Path) -> None:
    for name in ("tokenizer.json", "tokenizer_config.json", "chat_template.jinja"):
        (tmp_path / name).write_bytes((CHAT / name).read_bytes())
    many = tuple(Case("copy", ({"role": "user", "content": f"Copy {n}"},), f"{n}") for n in range(20))
    Exam(many, "A key was named early.").write(tmp_path / EXAM)
    config = replace(CONFIG, vocab_size=512)
    reader = Reader(tmp_path, config)
    made = paper(tmp_path, config, reader, None)
    assert len(made.questions) == ASKED
    assert reader.decode(made.questions[0].answer) == made.questions[0].right
    assert Paper.from_json(json.loads(json.dumps(made.to_json()))) == made
    text = tmp_path / "text.txt"
    text.write_text("The engine reads a plan. " * 9)
    other = paper(tmp_path, config, reader, text)
    assert (other.questions, other.source) == (made.questions, str(text))
    text.write_text("The engine reads a plan. " * 900)
    longer = paper(tmp_path, config, reader, text)
    assert (len(longer.text), longer.source) == (config.max_positions, f"{text} (its beginning)")
    with pytest.raises(StageError, match="longer than the model's positions"):
        paper(tmp_path, replace(config, max_position_embeddings=20), reader, None)


@pytest.mark.parametrize(
    ("lost", "missing"), [("chat_template.jinja", "a chat template"), ("eos_token", "an eos_token")]
)
def test_an_exam_that_the_tokenizer_cannot_ask_is_refused(tmp_path: Path, lost: str, missing: str) -> None:
    for name in ("tokenizer.json", "tokenizer_config.json", "chat_template.jinja"):
        (tmp_path / name).write_bytes((CHAT / name).read_bytes())
    settings = json.loads((tmp_path / "tokenizer_config.json").read_text())
    if lost == "eos_token":
        (tmp_path / "tokenizer_config.json").write_text(json.dumps({**settings, lost: None}))
    else:
        (tmp_path / lost).unlink()
    Exam((Case("copy", ({"role": "user", "content": "Copy 1"},), "1"),), "A key.").write(tmp_path / EXAM)
    config = replace(CONFIG, vocab_size=512)
    with pytest.raises(StageError, match=rf"cannot ask it(.|\n)*found: +no {missing}"):
        paper(tmp_path, config, Reader(tmp_path, config), None)


@pytest.mark.parametrize("template", ["{% if %}", "{{ raise_exception('no') }}"])
def test_an_exam_that_the_template_cannot_ask_is_refused(tmp_path: Path, template: str) -> None:
    for name in ("tokenizer.json", "tokenizer_config.json"):
        (tmp_path / name).write_bytes((CHAT / name).read_bytes())
    (tmp_path / "chat_template.jinja").write_text(template)
    Exam((Case("copy", ({"role": "user", "content": "Copy 1"},), "1"),), "A key.").write(tmp_path / EXAM)
    config = replace(CONFIG, vocab_size=512)
    with pytest.raises(StageError, match=r"a chat template that cannot ask it(.|\n)*Template"):
        paper(tmp_path, config, Reader(tmp_path, config), None)


def test_texts_that_cannot_be_measured_are_refused(tmp_path: Path) -> None:
    (tmp_path / "latin").write_bytes(b"\xff\xfe\xfa")
    (tmp_path / "text").write_text("some text")
    with pytest.raises(StageError, match="cannot be read"):
        read_text(tmp_path / "latin")
    with pytest.raises(StageError, match="cannot be read"):
        read_text(tmp_path / "absent")
    with pytest.raises(StageError, match="has no tokenizer"):
        paper(tmp_path, CONFIG, Reader(tmp_path, CONFIG), tmp_path / "text")
    assert paper(tmp_path, CONFIG, Reader(tmp_path, CONFIG), None) == Paper()
    (tmp_path / "text").write_text("")
    with pytest.raises(StageError, match="too short"):
        paper(CHAT, replace(CONFIG, vocab_size=512), Reader(CHAT, CONFIG), tmp_path / "text")


def test_the_table_shows_skills_and_what_was_answered(right: Paper) -> None:
    sheet = sit(NumpySession(), right, LAYERS)
    sheet.texts = ["the first answer", "the second"]
    console = Console(record=True, width=120, file=None, quiet=False)
    with console.capture() as captured:
        show_exam(right, [Findings("PyTorch FP32", "reference", sheet=sheet)], console)
    said = captured.get()
    assert "skill 0" in said
    assert "1/1" in said
    assert "the first answer" in said
    with console.capture() as captured:
        unnamed = replace(right, source="my[/b].txt")
        show_exam(
            unnamed, [Findings("model_linear_fp32", "judged"), Findings("PyTorch FP32", "", sheet=sheet)], console
        )
        show_exam(unnamed, [Findings("model_linear_fp32", "judged")], console)
    assert "the first answer" in captured.get()
    with console.capture() as captured:
        show_exam(replace(right, questions=()), [Findings("PyTorch FP32", "reference", sheet=sheet)], console)
    assert f"{sheet.perplexity:.4f}" in captured.get()
