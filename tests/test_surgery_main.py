"""The command line: a table, "up to date", exit code 2; and nothing half-written by a kill or a full disk."""

import errno
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from artifacts.errors import StageError
from surgery.__main__ import main
from surgery.operation import fuse
from tests.raw_graph import write_raw_folder


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-m", "surgery", *arguments], capture_output=True, text=True, check=False)


def test_a_run_prints_a_table_and_a_second_run_is_up_to_date(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = write_raw_folder(tmp_path / "hand")
    assert main([str(folder.root), "--capacity", "128"]) == 0
    first = capsys.readouterr().out
    assert "hand: fused" in first
    assert "model_linear_fp32.onnx" in first
    assert main([str(folder.root), "--capacity", "128"]) == 0
    assert "hand: up to date" in capsys.readouterr().out


def test_a_capacity_that_was_chosen_stays_until_another_is_given(tmp_path: Path) -> None:
    root = write_raw_folder(tmp_path / "hand").root
    default = fuse(root).manifest.options["capacity"]
    assert default != 128
    assert fuse(root, 128).manifest.options == {"capacity": 128}
    assert fuse(root).up_to_date
    assert fuse(root, default).manifest.options == {"capacity": default}


def test_refusals_have_exit_code_2_and_a_remedy(tmp_path: Path) -> None:
    folder = write_raw_folder(tmp_path / "hand")
    for arguments, text in (
        ((str(tmp_path / "nothing"),), "do:"),
        ((str(folder.root), "--capacity", "1000000"), "--capacity"),
        ((str(folder.root), "--capacty", "128"), "--help"),
    ):
        result = run(*arguments)
        assert result.returncode == 2
        assert text in result.stderr
        assert "Traceback" not in result.stderr
    assert not list(folder.onnx.glob("model*.onnx"))


def test_killed_and_run_again(tmp_path: Path) -> None:
    folder = write_raw_folder(tmp_path / "hand")
    wanted = fuse(write_raw_folder(tmp_path / "other").root, 128).manifest.outputs
    code = f"""
import pathlib, time
import surgery.operation as operation
check, seen = operation.check_fused, []
def wait_at_the_third(*arguments, **options):
    seen.append(0)
    if len(seen) == 3:
        print("here", flush=True)
        time.sleep(60)
    check(*arguments, **options)
operation.check_fused = wait_at_the_third
operation.fuse(pathlib.Path({str(folder.root)!r}), 128)
"""
    process = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE)
    assert process.stdout is not None
    process.stdout.readline()
    os.kill(process.pid, signal.SIGKILL)
    process.wait()
    assert len(list(folder.onnx.glob(".writing*"))) == 2
    assert not list(folder.onnx.glob("model*.onnx"))
    assert not (folder.onnx / "surgery.manifest.json").exists()
    made = fuse(folder.root, 128).manifest.outputs
    assert made == wanted
    assert not list(folder.onnx.glob(".writing*"))


def test_a_kill_between_two_renames_is_found_out_and_mended(tmp_path: Path) -> None:
    folder = write_raw_folder(tmp_path / "hand")
    fuse(folder.root, 128)
    code = f"""
import os, pathlib, signal
import surgery.operation as operation
replace = pathlib.Path.replace
def replace_until_the_linear_one(self, target):
    replace(self, target)
    if target.name == "model_linear.onnx":
        os.kill(os.getpid(), signal.SIGKILL)
pathlib.Path.replace = replace_until_the_linear_one
operation.fuse(pathlib.Path({str(folder.root)!r}), 64)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, check=False)
    assert done.returncode == -signal.SIGKILL
    # That graph is new and the manifest is the old one: nobody believes it, and the next run makes all of them.
    with pytest.raises(StageError, match="is not the file that was made"):
        folder.surgery_manifest().check_outputs(folder.root, folder.digests(), made_by="make surgery")
    made = fuse(folder.root, 64)
    assert not made.up_to_date
    made.manifest.check_outputs(folder.root, folder.digests(), made_by="make surgery")
    assert not list(folder.onnx.glob(".writing*"))


def test_a_full_disk_leaves_what_was_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = write_raw_folder(tmp_path / "hand")
    fuse(folder.root, 128)
    before = {path.name: path.read_bytes() for path in folder.onnx.iterdir()}
    writing = Path.write_bytes

    def full(path: Path, data: bytes) -> int:
        if path.name.endswith("model_all.onnx"):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return writing(path, data)

    monkeypatch.setattr(Path, "write_bytes", full)
    with pytest.raises(Exception, match="No space left on device") as refusal:
        fuse(folder.root, 64)
    assert "free space or set OUT to a larger disk" in str(refusal.value)
    assert before == {path.name: path.read_bytes() for path in folder.onnx.iterdir()}


def test_heavy_libraries_are_not_loaded() -> None:
    code = (
        "import surgery.__main__, sys; print([m for m in ('torch', 'transformers', 'onnxruntime') if m in sys.modules])"
    )
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert result.stdout.strip() == "[]"
