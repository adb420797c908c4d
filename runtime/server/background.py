"""A server on a free port, in threads of this process: for measurements and tests that need a real connection."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

import uvicorn
from starlette.types import ASGIApp

HOST = "127.0.0.1"


@contextmanager
def in_background(app: ASGIApp) -> Iterator[str]:
    """Serve an application until the end of the block; gives its URL."""
    server = uvicorn.Server(uvicorn.Config(app, HOST, 0, log_level="error"))
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    while not server.started and thread.is_alive():
        time.sleep(0.01)
    try:
        yield f"http://{HOST}:{server.servers[0].sockets[0].getsockname()[1]}"
    finally:
        server.should_exit = True
        thread.join()
