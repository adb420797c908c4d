"""The routes: completions, chat, models, health, metrics, and a page to talk to the model."""

from __future__ import annotations

import html
from collections.abc import Awaitable
from pathlib import Path
from typing import Any

from fastapi import FastAPI, Request
from fastapi.responses import HTMLResponse, JSONResponse, PlainTextResponse, Response
from starlette.exceptions import HTTPException

from artifacts.errors import StageError
from runtime.server.chat_answer import ChatAnswer
from runtime.server.completion_answer import CompletionAnswer
from runtime.server.errors import ApiError
from runtime.server.gate import Gate
from runtime.server.job import Job
from runtime.server.requests import ChatRequest, CompletionRequest, read_body
from runtime.server.service import Service
from runtime.server.streaming import JobResponse, watched

PAGE = Path(__file__).parent / "page.html"
POLICY = "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; connect-src 'self'; img-src data:"
"""The page loads nothing from anywhere and talks to this server only."""


def create_app(service: Service) -> Gate:
    """Make the ASGI application over a running service."""
    app = FastAPI(title="SmolLM3", docs_url=None, redoc_url=None, openapi_url=None)
    app.add_exception_handler(ApiError, _tell)
    app.add_exception_handler(HTTPException, _tell_http)
    _add_pages(app, service)
    _add_completions(app, service)
    paths = {getattr(route, "path", "") for route in app.routes}
    return Gate(app, service.options, service.metrics, known_path=lambda path: path if path in paths else "other")


def _add_pages(app: FastAPI, service: Service) -> None:
    """Add everything that does not run the model."""

    @app.get("/")
    async def page() -> HTMLResponse:
        text = PAGE.read_text(encoding="utf-8").replace("{{model}}", html.escape(service.name))
        return HTMLResponse(text, headers={"Content-Security-Policy": POLICY})

    @app.get("/health")
    async def health() -> JSONResponse:
        alive = service.engine.is_alive()
        return JSONResponse({"status": "ok" if alive else "the engine's thread has ended"}, 200 if alive else 503)

    @app.get("/metrics")
    async def metrics() -> PlainTextResponse:
        return PlainTextResponse(service.metrics.text(), media_type="text/plain; version=0.0.4; charset=utf-8")

    @app.get("/v1/models")
    async def models() -> dict[str, Any]:
        return {"object": "list", "data": [_model(service)]}

    @app.get("/v1/models/{name}")
    async def model(name: str) -> dict[str, Any]:
        if name != service.name:
            raise ApiError(404, f"there is no model {name!r} here, only {service.name!r}", param="model")
        return _model(service)


def _add_completions(app: FastAPI, service: Service) -> None:
    """Add the two routes that run the model."""

    @app.post("/v1/completions")
    async def completions(http: Request) -> Response:
        request = read_body(CompletionRequest, await http.body())
        job = await service.complete(request)
        answer = CompletionAnswer(service, request, job)
        return JobResponse(job, answer.chunks()) if request.stream else await _whole(http, job, answer.whole())

    @app.post("/v1/chat/completions")
    async def chat(http: Request) -> Response:
        request = read_body(ChatRequest, await http.body())
        job, reading = await service.chat(request)
        answer = ChatAnswer(service, request, job, reading)
        return JobResponse(job, answer.chunks()) if request.stream else await _whole(http, job, answer.whole())


async def _whole(http: Request, job: Job, answer: Awaitable[dict[str, Any]]) -> Response:
    """Wait for an answer; the job ends if the client does not wait."""
    async with watched(job, http.receive):
        try:
            return JSONResponse(await answer)
        except StageError as error:
            raise ApiError.of(error, 503) from None


def _model(service: Service) -> dict[str, Any]:
    context = service.model.context
    return {
        "id": service.name,
        "object": "model",
        "created": service.started,
        "owned_by": "local",
        "context_length": context,
    }


async def _tell(_: Request, error: Exception) -> Response:
    assert isinstance(error, ApiError)
    return error.response()


async def _tell_http(_: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    return ApiError(error.status_code, str(error.detail)).response()
