"""Error responses: which status and message an exception gives, in the shape of each API."""

from __future__ import annotations

import logging
import traceback
from collections.abc import Mapping, Sequence
from typing import Any

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from starlette.exceptions import HTTPException

from filbert.errors import FilbertError, printable
from filbert.serve.engine import Closed, Failed, Late, NoSuchModel, Overloaded, TooLong
from filbert.serve.schema import TOO_MANY
from filbert.serve.settings import MAX_LIST

log = logging.getLogger(__name__)

# `error_type` by status, in the words of text-embeddings-inference where it has one.
ERROR_TYPES = {
    400: "Empty",
    401: "Unauthorized",
    404: "NotFound",
    405: "MethodNotAllowed",
    408: "Timeout",
    413: "Validation",
    422: "Validation",
    424: "Backend",
    429: "Overloaded",
    500: "Internal",
    503: "Unhealthy",
}

_HTTP_MESSAGES = {
    400: "The body cannot be read as JSON.",
    404: "There is nothing at this address. GET /openapi.json lists the routes.",
    405: "This address does not support this method.",
}


class Refusal(Exception):
    """A request that gets an error response.

    Attributes:
        status: HTTP status.
        message: What is wrong and what to do.
        headers: Additional response headers.
    """

    def __init__(
        self, status: int, message: str, *, headers: Mapping[str, str] | None = None
    ) -> None:
        super().__init__(message)
        self.status = status
        self.message = message
        self.headers = dict(headers or {})


def response_to(refusal: Refusal, path: str) -> JSONResponse:
    """The error response: OpenAI's shape below /v1, otherwise text-embeddings-inference's."""
    is_openai = path == "/v1" or path.startswith("/v1/")
    content = _openai_content(refusal) if is_openai else _plain_content(refusal)
    return JSONResponse(content, refusal.status, headers=refusal.headers)


def _plain_content(refusal: Refusal) -> dict[str, Any]:
    return {"error": refusal.message, "error_type": ERROR_TYPES.get(refusal.status, "Internal")}


def _openai_content(refusal: Refusal) -> dict[str, Any]:
    types = {401: "authentication_error", 424: "server_error", 429: "rate_limit_error"}
    default = "server_error" if refusal.status >= 500 else "invalid_request_error"
    codes = {401: "invalid_api_key", 429: "rate_limit_exceeded"}
    content = {
        "message": refusal.message,
        "type": types.get(refusal.status, default),
        "param": None,
        "code": codes.get(refusal.status),
    }
    return {"error": content}


def refusal_of(error: Exception) -> Refusal:
    """The refusal for an exception. Unexpected exceptions are logged and give 500."""
    if isinstance(error, Refusal):
        return error
    if isinstance(error, RequestValidationError):
        return _invalid_body(error.errors())
    if isinstance(error, HTTPException):
        message = _HTTP_MESSAGES.get(error.status_code, str(error.detail))
        # FastAPI's 400 is a body that is nested too deeply or has too long a number.
        status = 422 if error.status_code == 400 else error.status_code
        return Refusal(status, message, headers=error.headers)
    if isinstance(error, Overloaded):
        return overloaded(error.retry_after)
    if isinstance(error, Closed):
        return Refusal(503, "The server is stopping. Try again later.")
    if isinstance(error, Late):
        message = "The answer took longer than the time limit. Try again later, or send less."
        return Refusal(503, message)
    if isinstance(error, NoSuchModel):
        return Refusal(404, str(error))
    if isinstance(error, FilbertError):
        return Refusal(413 if isinstance(error, TooLong) else 422, str(error))
    if isinstance(error, Failed):
        return Refusal(424, str(error))
    log_failure(error)
    return Refusal(500, "The server failed on this request; see its log.")


def log_failure(error: BaseException) -> None:
    """Log the type and place of an exception, but not its message, which may quote a text."""
    frames = traceback.extract_tb(error.__traceback__)
    places = ", ".join(f"{frame.filename}:{frame.lineno} {frame.name}" for frame in frames[-6:])
    log.error("A request failed: %s at %s", type(error).__name__, places)


def overloaded(seconds: float) -> Refusal:
    """The 429 response, with the time after which to try again."""
    wait = str(max(1, round(seconds)))
    return Refusal(429, "The server is overloaded.", headers={"Retry-After": wait})


def add_handlers(app: FastAPI) -> None:
    """Turn the expected exceptions of all routes into error responses."""

    async def handle(request: Request, error: Exception) -> JSONResponse:
        return response_to(refusal_of(error), request.url.path)

    expected = (Refusal, RequestValidationError, HTTPException, FilbertError)
    for kind in (*expected, Overloaded, Late, Failed):
        app.add_exception_handler(kind, handle)


def _invalid_body(errors: Sequence[Mapping[str, Any]]) -> Refusal:
    if any(error["type"] == TOO_MANY for error in errors):
        return Refusal(413, f"A list has more than {MAX_LIST:,} entries. Send less at once.")
    return Refusal(422, printable(_what_is_invalid(max(errors, key=_progress)), 300))


def _progress(error: Mapping[str, Any]) -> tuple[int, list[int], bool]:
    """Sort key: of the alternatives of a union, the one that matched furthest was meant."""
    indices = [part for part in error["loc"] if isinstance(part, int)]
    return len(error["loc"]), indices, not error["type"].endswith("_type")


def _what_is_invalid(error: Mapping[str, Any]) -> str:
    if error["type"] == "json_invalid":
        reason = error.get("ctx", {}).get("error", "it cannot be read")
        return f"The body is not valid JSON: {reason}."
    if error["type"] == "extra_forbidden":
        return f"{error['loc'][-1]!r} is not a key of this request; see /openapi.json."
    if error["type"] == "value_error":
        return f"The body is invalid: {error['ctx']['error']}."
    places = [str(part) for part in error["loc"] if _is_place(part)]
    if not places:
        return "The body must be a JSON object, sent with Content-Type: application/json."
    message = error["msg"][:1].lower() + error["msg"][1:]
    return f"{'.'.join(places)}: {message}."


def _is_place(part: str | int) -> bool:
    """Whether a part of pydantic's path is a key or an index, and not a type of a union."""
    if isinstance(part, int):
        return True
    return part.replace("_", "").isalpha() and part.islower() and part not in ("body", "int", "str")
