"""What every request passes first: the host, the key, the kind and size of the body, and the count of answers.

Plain ASGI, not Starlette's middleware class, which would hide from the routes that a client went away.
"""

from __future__ import annotations

import hmac
from collections.abc import Callable, Mapping
from urllib.parse import urlsplit

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from runtime.serve_options import ServeOptions
from runtime.server.errors import ApiError
from runtime.server.metrics import Metrics

LARGEST_BODY = 2 << 20
"""Bytes; a context of 65,536 tokens is some 300 KB of text."""

THIS_MACHINE = ("localhost", "127.0.0.1", "::1")
"""Names of this machine; a browser tells the name that its user, or another site's page, has called."""

OPEN_PATHS = ("/", "/health")
"""Paths that need no key: neither runs the model."""


class Gate:
    """Lets through what may come, and counts.

    Args:
        app: the application behind it.
        options: the key that requests must bear, if any, and the host that the server listens at.
        metrics: where answers are counted.
        known_path: gives the path under which a request is counted, so that invented ones do not fill the memory.
    """

    def __init__(self, app: ASGIApp, options: ServeOptions, metrics: Metrics, known_path: Callable[[str], str]) -> None:
        self._app, self._api_key, self._metrics, self._known_path = app, options.api_key, metrics, known_path
        self._hosts = {*THIS_MACHINE, options.host} if options.for_this_machine else None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer or pass on one request."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        path = self._known_path(scope["path"])

        async def counting(message: Message) -> None:
            if message["type"] == "http.response.start":
                self._metrics.requests.labels(path, str(message["status"])).inc()
            await send(message)

        try:
            self._judge_head(scope)
            body = await _body(receive) if scope["method"] == "POST" else b""
        except ApiError as error:
            await error.response()(scope, receive, counting)
            return
        await self._app(scope, _replay(body, receive), counting)

    def _judge_head(self, scope: Scope) -> None:
        """Refuse a request by its head alone."""
        headers = {name.decode("latin-1"): value.decode("latin-1") for name, value in scope["headers"]}
        # Another site may let its own name mean this machine (DNS rebinding); its pages could then read answers.
        if self._hosts is not None and _name(headers.get("host", "localhost")) not in self._hosts:
            raise ApiError(421, f"this server answers to {', '.join(sorted(self._hosts))}, not {headers['host']!r}")
        scheme, _, key = headers.get("authorization", "").partition(" ")
        given = key.strip() if scheme.lower() == "bearer" else ""
        wanted = given if self._api_key is None or scope["path"] in OPEN_PATHS else self._api_key
        # Compared in constant time, so that its beginning cannot be guessed by the clock.
        if not hmac.compare_digest(given.encode(), wanted.encode()):
            raise ApiError(401, "this server wants its API key: Authorization: Bearer <key>")
        # A form of another site could post text to a server on this machine, but not JSON without being asked.
        if scope["method"] == "POST" and _media_type(headers) != "application/json":
            raise ApiError(415, "the body must be application/json")
        length = headers.get("content-length", "0")
        if length.isdigit() and int(length) > LARGEST_BODY:
            raise _too_large()


def _media_type(headers: Mapping[str, str]) -> str:
    """Give the kind of a body, without its parameters, in lower case."""
    return headers.get("content-type", "").partition(";")[0].strip().lower()


def _name(host: str) -> str:
    """Give the name in a Host header, without port and brackets; "" if there is none."""
    try:
        return urlsplit(f"//{host}").hostname or ""
    except ValueError:
        return ""


async def _body(receive: Receive) -> bytes:
    """Read a body, up to the limit."""
    body = bytearray()
    while True:
        message = await receive()
        body += message.get("body", b"")
        if len(body) > LARGEST_BODY:
            raise _too_large()
        if not message.get("more_body", False):
            return bytes(body)


def _too_large() -> ApiError:
    return ApiError(413, f"the body is too large: at most {LARGEST_BODY} bytes", headers={"Connection": "close"})


def _replay(body: bytes, receive: Receive) -> Receive:
    """Give the body again, then what comes after it."""
    given = False

    async def replayed() -> Message:
        nonlocal given
        if given:
            return await receive()
        given = True
        return {"type": "http.request", "body": body, "more_body": False}

    return replayed
