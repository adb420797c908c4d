"""The report's page: what it says, what it draws, and that it is one file that a real browser shows without a fault."""

from __future__ import annotations

import html
import json
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from artifacts.layout import ModelFolder
from artifacts.manifest import FileRecord, Manifest
from tests.browser import CHROMIUM, DRIVER, open_browser
from tests.layer_findings import KIN
from tests.undrawn import leave_out_pictures
from validate.certificate import Movement
from validate.exam import Paper, Question, Sheet
from validate.findings import Check, Findings
from validate.greedy import Continuation
from validate.layers import ENGINE
from validate.layers.findings import FirstWrong, LastWord, LayerFindings, TensorFinding
from validate.network import LABEL
from validate.page import write_page
from validate.page.certificate_plot import contradicts
from validate.page.continuation import written
from validate.page.views import distance, used, views
from validate.page.worst import command
from validate.plans import PlanState
from validate.prompt import Prompt
from validate.report import Report
from validate.runners import RUNNERS

LAYERS = 6
WRONG = "model.layers.2.mlp.down_proj"
KINDS = ("input_layernorm", "self_attn.attention", "mlp.down_proj", "layer")
PNG = b"\x89PNG\r\n\x1a\n"


def row(kind: str, layer: int | None, order: int, **changes: Any) -> TensorFinding:
    name = kind if layer is None else f"model.layers.{layer}" + (f".{kind}" if kind != "layer" else "")
    found = TensorFinding(
        name=name,
        layer=layer,
        kind=kind,
        order=order,
        instrument="structure",
        subject=f"{LABEL}: model_fp32",
        scenario="chunk of 5 after 301",
        elements=1000,
        error=1e-6 * (order + 1),
        magnitude=2.0,
        slope=1.0 + 1e-7 * order,
        bias=0.0,
        spread=1e-6,
        rows=0.0,
        measure="error",
        limit=1e-4,
    )
    return replace(found, **changes)


def layer_findings(*, wrong: bool, both: bool = False) -> LayerFindings:
    """What one instrument found, or both; drawing is what takes the time here."""
    rows = [row("model.embed_tokens", None, 0, error=0.0, limit=0.0)]
    for layer in range(LAYERS):
        rows += [row(kind, layer, 1 + len(KINDS) * layer + place) for place, kind in enumerate(KINDS)]
    rows.append(row("logits", None, len(rows)))
    precision = [
        replace(one, instrument="precision", subject=f"{LABEL}: model", measure="spread", spread=2e-3, limit=5e-3)
        for one in rows
    ]
    first = None
    if wrong:
        place = next(place for place, one in enumerate(rows) if one.name == WRONG)
        rows[place] = replace(rows[place], error=0.01, slope=1.01, problem="error is off by 1e-02")
        words = "Every value is 1.01 times what it should be: a scale is off. <script>alert(1)</script>"
        feeds = ((f"{WRONG.removesuffix('.down_proj')}.gate_proj", True),)
        first = FirstWrong(WRONG, 2, "structure", rows[place].subject, rows[place].scenario, feeds, "slope", words)
    logits = tuple(number / 10 for number in range(-20, 20))
    last = LastWord(f"{LABEL}: model_fp32", 40, 1e-6, 11, 11, 0, logits, logits)
    return LayerFindings(
        "named",
        "ONNX Runtime",
        "tensorrt_rtx 1.7.1",
        ("a call",),
        (*rows, *(precision if both else ())),
        first,
        (last,),
    )


