"""Versions of the tools that a result depends on, as manifests record them; this project's own code is one of them."""

from __future__ import annotations

import hashlib
import platform
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from artifacts import __version__

THIS_PROJECT = "this project"
_ROOT = Path(__file__).parent.parent


def versions(*packages: str) -> dict[str, str]:
    """Give the installed version of each package, by its name in the package index; `python` is Python itself.

    A package that is not installed has the version `absent`.
    """
    return {package: _version(package) for package in packages}


def own_version(*packages: str) -> dict[str, str]:
    """Give the version of this project's code in some packages and in `artifacts`: release, and digest of the source.

    So what an older state of the code made is not called up to date, though the release is the same.
    """
    digest = hashlib.sha256()
    for pattern in ("artifacts/*.py", *(f"{package}/**/*.py" for package in packages)):
        for path in sorted(_ROOT.glob(pattern)):
            digest.update(f"{path.relative_to(_ROOT)}\0".encode() + path.read_bytes() + b"\0")
    return {THIS_PROJECT: f"{__version__} {digest.hexdigest()[:12]}"}


def _version(package: str) -> str:
    if package == "python":
        return platform.python_version()
    try:
        return version(package)
    except PackageNotFoundError:
        return "absent"
