"""Exit codes say what happened: a verdict of no is 1, and nothing else is."""

from collections.abc import Sequence

import pytest

from artifacts.command import COULD_NOT, VERDICT_NO, Parser, run
from artifacts.errors import refuse


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
