"""The two TensorRTs, and the one place that decides which of them this process uses.

Polygraphy reads `POLYGRAPHY_USE_TENSORRT_RTX` when it is imported and keeps to it, so the choice is made here, before
Polygraphy, and a process keeps to its first one. Nothing is imported until `load`.
"""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Callable
from enum import Enum
from typing import Any, ClassVar

from artifacts.errors import refuse
from artifacts.versions import versions

SWITCH = "POLYGRAPHY_USE_TENSORRT_RTX"
"""Any value but "0" turns Polygraphy to TensorRT-RTX, "false" included."""


class Backend(Enum):
    """A TensorRT; the value is how `--backend` spells it and what its package is called."""

    TENSORRT = "tensorrt"
    RTX = "tensorrt-rtx"

    @property
    def module(self) -> str:
        """Name of its Python module."""
        return self.value.replace("-", "_")

    @property
    def tool(self) -> str:
        """Name of the command-line tool that it comes with."""
        return "tensorrt_rtx" if self is Backend.RTX else "trtexec"

    @property
    def version(self) -> str:
        """Installed version, such as `1.7.1.116`, without importing it; `absent` if it is not installed."""
        return versions(self.value)[self.value]

    @property
    def installed(self) -> bool:
        """Whether its package is installed."""
        return self.version != "absent"

    @classmethod
    def preferred(cls) -> Backend:
        """Give TensorRT itself where it is installed, else TensorRT-RTX: whose parser is asked if nobody says."""
        return cls.TENSORRT if cls.TENSORRT.installed else cls.RTX


def load(backend: Backend) -> Any:
    """Import one TensorRT and turn Polygraphy to it; give the module, which is called `trt` throughout.

    Raises:
        StageError: it cannot be imported, or this process already uses Polygraphy with the other one.
    """
    wanted = backend is Backend.RTX
    os.environ[SWITCH] = str(int(wanted))
    polygraphy = sys.modules.get("polygraphy")
    if polygraphy is not None and wanted != polygraphy.config.USE_TENSORRT_RTX:
        raise refuse(
            f"this process already uses Polygraphy with the other TensorRT than {backend.value}",
            expected=f"{SWITCH}={int(wanted)} before Polygraphy is imported",
            remedy="run each TensorRT in a process of its own",
        )
    try:
        return importlib.import_module(backend.module)
    except ImportError as error:
        raise refuse(
            f"{backend.value} cannot be imported",
            found=str(error),
            remedy="make setup, or --backend tensorrt-rtx, which needs no GPU",
        ) from None


class _Listeners:
    """Who hears what TensorRT says; one logger a TensorRT, made once."""

    loggers: ClassVar[dict[str, Any]] = {}


def logger(trt: Any) -> Any:
    """Give the one logger of this process; set its `listener` to hear a severity's name and a message.

    TensorRT keeps to the first logger that a builder gets and ignores every later one, so all that use TensorRT in a
    process must use this one; Polygraphy is given it too. A listener must not raise: TensorRT calls it from C++.
    """
    if trt.__name__ not in _Listeners.loggers:

        class Log(trt.ILogger):  # type: ignore[misc]  # TensorRT comes without types
            """Hands messages on, or drops them where nobody listens."""

            def __init__(self) -> None:
                trt.ILogger.__init__(self)
                self.listener: Callable[[str, str], None] | None = None

            def log(self, severity: Any, message: str) -> None:
                """Called by TensorRT."""
                if self.listener is not None:
                    self.listener(severity.name, message)

        _Listeners.loggers[trt.__name__] = Log()
    from polygraphy.backend.trt import util

    util.TRT_LOGGER = _Listeners.loggers[trt.__name__]
    return util.TRT_LOGGER
