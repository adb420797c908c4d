"""Make hands over what a person gave, whatever is in it, and sets up for the machine that it finds."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
# Stands for Python: its `-m venv` makes another one, which writes down what it is asked, a line an argument.
PYTHON = r"""#!/bin/sh
if [ "$1 $2" = "-m venv" ]; then mkdir -p .venv/bin; cp "$0" .venv/bin/python; exit 0; fi
if [ "$1" = "-c" ]; then echo named; exit 0; fi
for word; do printf '%s\n' "$word"; done >> asked
"""


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """A folder with the Makefile, and programs in bin/ that only write down what they are asked."""
    for name in ("Makefile", "pyproject.toml", "constraints.txt"):
        shutil.copy(ROOT / name, tmp_path)
    program(tmp_path, "python3", PYTHON)
    program(tmp_path, "nvidia-smi", "#!/bin/sh\nexit 1\n")
    return tmp_path


def program(place: Path, name: str, text: str) -> None:
    (place / "bin").mkdir(exist_ok=True)
    (place / "bin" / name).write_text(text)
    (place / "bin" / name).chmod(0o755)


def make(place: Path, *words: str, **environment: str) -> subprocess.CompletedProcess[str]:
    path = f"{place / 'bin'}{os.pathsep}{os.environ['PATH']}"
    kept = {name: value for name, value in os.environ.items() if name not in ("MAKEFLAGS", "MAKELEVEL", "MODEL", "OUT")}
    return subprocess.run(
        ["make", *words],
        cwd=place,
        env={**kept, "PATH": path, **environment},
        capture_output=True,
        text=True,
        check=False,
    )


def asked(place: Path) -> list[str]:
    """Every argument that the environment's Python was given, in order."""
    return (place / "asked").read_text().splitlines()


def test_tensorrt_is_installed_where_there_is_a_gpu_and_only_there(place: Path) -> None:
    assert make(place, "setup").returncode == 0
    assert ".[dev]" in asked(place)
    assert asked(place)[asked(place).index("-c") + 1] == "constraints.txt"
    (place / "asked").unlink()
    assert make(place, "setup").returncode == 0
    assert not (place / "asked").exists()
    # A GPU that appears after set-up is enough.
    program(place, "nvidia-smi", "#!/bin/sh\necho 'GPU 0: one'\n")
    assert make(place, "setup").returncode == 0
    assert ".[dev,gpu]" in asked(place)


def test_what_was_given_arrives_as_it_was_written(place: Path) -> None:
    make(place, "setup")
    (place / "asked").unlink()
    given = ('MODEL=it\'s "mine"', "OUT=a b", "NAME=x", "REVISION=main", "EXPORT_ARGS=--verbose")
    assert make(place, "surgery", *given, "SURGERY_ARGS=--capacity 8").returncode == 0
    assert asked(place) == [
        *("-m", "export", "--model", 'it\'s "mine"', "--out", "a b", "--name", "x", "--revision", "main", "--verbose"),
        *("-m", "surgery", "a b/x", "--capacity", "8"),
    ]


@pytest.mark.parametrize("command", ["generate", "chat", "serve", "debug"])
def test_what_a_command_writes_to_stdout_is_its_own(place: Path, command: str) -> None:
    # Set-up is part of it: the first command that a person gives may be this one.
    program(place, "python3", PYTHON + 'echo "said by $2"\n')
    done = make(place, command)
    assert done.returncode == 0
    # The stand-in for Python answers the question for its version, too, which Python itself does not.
    told = done.stdout.removeprefix("named\n")
    assert told == f"said by {'validate.debugging' if command == 'debug' else 'runtime'}\n"
    assert re.findall("said by .*", done.stderr) == ["said by pip", "said by export", "said by surgery"]
    assert make(place, "surgery").stdout.splitlines() == ["said by export", "said by surgery"]


def test_a_name_in_the_environment_is_not_taken(place: Path) -> None:
    make(place, "setup")
    (place / "asked").unlink()
    assert make(place, "surgery", NAME="a-host", REVISION="x").returncode == 0
    assert asked(place) == [
        "-m",
        "export",
        "--model",
        "smollm3-tiny",
        "--out",
        "artifacts/out",
        "-m",
        "surgery",
        "artifacts/out/named",
    ]


def test_an_old_python_is_refused_before_anything_is_made(place: Path) -> None:
    program(place, "python3", '#!/bin/sh\n[ "$1" = --version ] && echo Python 3.9.1\nexit 1\n')
    done = make(place, "setup")
    assert done.returncode == 2
    assert "Python 3.9.1 is too old" in done.stderr
    assert "Python 3.11 or newer" in done.stderr
    assert not (place / ".venv").exists()


def test_clean_removes_models_and_nothing_else(place: Path) -> None:
    model, other = place / "my out" / "model", place / "my out" / "thesis"
    (model / "onnx").mkdir(parents=True)
    (model / "onnx" / "export.manifest.json").touch()
    other.mkdir()
    assert make(place, "clean", "OUT=my out").returncode == 0
    assert other.exists()
    assert not model.exists()
    assert "OUT is empty" in make(place, "clean", "OUT=").stderr
