"""Serve the model to clients of the OpenAI API and to a browser."""

from __future__ import annotations

import argparse
import socket

import psutil

from artifacts.command import DONE, stderr
from artifacts.errors import refuse
from runtime import options
from runtime.model import Model
from runtime.terminal_generate import loaded


def serve(given: argparse.Namespace) -> int:
    """Serve the model at /v1 (OpenAI's API) and at / (a page to talk to it) until interrupted."""
    from runtime.server.ending import serve_until_a_signal
    from runtime.server.service import Service

    serving = options.serve_options(given)
    model = Model(given.model, options.run_options(given))
    model.check_shared(serving.slots)
    if model.session.on_host:
        check_memory(model, serving.slots, psutil.virtual_memory().available)
    with listen(serving.host, given.port) as door, loaded(model), Service(model, serving) as service:
        stderr().print(
            f"{service.name} at {address(door)} (API under /v1): {serving.slots} slots of "
            f"{model.context} tokens, {serving.max_queue} may wait. Ctrl-C ends it.",
            soft_wrap=True,
        )
        if serving.api_key is None and not serving.for_this_machine:
            stderr().print("caution: other machines can use it, and it wants no key (--api-key)")
        serve_until_a_signal(service, door)
    return DONE


def listen(host: str, port: int) -> socket.socket:
    """Take the port before anything is loaded.

    Raises:
        StageError: it cannot be had.
    """
    try:
        return socket.create_server((host, port), family=socket.AF_INET6 if ":" in host else socket.AF_INET)
    except OSError as error:
        raise refuse(
            f"nothing can be served at {host}:{port}",
            found=error.strerror or str(error),
            remedy="give another --host or --port",
        ) from None


def address(door: socket.socket) -> str:
    """Spell where a socket listens, with the port that it got."""
    host, port = door.getsockname()[:2]
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


def check_memory(model: Model, slots: int, available: int) -> None:
    """Insist that full slots would fit into memory, beside weights in FP32 that are loaded yet.

    Raises:
        StageError: they would not; it says how many would.
    """
    config = model.config
    slot = model.context * config.num_hidden_layers * 2 * config.num_key_value_heads * config.head_dim * 4
    room = available - config.num_parameters * 4
    if slots * slot > room:
        raise refuse(
            f"{slots} slots of {model.context} tokens do not fit into memory",
            expected=f"at most {max(room, 0) // slot} slots of {slot / 2**20:.0f} MiB in {room / 2**20:.0f} MiB",
            found=f"{slots} slots, {slots * slot / 2**20:.0f} MiB",
            remedy="give fewer --slots or a smaller --context",
        )
