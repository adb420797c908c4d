"""`make doctor` says what is there, and never promises what the machine cannot keep."""

from pathlib import Path

import pytest

from artifacts import doctor
from artifacts.doctor import Gpu, examine, find_gpus


def row(subject: str, gpus: list[Gpu]) -> doctor.Finding:
    return next(finding for finding in examine(Path("artifacts/out"), gpus) if finding.subject == subject)


def test_every_part_of_the_machine_has_a_row() -> None:
    subjects = [finding.subject for finding in examine(Path("artifacts/out"), [])]
    assert subjects == ["Python", "memory", "disk", "NVIDIA GPU", "TensorRT", "TensorRT-RTX", "ONNX Runtime"]


def test_without_a_gpu_no_engine_is_promised() -> None:
    assert "not run" in row("NVIDIA GPU", []).allows
    assert row("ONNX Runtime", []).allows == "CPU, with the FP32 twins"


def test_providers_that_need_a_gpu_are_not_listed_as_if_they_could_be_used(monkeypatch: pytest.MonkeyPatch) -> None:
    built_in = [f"{name}ExecutionProvider" for name in ("Tensorrt", "CUDA", "CPU")]
    monkeypatch.setattr("onnxruntime.get_available_providers", lambda: built_in)
    assert row("ONNX Runtime", []).found.endswith(": CPU (Tensorrt, CUDA built in, without a GPU of no use)")
    assert row("ONNX Runtime", [Gpu("L4", "580", "23 GiB", "8.9")]).found.endswith(": Tensorrt, CUDA, CPU")
    monkeypatch.setattr("onnxruntime.get_available_providers", lambda: built_in[2:])
    assert row("ONNX Runtime", []).found.endswith(": CPU")


def test_a_gpu_is_read_from_the_driver() -> None:
    gpus = find_gpus(lambda command: "NVIDIA L4, 580.65, 23034 MiB, 8.9\n")
    assert gpus == [Gpu("NVIDIA L4", "580.65", "23034 MiB", "8.9")]
    assert "sm89" in row("NVIDIA GPU", gpus).found
    assert row("ONNX Runtime", gpus).allows == "CUDA and CPU"


def test_no_driver_is_no_gpu() -> None:
    assert find_gpus(lambda command: "") == []
    assert doctor.ask_driver(["no-such-program-here"]) == ""


def test_a_small_machine_is_told_which_stages_do_not_fit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(doctor.FULL_SIZE_NEEDS, "build", 1 << 20)
    assert "not build" in row("memory", []).allows


def test_a_container_is_told_what_fits_into_its_own_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor, "memory_limit", lambda: 3 << 30)
    assert row("memory", []).allows == "SmolLM3-3B: export; not build (14 GiB), validate (15 GiB)"


def test_no_engine_is_promised_on_a_gpu_that_lacks_bf16() -> None:
    for capability, able in (("7.5", False), ("8.0", True), ("12.0", True)):
        found = row("NVIDIA GPU", [Gpu("a GPU", "580.1", "16 GiB", capability)])
        assert ("engines can be run" in found.allows) is able
