"""Make report.html and the plots again from report.json: `python -m validate.page OUT/<model>/validate/<target>`."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from pathlib import Path

from artifacts.command import DONE, Parser, run, stdout
from artifacts.errors import refuse
from artifacts.manifest import Manifest
from validate.page.page import write_page
from validate.report import REPORT, Report


def main(arguments: Sequence[str]) -> int:
    """Parse the command line and write the page."""
    parser = Parser(prog="python -m validate.page", description=__doc__)
    parser.add_argument("report", type=Path, help="the report's folder, OUT/<model>/validate/<target>")
    place = parser.parse_args(arguments).report
    command = f"python -m validate {place.parent.parent}"
    try:
        report = Report.read(place)
    except FileNotFoundError:
        raise refuse(f"{place / REPORT} is missing", expected="a report", remedy=command) from None
    except (json.JSONDecodeError, KeyError, TypeError) as error:
        raise refuse(f"{place / REPORT} is no report of this version", found=repr(error), remedy=command) from None
    tools = Manifest.read(place / "manifest.json", made_by=command).tools
    for path in write_page(report, tools):
        stdout().print(str(path), markup=False, soft_wrap=True)
    return DONE


if __name__ == "__main__":
    run(main, sys.argv[1:])
