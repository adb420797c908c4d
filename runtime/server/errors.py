"""Errors as clients of the OpenAI API expect them: a status, and an object with message, type, param and code."""

from __future__ import annotations

from typing import Any

from starlette.responses import JSONResponse

from artifacts.errors import StageError

KINDS = {401: ("invalid_request_error", "invalid_api_key"), 429: ("requests", "rate_limit_exceeded")}
"""Type and code of the errors that OpenAI's API tells apart by more than their status."""


class ApiError(Exception):
    """A request is answered with an error.

    Attributes:
        status: the HTTP status.
        message: what was wrong, what was expected and what to do.
        param: the field of the request that it is about.
        headers: further headers, such as Retry-After.
    """

    def __init__(
        self, status: int, message: str, *, param: str | None = None, headers: dict[str, str] | None = None
    ) -> None:
        super().__init__(message)
        self.status, self.message, self.param, self.headers = status, message, param, headers

    @classmethod
    def of(cls, error: StageError, status: int = 400) -> ApiError:
        """Tell a refusal with all of its problems."""
        return cls(status, str(error))

    def body(self) -> dict[str, Any]:
        """Give the error object."""
        usual = ("invalid_request_error" if self.status < 500 else "server_error", None)
        kind, code = KINDS.get(self.status, usual)
        return {"error": {"message": self.message, "type": kind, "param": self.param, "code": code}}

    def response(self) -> JSONResponse:
        """Give the whole answer."""
        return JSONResponse(self.body(), self.status, self.headers)
