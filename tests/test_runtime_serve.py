"""The command serves until it is interrupted, and refuses what cannot work before anything is loaded."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace

import httpx
import pytest

from artifacts.backend import Backend
from artifacts.contract import Form
from artifacts.doctor import Gpu
from artifacts.errors import StageError
from runtime.__main__ import main
from runtime.model import Model, RunOptions
from runtime.terminal_serve import address, check_memory, listen
from tests.small_model import write_plan, write_small_model

ROOT = Path(__file__).parent.parent


@pytest.mark.slow
def test_it_serves_until_it_is_interrupted(tmp_path: Path) -> None:
    with started(tmp_path, SMOLLM3_API_KEY="secret") as (process, url):
        try:
            body = {"model": "small", "prompt": "Tell", "max_tokens": 3}
            assert httpx.post(f"{url}/v1/completions", json=body).status_code == 401
            key = {"Authorization": "Bearer secret"}
            assert httpx.post(f"{url}/v1/completions", json=body, headers=key, timeout=60).status_code == 200
        finally:
            process.send_signal(signal.SIGINT)
            said = process.communicate(timeout=60)[1]
    assert process.returncode == 0, said
    assert "small at http://127.0.0.1" in said


@contextmanager
def started(tmp_path: Path, **environment: str) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """A process that serves the small model, once it answers, and its URL."""
    folder = write_small_model(tmp_path / "small")
    with listen("127.0.0.1", 0) as free:
        port = free.getsockname()[1]
    command = [sys.executable, "-m", "runtime", "serve", str(folder.root), "--port", str(port), "--slots", "2"]
    given = {**os.environ, **environment}
    with subprocess.Popen(command, cwd=ROOT, env=given, stderr=subprocess.PIPE, text=True) as process:
        try:
            wait_for(f"http://127.0.0.1:{port}")
            yield process, f"http://127.0.0.1:{port}"
        finally:
            process.kill()


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_the_first_signal_ends_running_and_waiting_texts_and_the_process(
    tmp_path: Path, number: signal.Signals
) -> None:
    # Two of the three run, the third waits.
    body = {"model": "small", "prompt": "Tell", "max_tokens": 4000, "stream": True, "n": 3}
    with (
        started(tmp_path) as (process, url),
        httpx.stream("POST", f"{url}/v1/completions", json=body, timeout=60) as stream,
    ):
        lines = stream.iter_lines()
        assert "text" in next(lines)
        began = time.monotonic()
        process.send_signal(number)
        heard = [line for line in lines if line]
        said = process.communicate(timeout=60)[1]
        seconds = time.monotonic() - began
    assert "the server ends" in heard[-2]
    assert heard[-1] == "data: [DONE]"
    assert process.returncode == 0, said
    assert "Traceback" not in said
    # Measured 0.5 s; without an end to its texts it takes as long as they do.
    assert seconds < 10


@pytest.mark.slow
def test_a_client_that_never_reads_is_not_waited_for(tmp_path: Path) -> None:
    body = {"model": "small", "prompt": "Tell", "max_tokens": 4000, "stream": True, "logprobs": 20, "n": 16}
    with (
        started(tmp_path) as (process, url),
        httpx.stream("POST", f"{url}/v1/completions", json=body, timeout=60),
    ):
        time.sleep(2)
        began = time.monotonic()
        process.send_signal(signal.SIGINT)
        said = process.communicate(timeout=60)[1]
        assert time.monotonic() - began < 15
    assert process.returncode == 0, said


def wait_for(url: str) -> None:
    end = time.monotonic() + 120
    while time.monotonic() < end:
        try:
            assert httpx.get(f"{url}/health").status_code == 200
            return
        except httpx.TransportError:
            time.sleep(0.1)
    raise AssertionError("it never answered")


def test_a_port_that_is_taken_is_refused() -> None:
    with listen("127.0.0.1", 0) as taken, pytest.raises(StageError, match="nothing can be served at"):
        listen("127.0.0.1", taken.getsockname()[1])


@pytest.mark.parametrize(("host", "shown"), [("127.0.0.1", "http://127.0.0.1"), ("::1", "http://[::1]")])
def test_the_address_that_is_told_can_be_opened(host: str, shown: str) -> None:
    with listen(host, 0) as door:
        assert address(door) == f"{shown}:{door.getsockname()[1]}"


@pytest.mark.parametrize("key", ["", "schl\u00fcssel", "two words"])
def test_a_key_that_no_client_could_show_is_refused(tmp_path: Path, key: str) -> None:
    with pytest.raises(StageError, match="--api-key cannot be used"):
        main(["serve", str(tmp_path), "--api-key", key])


def test_numbers_out_of_range_are_refused_all_at_once(tmp_path: Path) -> None:
    with pytest.raises(StageError) as error:
        main(["serve", str(tmp_path), "--slots", "0", "--max-queue", "-1", "--chunk", "0", "--port", "70000"])
    assert len(error.value.problems) == 4
    assert "--port is out of range\n  expected: 0 to 65535\n  found:    70000" in str(error.value)


def with_plan(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, form: Form) -> list[str]:
    """Give the command that serves a plan on a machine whose GPU could run it."""
    plan = write_plan(write_small_model(tmp_path / "small"), form, tensorrt_version=Backend.RTX.version)
    monkeypatch.setattr("runtime.model.find_gpus", lambda: [Gpu("RTX 4090", "580.1", "24564 MiB", "8.9")])
    return ["serve", str(plan.folder.root), "--plan", plan.directory.name]


@pytest.mark.parametrize("slots", ["1", "8"])
def test_a_plan_whose_cache_cannot_be_shared_is_refused_with_the_command_that_makes_one_that_can(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, slots: str
) -> None:
    command = with_plan(tmp_path, monkeypatch, Form.MODEL)
    mend = rf"python -m build \S*small --graph model_linear --max-batch-size {slots}\b"
    with pytest.raises(StageError, match=rf"cannot share the concatenated cache[\s\S]*{mend}"):
        main([*command, "--slots", slots])


def test_a_plan_with_too_few_rows_is_refused_before_it_is_loaded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    command = with_plan(tmp_path, monkeypatch, Form.MODEL_LINEAR)
    with pytest.raises(StageError, match=r"8 rows are too many\s+expected: +at most 3 with this plan"):
        main([*command, "--slots", "8"])


def test_a_plan_does_not_need_the_hosts_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    command = with_plan(tmp_path, monkeypatch, Form.MODEL_LINEAR)
    monkeypatch.setattr("psutil.virtual_memory", lambda: SimpleNamespace(available=0))
    with listen("127.0.0.1", 0) as taken, pytest.raises(StageError, match="nothing can be served at"):
        main([*command, "--slots", "3", "--port", str(taken.getsockname()[1])])


def test_slots_that_memory_cannot_hold_are_refused_with_the_number_that_it_can(tmp_path: Path) -> None:
    model = Model(write_small_model(tmp_path / "small").root, RunOptions(context=4096))
    slot = 4096 * 4 * 2 * 2 * 16 * 4
    weights = model.config.num_parameters * 4
    check_memory(model, 3, weights + 3 * slot)
    with pytest.raises(StageError, match="at most 2 slots of 4 MiB"):
        check_memory(model, 3, weights + 3 * slot - 1)
