"""Error responses: which status and message an exception gives, in the shape of each API."""

from __future__ import annotations

import logging
import traceback
from collections.abc import Mapping, Sequence
from typing import Any

from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from starlette.exceptions import HTTPException

from filbert.errors import FilbertError, printable
from filbert.serve.settings import MAX_LIST

log = logging.getLogger(__name__)

# `error_type` by status, in the words of text-embeddings-inference where it has one.
ERROR_TYPES = {
    400: "Empty", 401: "Unauthorized", 404: "NotFound", 405: "MethodNotAllowed", 408: "Timeout",
    413: "Validation", 422: "Validation", 424: "Backend", 429: "Overloaded", 500: "Internal",
    503: "Unhealthy",
}  # fmt: skip
# `type` and `code` of OpenAI by status.
_OPENAI = {
    401: ("authentication_error", "invalid_api_key"),
    424: ("server_error", None),
    429: ("rate_limit_error", "rate_limit_exceeded"),
}
_HTTP_MESSAGES = {
    400: "The body cannot be read as JSON.",
    404: "There is nothing at this address. GET /openapi.json lists the routes.",
    405: "This address does not support this method.",
}


class Refusal(HTTPException):
    """A request that gets an error response, raised by filbert itself: its message is shown."""


def overloaded(seconds: float) -> Refusal:
    """Return the 429 response, with the time after which to try again."""
    wait = str(max(1, round(seconds)))
    return Refusal(429, "The server is overloaded.", headers={"Retry-After": wait})


def stopping() -> Refusal:
    """Return the response to requests that a server cannot answer before it stops."""
    return Refusal(503, "The server is stopping. Try again later.")


def late() -> Refusal:
    """Return the response after the time limit of a request."""
    return Refusal(503, "The answer took longer than the time limit. Try later, or send less.")


def response_to(refusal: Refusal, path: str) -> JSONResponse:
    """Return the error response: OpenAI's shape below /v1, else text-embeddings-inference's."""
    status, message = refusal.status_code, refusal.detail
    if path == "/v1" or path.startswith("/v1/"):
        default = "server_error" if status >= 500 else "invalid_request_error"
        kind, code = _OPENAI.get(status, (default, None))
        error = {"message": message, "type": kind, "param": None, "code": code}
        content: dict[str, Any] = {"error": error}
    else:
        kind = ERROR_TYPES.get(status, "Internal")
        content = {"error": message, "error_type": kind}
    return JSONResponse(content, status, headers=refusal.headers)


def refusal_of(error: Exception) -> Refusal:
    """Return the refusal for an exception. Unexpected exceptions are logged and give 500."""
    if isinstance(error, Refusal):
        return error
    if isinstance(error, RequestValidationError):
        return _invalid_body(error.errors())
    if isinstance(error, HTTPException):
        message = _HTTP_MESSAGES.get(error.status_code, str(error.detail))
        # FastAPI's 400 is a body that is nested too deeply or has too long a number.
        status = 422 if error.status_code == 400 else error.status_code
        return Refusal(status, message, headers=error.headers)
    if isinstance(error, FilbertError):
        return Refusal(422, str(error))
    log_failure(error)
    return Refusal(500, "The server failed on this request; see its log.")


def log_failure(error: BaseException) -> None:
    """Log the type and place of an exception, but not its message, which may quote a text."""
    frames = traceback.extract_tb(error.__traceback__)
    places = ", ".join(f"{frame.filename}:{frame.lineno} {frame.name}" for frame in frames[-6:])
    log.error("A request failed: %s at %s", type(error).__name__, places)


def _invalid_body(errors: Sequence[Mapping[str, Any]]) -> Refusal:
    if any(error.get("ctx", {}).get("max_length") == MAX_LIST for error in errors):
        return Refusal(413, f"A list has more than {MAX_LIST:,} entries. Send less at once.")
    return Refusal(422, printable(_what_is_invalid(max(errors, key=_progress)), 300))


def _progress(error: Mapping[str, Any]) -> tuple[int, list[int], bool]:
    """Sort key: of the alternatives of a union, the one that matched furthest was meant."""
    indices = [part for part in error["loc"] if isinstance(part, int)]
    return len(error["loc"]), indices, not error["type"].endswith("_type")


def _what_is_invalid(error: Mapping[str, Any]) -> str:
    if error["type"] == "json_invalid":
        return f"The body is not valid JSON: {error['ctx']['error']}."
    if error["type"] == "unknown_key":
        return f"{error['msg']}."
    # Of pydantic's path, keys and indices, and not the types of unions.
    places = [
        str(part)
        for part in error["loc"]
        if isinstance(part, int)
        or (part.replace("_", "").isalpha() and part.islower())
        and part not in ("body", "int", "str")
    ]
    if not places:
        return "The body must be a JSON object, sent with Content-Type: application/json."
    return f"{'.'.join(places)}: {error['msg'][:1].lower()}{error['msg'][1:]}."
