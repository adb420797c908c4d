"""An examination passes the model in every form, and sees every fault that it is for."""

import json
from collections.abc import Callable

import pytest

from artifacts.contract import Form
from tests.numpy_session import CONFIG, NumpySession
from validate.examination import Examination
from validate.findings import Findings
from validate.reference import Reference
from validate.runners import RUNNERS, Role, Runner


@pytest.fixture(scope="module")
def examination(tmp_path_factory: pytest.TempPathFactory) -> Examination:
    """An examination whose reference has been run."""
    examination = Examination(CONFIG, tuple(range(6)), 12, Reference(tmp_path_factory.mktemp("reference")))
    findings = examination.run(RUNNERS[0], NumpySession())
    assert not findings.problems
    return examination


@pytest.fixture
def judge(examination: Examination) -> Callable[..., Findings]:
    """Examine a form with faults."""

    def judge(form: Form, *faults: str, capacity: int = 400) -> Findings:
        return examination.run(Runner(form.value, Role.JUDGED, form), NumpySession(form, *faults, capacity=capacity))

    return judge


def refused(findings: Findings) -> set[str]:
    return {check.subject.partition(":")[0] for check in findings.checks if check.problems}


@pytest.mark.parametrize("form", list(Form))
def test_the_model_itself_passes(judge: Callable[..., Findings], form: Form) -> None:
    findings = judge(form)
    assert findings.problems == []
    assert len(findings.checks) == 1 + 12 + 1 + 2 + 2 + 1 + 1 + 1
    assert all(check.elements for check in findings.checks if check.cache is not None)
    assert len(findings.movements) == CONFIG.num_hidden_layers
    assert len(findings.continuation.tokens) == 12


@pytest.mark.parametrize("form", [Form.MODEL_ALL, pytest.param(Form.MODEL_LINEAR, marks=pytest.mark.slow)])
@pytest.mark.parametrize(
    "fault", ["weight", "scale", "swapped layers", "swapped kinds", "missing", "extra", "shape", "nan"]
)
def test_a_fault_is_seen_whatever_the_form(judge: Callable[..., Findings], form: Form, fault: str) -> None:
    assert "small positions" in refused(judge(form, fault))


def test_a_mask_that_is_one_too_wide_is_seen(judge: Callable[..., Findings]) -> None:
    """With one new token there is no next slot to see: only calls of several tokens show it."""
    findings = judge(Form.MODEL_ALL, "wide mask")
    wrong = {check.subject for check in findings.checks if check.problems}
    assert "small positions: one call" in wrong
    assert "small positions: one by one" not in wrong
    # In a linear cache the next slot is there, and holds what an earlier call left.
    assert "small positions" in refused(judge(Form.MODEL_LINEAR, "wide mask"))


def test_swapped_names_are_called_by_name(judge: Callable[..., Findings]) -> None:
    layers = "\n".join(judge(Form.MODEL, "swapped layers").problems)
    kinds = "\n".join(judge(Form.MODEL, "swapped kinds").problems)
    assert "present.0.key" in layers
    assert "it holds present.2.key" in layers
    assert "it holds present.1.value" in kinds


@pytest.mark.parametrize("form", [Form.MODEL, Form.MODEL_LINEAR])
def test_rope_on_a_nope_layer_is_seen_by_the_certificate(judge: Callable[..., Findings], form: Form) -> None:
    problems = judge(form, "rotation 1").problems
    assert any("NoPE certificate: layer 1 is NoPE" in problem for problem in problems)


def test_nope_on_a_rope_layer_is_seen_by_the_certificate(judge: Callable[..., Findings]) -> None:
    problems = judge(Form.MODEL, "rotation 2").problems
    assert any("NoPE certificate: layer 2 is RoPE" in problem for problem in problems)


@pytest.mark.parametrize("fault", ["padding is seen", "row of another"])
def test_faults_of_a_batch_are_seen_in_the_batch(judge: Callable[..., Findings], fault: str) -> None:
    wrong = refused(judge(Form.MODEL, fault))
    assert "left-padded batch" in wrong
    assert "small positions" not in wrong


def test_a_pad_token_that_matters_is_seen(judge: Callable[..., Findings]) -> None:
    """Its 1e-5 is below the tolerance of every comparison with the reference."""
    assert refused(judge(Form.MODEL_ALL, "pad matters")) == {"the pad id makes no difference"}


def test_a_fault_beyond_position_256_is_seen_in_the_long_prompt(judge: Callable[..., Findings]) -> None:
    assert refused(judge(Form.MODEL, "positions in BF16")) == {"long prompt"}


def test_what_does_not_fit_the_capacity_is_left_out_and_said(judge: Callable[..., Findings]) -> None:
    findings = judge(Form.MODEL_LINEAR, capacity=64)
    assert findings.problems == []
    assert len(findings.left_out) == 2
    assert "the capacity is 64" in findings.left_out[0]


def test_a_signature_of_another_form_is_refused_before_anything_runs(examination: Examination) -> None:
    findings = examination.run(Runner("model", Role.JUDGED, Form.MODEL), NumpySession(Form.MODEL_ALL))
    assert refused(findings) == {"signature"}
    assert len(findings.checks) == 1
    linear = examination.run(Runner("linear", Role.JUDGED, Form.MODEL_LINEAR), NumpySession(Form.MODEL))
    assert refused(linear) == {"signature"}


def test_noise_is_measured_and_not_judged(examination: Examination) -> None:
    noisy = examination.run(RUNNERS[1], NumpySession(Form.MODEL_ALL, "weight", "scale"))
    assert noisy.problems == []
    assert noisy.noise is not None
    assert noisy.noise.largest > noisy.noise.rms > 1e-4
    broken = examination.run(RUNNERS[1], NumpySession(Form.MODEL_ALL, "nan"))
    assert any("not finite" in problem for problem in broken.problems)


def test_findings_of_a_model_that_gives_nan_can_be_written(examination: Examination) -> None:
    for runner in (RUNNERS[1], RUNNERS[4]):
        findings = examination.run(runner, NumpySession(Form.MODEL_ALL, "nan"))
        text = json.dumps(findings.to_json(), allow_nan=False)
        assert Findings.from_json(json.loads(text)).problems == findings.problems != []


def test_findings_are_the_same_after_json(judge: Callable[..., Findings]) -> None:
    findings = judge(Form.MODEL, "missing")
    assert Findings.from_json(findings.to_json()) == findings
