"""What a plan is for, decided from the command line, the machine's GPUs and what each TensorRT knows."""

from collections.abc import Sequence

import pytest

from artifacts.backend import Backend
from artifacts.contract import Form
from artifacts.doctor import Gpu
from artifacts.errors import StageError
from build.flags import check_flags
from build.options import BuildOptions
from build.target import RTX_DEFAULT, Target, choose_target

HOPPER, ADA, TURING = (Gpu(name, "580", "80 GiB", chip) for name, chip in (("H", "9.0"), ("A", "8.9"), ("T", "7.5")))


def choose(backend: str, *capabilities: str, gpus: Sequence[Gpu] = (), form: Form = Form.MODEL) -> Target:
    version = "11.4.0.106" if backend == "tensorrt" else "1.7.1.116"
    return choose_target(backend, capabilities, form, gpus, version)


def test_names_say_library_version_chips_and_form() -> None:
    assert choose("tensorrt-rtx", "8.9", "12.0").name == "tensorrt_rtx-1.7.1-sm89-sm120"
    assert choose("tensorrt", gpus=[HOPPER], form=Form.MODEL_LINEAR).name == "tensorrt-11.4-sm90-linear"


def test_the_order_and_number_of_times_in_which_gpus_are_named_make_no_other_target() -> None:
    named = [choose("tensorrt-rtx", *chips) for chips in (("8.9", "12.0"), ("12.0", "8.9"), ("12.0", "8.9", "12.0"))]
    assert named[0] == named[1] == named[2]


def test_without_a_gpu_rtx_builds_for_its_own_default() -> None:
    target = choose("auto")
    assert (target.backend, target.capabilities, target.current) == (Backend.RTX, RTX_DEFAULT, False)


def test_with_a_gpu_rtx_builds_for_it_unless_told() -> None:
    assert (choose("tensorrt-rtx", gpus=[ADA]).capabilities, choose("tensorrt-rtx", gpus=[ADA]).current) == (
        ("8.9",),
        True,
    )
    assert choose("tensorrt-rtx", "12.0", gpus=[ADA]).current is False


@pytest.mark.parametrize(("installed", "gpus", "expected"), [(True, [HOPPER], "tensorrt"), (True, [], "tensorrt-rtx")])
def test_auto_is_tensorrt_where_it_is_installed_and_sees_a_gpu(
    monkeypatch: pytest.MonkeyPatch, installed: bool, gpus: list[Gpu], expected: str
) -> None:
    monkeypatch.setattr(Backend, "installed", installed)
    assert choose("auto", gpus=gpus).backend.value == expected


@pytest.mark.parametrize(
    ("backend", "capabilities", "gpus", "problem"),
    [
        ("tensorrt-rtx", ["7.5"], [], r"7\.5 \(no BF16 attention\)"),
        ("tensorrt-rtx", ["8.9", "9.0"], [], r"9\.0 \(unknown to TensorRT-RTX\)"),
        ("tensorrt-rtx", ["8.9", "fast"], [], r"fast \(unknown"),
        ("tensorrt-rtx", [], [HOPPER], r"9\.0 \(unknown to TensorRT-RTX\)"),
        ("tensorrt-rtx", [], [TURING], "some of 8.0 8.6 8.9 12.0 12.1"),
        ("tensorrt", [], [], "an NVIDIA GPU"),
        ("tensorrt", ["8.9"], [HOPPER], "--compute-capability 9.0"),
        ("tensorrt", [], [TURING], "cannot do attention in BF16"),
        ("cuda", [], [], "--backend is unknown"),
    ],
)
def test_what_cannot_be_built_is_refused_by_name(
    backend: str, capabilities: list[str], gpus: list[Gpu], problem: str
) -> None:
    with pytest.raises(StageError, match=problem):
        choose(backend, *capabilities, gpus=gpus)


def test_a_backend_that_is_not_installed_is_refused() -> None:
    with pytest.raises(StageError, match=r"(?s)tensorrt is not installed.*do: +make setup"):
        choose_target("tensorrt", (), Form.MODEL, [HOPPER], "absent")


def test_without_a_gpu_nobody_is_sent_to_a_set_up_that_does_not_install_tensorrt() -> None:
    with pytest.raises(StageError, match=r"(?s)tensorrt is not installed.*do: +--backend tensorrt-rtx") as caught:
        choose_target("tensorrt", (), Form.MODEL, [], "absent")
    assert "machine with an NVIDIA GPU" in str(caught.value)


ALL_REFUSED = BuildOptions(
    refit=True, strip_weights=True, version_compatible=True, hardware_compatibility_level="ampere+"
)


def test_flags_that_rtx_cannot_do_are_refused_by_name() -> None:
    with pytest.raises(StageError) as error:
        check_flags(ALL_REFUSED, choose("tensorrt-rtx"))
    told = " ".join(problem.what for problem in error.value.problems)
    for flag in ("--refit", "--stripWeights", "--versionCompatible", "--hardwareCompatibilityLevel"):
        assert flag in told


def test_with_a_gpu_rtx_gets_refit_to_try() -> None:
    check_flags(BuildOptions(refit=True, strip_weights=True), choose("tensorrt-rtx", gpus=[ADA]))


def test_tensorrt_proper_gets_every_flag() -> None:
    check_flags(ALL_REFUSED, choose("tensorrt", gpus=[HOPPER]))