def report(folder: Path, *, layers: LayerFindings | None) -> Report:
    """Every runner found everything right; the third one's tokens part at step 2, where two logits nearly tie."""
    found = []
    for place, runner in enumerate(RUNNERS):
        moved = tuple(Movement(layer, 0.0 if layer == 3 else 6.0, 0.0) for layer in range(LAYERS))
        tokens = [5, 6, 7 + (place == 2), 8]
        check = Check("small positions: one call", 17, 4000, 2e-7, 1e-7, 1e-4)
        found.append(
            Findings(runner.name, runner.role.value, [check], moved, Continuation(tokens, [1.0, 1.0, 1e-9, 1.0]))
        )
    return Report(
        model="a-model",
        target="a-target",
        uses_rope=tuple(layer != 3 for layer in range(LAYERS)),
        prompt=Prompt((1, 2, 3), "Is 1 < 2?"),
        findings=tuple(found),
        texts={runner.name: "Yes & no." for runner in RUNNERS},
        plans=(PlanState("a-plan", ()),),
        folder=folder,
        layers=layers,
        kinships=KIN,
    )


@pytest.fixture(scope="module")
def wrong(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a report with a fault in it."""
    folder = tmp_path_factory.mktemp("out") / "a-model" / "validate" / "a-target"
    write_page(report(folder, layers=layer_findings(wrong=True, both=True)), {"torch": "2.13.0"})
    return folder


@pytest.fixture(scope="module")
def text(wrong: Path) -> str:
    return (wrong / "report.html").read_text()


def test_the_page_says_no_first_then_where_and_why(text: str) -> None:
    assert "<strong>No</strong>" in text
    assert text.index("The first wrong tensor") < text.index("Worst tensors") < text.index("Layer by layer")
    assert f'<code class="wrong">{WRONG}</code>' in text
    assert "a scale is off" in text
    assert "gate_proj</code> (right)" in text


def test_the_page_says_yes_with_what_was_compared(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    leave_out_pictures(monkeypatch)
    found = report(tmp_path, layers=layer_findings(wrong=False))
    assert found.verdict, found.problems
    page = write_page(found, {})[0].read_text()
    assert "<strong>Yes</strong>" in page
    numbers = r"\d+ tensors, [\d,]+ elements"
    assert re.search(f"agrees with the reference: {numbers} with PyTorch; {numbers} layer by layer", page)
    assert "The first wrong tensor" not in page


def test_it_names_model_target_versions_and_what_the_results_are(text: str) -> None:
    for words in ("a-model", "a-target", "2.13.0", "tensorrt_rtx 1.7.1", "matplotlib", "a-plan"):
        assert words in text
    assert LABEL in text
    assert "No engine was run" in text
    assert not re.search(r"engine", text.replace("No engine was run", ""), re.IGNORECASE)


def test_an_engine_is_named_where_one_was_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    leave_out_pictures(monkeypatch)
    layers = layer_findings(wrong=False)
    rows = tuple(replace(row, subject=row.subject.replace(LABEL, ENGINE)) for row in layers.tensors)
    found = report(tmp_path, layers=replace(layers, tensors=rows))
    page = write_page(found, {})[0].read_text()
    assert "Engines were built from model_fp32 and run on a GPU" in page
    assert "No engine" not in page


def test_what_comes_from_outside_is_escaped(text: str) -> None:
    assert "<script" not in text
    assert "Is 1 &lt; 2?" in text
    assert "Yes &amp; no." in text


def test_each_worst_tensor_has_a_command_that_the_command_line_takes(text: str, wrong: Path) -> None:
    commands = [html.unescape(found) for found in re.findall(r'<code class="command">(.*?)</code>', text)]
    assert len(commands) == 16
    assert commands[0] == command(layer_findings(wrong=True).tensors[11], wrong.parent.parent)
    words = shlex.split(commands[0])
    assert words[:4] == ["python", "-m", "validate.debugging", str(wrong.parent.parent)]
    assert words[4:] == ["--tensor", WRONG, "--graph", "model", "--call", "chunk of 5 after 301"]


def test_every_plot_is_there_as_a_png_and_in_both_looks(text: str, wrong: Path) -> None:
    names = {path.stem for path in (wrong / "plots").glob("*.png")}
    kinds = ("error", "slope", "map")
    slugs = [view.slug for view in views(layer_findings(wrong=True, both=True))]
    assert names == {"certificate", "logits", *(f"{kind}-{slug}" for kind in kinds for slug in slugs)}
    assert all((wrong / "plots" / f"{name}.png").read_bytes().startswith(PNG) for name in names)
    assert len(re.findall(r'<img src="data:image/svg\+xml;base64,', text)) == len(names)
    assert len(re.findall(r'<source media="\(prefers-color-scheme: dark\)" srcset="data:', text)) == len(names)


def test_the_first_token_that_differs_is_marked_and_near_ties_are_dotted(text: str, wrong: Path) -> None:
    sides = written(report(wrong, layers=None))
    assert [side.differs for side in sides][:3] == [None, None, 2]
    assert len(re.findall("<mark>", text)) == 1
    assert "<mark>8</mark>" in text


@pytest.mark.parametrize(
    ("moved", "rotates", "expected"),
    [(6.0, True, False), (1e-6, True, True), (float("inf"), True, True), (1e-6, False, False), (6.0, False, True)],
)
def test_the_strip_marks_what_contradicts_the_config(moved: float, rotates: bool, expected: bool) -> None:
    assert contradicts(Movement(0, moved, 0.0), rotates, judged=True) is expected


def test_a_report_without_layers_has_a_page_too(tmp_path: Path) -> None:
    files = write_page(report(tmp_path, layers=None), {})
    assert [path.name for path in files] == ["report.html", "certificate.png"]
    page = files[0].read_text()
    assert "The layers were not compared" in page
    assert "Continuation, side by side" in page


def test_an_exam_is_a_table_of_right_answers_and_perplexities(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    leave_out_pictures(monkeypatch)
    made = report(tmp_path, layers=None)
    questions = (Question("recall", (1, 2), (3, 4), "the code?", "4"), Question("copy", (1,), (5,), "copy", "5"))
    sheet = Sheet([Continuation([3, 4], [1.0, 1.0]), Continuation([6], [1.0])], 9.0, 2.3456)
    found = tuple(replace(one, sheet=sheet) for one in made.findings)
    write_page(replace(made, findings=found, paper=Paper(questions, (1, 2, 3), "the exam's text")), {})
    page = (tmp_path / "report.html").read_text()
    assert "the exam&#39;s text, 3 tokens" in page
    assert '<td class="number">1/1</td><td class="number">0/1</td><td class="number">2.3456</td>' in page


@pytest.mark.slow
def test_equal_findings_give_equal_files(wrong: Path, tmp_path: Path) -> None:
    again = write_page(replace(report(wrong, layers=layer_findings(wrong=True)), folder=tmp_path), {"torch": "2.13.0"})
    for path in again[1:]:
        assert path.read_bytes() == (wrong / "plots" / path.name).read_bytes()


def test_how_much_of_a_limit_is_used() -> None:
    """A slope's distance is from 1; where no difference is allowed, any is infinite; nothing compared is wrong."""
    assert used(row("layer", 1, 0, error=5e-5)) == pytest.approx(0.5)
    assert used(row("layer", 1, 0, measure="slope", slope=0.997, limit=1e-3)) == pytest.approx(3)
    assert used(row("layer", 1, 0, measure="rows", rows=0.0, limit=0.5)) == 0
    assert used(row("layer", 1, 0, error=1e-9, limit=0.0)) == float("inf")
    assert used(row("layer", 1, 0, error=0.0, limit=0.0)) == 0
    assert distance(row("layer", 1, 0, elements=0, problem="is missing")) == float("inf")


@pytest.mark.slow
def test_tensors_that_could_not_be_measured_are_drawn_all_the_same(tmp_path: Path) -> None:
    findings = layer_findings(wrong=False)
    broken = replace(
        findings.tensors[6], elements=0, error=float("inf"), slope=None, spread=None, problem="is missing", scenario=""
    )
    rows = (*findings.tensors[:6], broken, *findings.tensors[7:])
    page = write_page(report(tmp_path, layers=replace(findings, tensors=rows)), {})[0].read_text()
    assert "is missing" in page
    assert command(broken, tmp_path).endswith(f"--layer {broken.layer} --graph model")


@pytest.mark.slow
def test_the_command_makes_the_page_again_from_the_json(tmp_path: Path) -> None:
    folder = ModelFolder(tmp_path / "a-model")
    place = folder.target("validate", "a-target")
    place.mkdir(parents=True)
    found = report(place, layers=None)
    found.write(place / "report.json")
    digests = folder.digests()
    wrote = {folder.relative(place / "report.json"): FileRecord.of(place / "report.json", digests)}
    gone = {"validate/a-target/plots/gone.png": FileRecord(1, "an old digest")}
    Manifest("validate", {}, {}, {}, {**wrote, **gone}, {"torch": "9.9"}).write(place / "manifest.json")
    done = subprocess.run([sys.executable, "-m", "validate.page", str(place)], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert str(place / "report.html") in done.stdout
    assert "9.9" in (place / "report.html").read_text()
    manifest = Manifest.read(place / "manifest.json", made_by="")
    files = {folder.relative(path) for path in place.rglob("*") if path.is_file()}
    assert manifest.outputs.keys() | {"validate/a-target/manifest.json"} == files
    assert manifest.is_current(folder.root, digests, options={}, checkpoint={}, inputs={}, tools={"torch": "9.9"})


def test_the_command_says_what_is_missing(tmp_path: Path) -> None:
    done = subprocess.run([sys.executable, "-m", "validate.page", str(tmp_path)], capture_output=True, text=True)
    assert done.returncode == 2
    assert "report.json is missing" in done.stderr


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    pytest.importorskip("selenium.webdriver", reason="needs selenium (dev extra)")
    if not (CHROMIUM and DRIVER):
        pytest.skip("needs chromium and chromedriver on the PATH")
    with open_browser(tmp_path_factory.mktemp("profile")) as driver:
        yield driver


@pytest.mark.parametrize(("look", "width"), [("light", 360), ("dark", 1200)])
def test_a_real_browser_shows_it_without_a_fault_or_a_request(browser: Any, wrong: Path, look: str, width: int) -> None:
    browser.execute_cdp_cmd(
        "Emulation.setEmulatedMedia", {"features": [{"name": "prefers-color-scheme", "value": look}]}
    )
    browser.execute_cdp_cmd(
        "Emulation.setDeviceMetricsOverride",
        {"width": width, "height": 800, "deviceScaleFactor": 1, "mobile": width < 500},
    )
    browser.get_log("performance")  # what the browser's own first page asked for
    browser.get((wrong / "report.html").as_uri())
    assert browser.get_log("browser") == []
    events = [json.loads(entry["message"])["message"] for entry in browser.get_log("performance")]
    asked = [event["params"]["request"]["url"] for event in events if event["method"] == "Network.requestWillBeSent"]
    assert asked
    assert {url.partition(":")[0] for url in asked} <= {"file", "data"}
    assert [url for url in asked if url.startswith("file")] == [(wrong / "report.html").as_uri()]
    script = "return [...document.images].every(i => i.complete && i.naturalWidth > 100)"
    assert browser.execute_script(script)
    # Wide things scroll in themselves; the page does not.
    assert browser.execute_script("return document.documentElement.scrollWidth") <= width
    ground = browser.execute_script("return getComputedStyle(document.body).backgroundColor")
    assert ground == ("rgb(255, 255, 255)" if look == "light" else "rgb(20, 24, 29)")


def test_a_request_would_be_seen(browser: Any, wrong: Path, tmp_path: Path) -> None:
    """The check above sees a page that asks for something, and the page's own policy stops it."""
    page = (wrong / "report.html").read_text()
    bad = tmp_path / "bad.html"
    bad.write_text(page.replace("<main>", '<main><img src="http://127.0.0.1:9/x.png">', 1))
    browser.get(bad.as_uri())
    assert any("Content Security Policy" in entry["message"] for entry in browser.get_log("browser"))
    browser.get_log("performance")
