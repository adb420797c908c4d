"""Names of models are plain folder names, and every file has one place."""

from __future__ import annotations

import json
import shlex
from pathlib import Path

import pytest

from artifacts.contract import Form
from artifacts.errors import StageError
from artifacts.layout import ModelFolder, check_name, short_name


@pytest.mark.parametrize(
    ("model", "name"),
    [
        ("HuggingFaceTB/SmolLM3-3B", "smollm3-3b"),
        ("random:tiny", "random-tiny"),
        ("runs/My Model/", "my-model"),
        ("/a/checkpoint-500", "checkpoint-500"),
    ],
)
def test_short_names(model: str, name: str) -> None:
    assert short_name(model) == name


@pytest.mark.parametrize("name", ["", ".", "..", "a/b", "../a", ".hidden", "-x", "a b", "a\n"])
def test_names_that_are_no_folder_names_are_refused(name: str) -> None:
    with pytest.raises(StageError, match="plain folder name"):
        check_name(name)


def test_paths() -> None:
    folder = ModelFolder(Path("out/tiny"))
    assert folder.graph(Form.MODEL, twin=True) == Path("out/tiny/onnx/model_fp32.onnx")
    assert folder.relative(folder.graph(Form.EXPORT)) == "onnx/export.onnx"
    assert folder.target("build", "x") == Path("out/tiny/build/x")


def test_a_missing_export_is_refused_with_the_command(tmp_path: Path) -> None:
    with pytest.raises(StageError, match="make export MODEL='<the checkpoint>' NAME=tiny"):
        ModelFolder(tmp_path / "tiny").export_manifest()


def test_a_file_in_the_place_of_a_models_folder_is_refused(tmp_path: Path) -> None:
    (tmp_path / "export.onnx").touch()
    with pytest.raises(StageError, match=r"cannot be read\n +expected: .*OUT/<model>\n +found: +Not a directory"):
        ModelFolder(tmp_path / "export.onnx").export_manifest()


def test_a_folder_without_a_model_is_refused_with_the_command_that_makes_one(tmp_path: Path) -> None:
    (tmp_path / "nowhere" / "onnx").mkdir(parents=True)
    for name in ("nowhere", "nothing"):
        mend = rf"expected: OUT/<model>[\s\S]*make surgery MODEL='<the checkpoint>' NAME={name} OUT={tmp_path}$"
        with pytest.raises(StageError, match=rf"{name} holds no model\s+{mend}"):
            ModelFolder(tmp_path / name).config()


def test_commands_name_the_model_as_a_shell_takes_it(tmp_path: Path) -> None:
    folder = ModelFolder(tmp_path / "my out" / "mine")
    folder.onnx.mkdir(parents=True)
    checkpoint = {"kind": "hub", "origin": "me/model", "revision": "0" * 40}
    (folder.onnx / "export.manifest.json").write_text(json.dumps({"checkpoint": checkpoint}))
    command = folder.command("build")
    assert command == f"make build MODEL=me/model NAME=mine OUT='{tmp_path}/my out' REVISION={'0' * 40}"
    assert shlex.split(command)[4] == f"OUT={tmp_path}/my out"
    assert ModelFolder(tmp_path / "a$b").command("build").endswith(f" NAME='a$$b' OUT={tmp_path}")
    assert folder.command("validate").startswith("make validate MODEL=me/model")


@pytest.mark.parametrize("spelling", ["", ".", "onnx/.."])
def test_a_command_names_a_folder_that_was_given_without_its_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, spelling: str
) -> None:
    (tmp_path / "mine" / "onnx").mkdir(parents=True)
    monkeypatch.chdir(tmp_path / "mine")
    assert ModelFolder(Path(spelling)).command("build").endswith(f" NAME=mine OUT={tmp_path}")
