"""Versions of the tools that a result depends on, as manifests record them."""

from __future__ import annotations

import platform
from importlib.metadata import PackageNotFoundError, version


def versions(*packages: str) -> dict[str, str]:
    """Give the installed version of each package, by its name in the package index; `python` is Python itself.

    A package that is not installed has the version `absent`.
    """
    return {package: _version(package) for package in packages}


def _version(package: str) -> str:
    if package == "python":
        return platform.python_version()
    try:
        return version(package)
    except PackageNotFoundError:
        return "absent"
