"""An HTTP server that ends on the first signal, whoever still reads: running texts end with an error."""

from __future__ import annotations

import signal
import socket
from contextlib import suppress

import uvicorn

from runtime.server.app import create_app
from runtime.server.service import Service

SLOWEST_CLIENT_SECONDS = 3
"""How long a client that does not read its last event is waited for."""


class EndingServer(uvicorn.Server):
    """Ends the service's texts before it waits for its connections to close."""

    def __init__(self, service: Service) -> None:
        super().__init__(
            uvicorn.Config(
                create_app(service),
                log_level="warning",
                timeout_keep_alive=30,
                timeout_graceful_shutdown=SLOWEST_CLIENT_SECONDS,
            )
        )
        self._service = service

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Take nothing new, tell those who wait that it is over, and wait for them to hear it."""
        self._service.close()
        await super().shutdown(sockets)


def serve_until_a_signal(service: Service, door: socket.socket) -> None:
    """Serve in the main thread until SIGINT or SIGTERM comes."""
    # The server ends in order, gives the signals their old handlers back, and raises them once more: SIGTERM's
    # would end the process on the spot.
    before = signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        with suppress(KeyboardInterrupt):
            EndingServer(service).run(sockets=[door])
    finally:
        signal.signal(signal.SIGTERM, before)
