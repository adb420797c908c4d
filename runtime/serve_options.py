"""The options of the server; a module of its own, so that `--help` loads no web framework."""

from __future__ import annotations

from dataclasses import dataclass
from ipaddress import ip_address


@dataclass(frozen=True)
class ServeOptions:
    """How to serve a model.

    Attributes:
        slots: texts that run at once.
        max_queue: texts that may wait.
        chunk: tokens of a prompt that are read between two steps.
        api_key: the key that requests must bear, if any.
        host: the address or name that it listens at.
    """

    slots: int = 8
    max_queue: int = 64
    chunk: int = 256
    api_key: str | None = None
    host: str = "127.0.0.1"

    @property
    def for_this_machine(self) -> bool:
        """Whether no other machine can reach it."""
        try:
            return ip_address(self.host).is_loopback
        except ValueError:
            return self.host == "localhost"
