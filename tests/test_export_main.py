"""The command line: help, and refusals with exit code 2."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.checkpoint_folder import small_config


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-m", "export", *arguments], capture_output=True, text=True)


def test_help_says_what_model_may_be() -> None:
    ended = run("--help")
    assert ended.returncode == 0
    assert "random:tiny" in ended.stdout


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--model", "random:tiny", "--fast"], "unrecognized arguments: --fast"),
        (["--mod", "random:tiny"], "--model"),
        (["--model", "random:huge"], "there is no random model 'huge'"),
        (["--model", "./nowhere"], "there is no model './nowhere'"),
        (["--model", "random:tiny", "--name", "../x"], "no plain folder name"),
    ],
)
def test_refusals_end_with_two_and_say_what_to_do(arguments: list[str], message: str) -> None:
    ended = run(*arguments)
    assert (ended.returncode, ended.stdout) == (2, "")
    assert message in ended.stderr
    assert "do:" in ended.stderr


def test_all_faults_of_a_config_are_printed_before_any_work(tmp_path: Path) -> None:
    faulty = small_config(model_type="llama", hidden_act="relu", no_rope_layers=[1])
    (tmp_path / "config.json").write_text(json.dumps(faulty))
    ended = run("--model", str(tmp_path), "--out", str(tmp_path / "out"))
    assert ended.returncode == 2
    assert ended.stderr.count("error:") == 3
    assert not (tmp_path / "out").exists()
