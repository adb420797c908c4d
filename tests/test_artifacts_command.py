"""Exit codes say what happened: a verdict of no is 1, and nothing else is."""

import io
import os
import shlex
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from artifacts.command import COULD_NOT, DONE, VERDICT_NO, Parser, piped_lines, run
from artifacts.errors import StageError, refuse

ROOT = Path(__file__).parent.parent


def ended(main: object, capsys: pytest.CaptureFixture[str]) -> tuple[int, str]:
    with pytest.raises(SystemExit) as end:
        run(main, [])  # type: ignore[arg-type]  # whatever a test gives
    return int(end.value.code or 0), capsys.readouterr().err


def test_a_verdict_keeps_its_code(capsys: pytest.CaptureFixture[str]) -> None:
    assert ended(lambda arguments: VERDICT_NO, capsys) == (1, "")


def test_a_refusal_says_what_and_what_to_do(capsys: pytest.CaptureFixture[str]) -> None:
    def main(arguments: Sequence[str]) -> int:
        raise refuse("no", expected="yes", found="no", remedy="make yes")

    code, text = ended(main, capsys)
    assert code == COULD_NOT
    assert text.splitlines() == ["error: no", "  expected: yes", "  found:    no", "  do:       make yes"]


def test_what_nobody_foresaw_is_no_verdict(capsys: pytest.CaptureFixture[str]) -> None:
    code, text = ended(lambda arguments: 1 // 0, capsys)
    assert code == COULD_NOT
    assert "ZeroDivisionError" in text
    assert "do:" in text


def test_an_unknown_flag_is_refused_with_2(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as end:
        Parser(prog="x").parse_args(["--unknown"])
    assert end.value.code == COULD_NOT
    assert "--unknown" in capsys.readouterr().err


def test_an_unknown_flag_is_named_before_what_is_missing(capsys: pytest.CaptureFixture[str]) -> None:
    parser = Parser(prog="x")
    parser.add_argument("model")
    parser.add_argument("--known")
    for given in (["--known=1", "--nonsense=2"], ["--nonsense"]):
        with pytest.raises(SystemExit):
            parser.parse_args(given)
        assert "unrecognized arguments: --nonsense; the following arguments are required: model" in (
            capsys.readouterr().err
        )
    with pytest.raises(SystemExit):
        parser.parse_args(["--known=1"])
    assert "unrecognized" not in capsys.readouterr().err


def test_arguments_that_are_no_text_are_refused_all_at_once() -> None:
    parser = Parser(prog="x")
    parser.add_argument("--prompt")
    parser.add_argument("model")
    assert parser.parse_args(["--prompt", "Ægir 💡", "m"]).prompt == "Ægir 💡"
    broken = os.fsdecode(b"caf\xe9"), os.fsdecode(b"\xff")
    with pytest.raises(StageError, match=r"expected: valid UTF-8\n +found: +'caf\\xe9'") as error:
        parser.parse_args(["--prompt", *broken])
    assert len(error.value.problems) == 2


@pytest.mark.parametrize("errors", ["strict", "surrogateescape"])  # the latter is what Python takes in a C locale
def test_what_is_piped_in_has_to_be_text(monkeypatch: pytest.MonkeyPatch, errors: str) -> None:
    def pipe(data: bytes) -> None:
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(data), "utf-8", errors))

    pipe("good\nmörning".encode())
    assert list(piped_lines()) == ["good\n", "mörning"]
    monkeypatch.setattr(sys, "stdin", None)  # closed
    assert list(piped_lines()) == []
    pipe(b"good\nm\xf6rning")
    with pytest.raises(StageError, match="stdin is no text"):
        list(piped_lines())


@pytest.mark.parametrize(
    ("streams", "said"),
    [(">/dev/full", "No space left on device"), (">&-", ""), ("2>/dev/full", None), ("2>&-", None)],
)
def test_streams_that_take_nothing_are_no_verdict_and_no_traceback(
    tmp_path: Path, streams: str, said: str | None
) -> None:
    """A refusal is 2 whether or not it can be read; what could not be written is one too."""
    program = (
        "from artifacts.command import DONE, run, stdout; from artifacts.errors import refuse\n"
        "def main(words):\n"
        "    stdout().print('done')\n"
        f"    {'return DONE' if said is not None else 'raise refuse(1)'}\n"
        "run(main, [])"
    )
    command = f"{shlex.quote(sys.executable)} -c {shlex.quote(program)} {streams}"
    done = subprocess.run(command, shell=True, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == (DONE if said == "" else COULD_NOT)
    assert "Traceback" not in done.stderr
    if said:
        assert said in done.stderr


def test_letters_that_a_terminal_lacks_are_written_otherwise() -> None:
    program = (
        "from artifacts.command import DONE, run, stdout\nrun(lambda words: stdout().print('\\u00fc') or DONE, [])"
    )
    environment = {**os.environ, "PYTHONIOENCODING": "ascii"}
    command = [sys.executable, "-c", program]
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout.strip()) == (DONE, r"\xfc")
