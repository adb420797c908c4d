"""Make report.html and the plots again from report.json: `python -m validate.page OUT/<model>/validate/<target>`.

The manifest beside them gets their new digests, so that the report stays up to date.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from artifacts.command import DONE, Parser, run, stdout
from artifacts.layout import ModelFolder
from artifacts.manifest import FileRecord, Manifest
from artifacts.writing import Writing
from validate.page.page import write_page
from validate.report import REPORT, read_report
from validate.validation import MANIFEST


def main(arguments: Sequence[str]) -> int:
    """Parse the command line and write the page."""
    parser = Parser(prog="python -m validate.page", description=__doc__)
    parser.add_argument("report", type=Path, help="the report's folder, OUT/<model>/validate/<target>")
    place = parser.parse_args(arguments).report
    command = f"python -m validate {place.parent.parent}"
    report = read_report(place, remedy=command)
    manifest = Manifest.read(place / MANIFEST, made_by=command)
    files = write_page(report, manifest.tools)
    _record(manifest, place, files)
    for path in files:
        stdout().print(str(path), markup=False, soft_wrap=True)
    return DONE


def _record(manifest: Manifest, place: Path, files: Sequence[Path]) -> None:
    """Write the manifest again, with the page's files as they are now; what it says of report.json stays."""
    folder = ModelFolder(place.resolve().parent.parent)
    digests, names = folder.digests(), {path: folder.relative(path.resolve()) for path in (*files, place / REPORT)}
    kept = {name: record for name, record in manifest.outputs.items() if name == names[place / REPORT]}
    made = {names[path]: FileRecord.of(path, digests) for path in files}
    with Writing(place) as writing:
        replace(manifest, outputs={**made, **kept}).write(writing.path(MANIFEST))


if __name__ == "__main__":
    run(main, sys.argv[1:])
