"""What a client gets told when it does not get an answer: a status, and one shape per dialect."""

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
from filbert.serve.engine import Closed, Failed, Late, Overloaded
from filbert.serve.engines import NoSuchModel
from filbert.serve.schema import TOO_MANY
from filbert.serve.settings import MOST_INPUTS
from filbert.serve.work import TooLong

log = logging.getLogger(__name__)

# Status to `error_type`; text-embeddings-inference's words where it has one.
KINDS = {
    400: "Empty",
    401: "Unauthorized",
    403: "Forbidden",
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

_SENTENCES = {
    400: "The body cannot be read as JSON.",
    404: "There is nothing at this address. GET /openapi.json lists what there is.",
    405: "This address does not take this method.",
}


class Refusal(Exception):
    """A request that gets no answer.

    Attributes:
        status: HTTP status.
        message: for people: what is wrong and what to do; no more of the texts than the client
            itself sent.
        headers: further headers of the response.
    """

    def __init__(
        self, status: int, message: str, *, headers: Mapping[str, str] | None = None
    ) -> None:
        super().__init__(message)
        self.status = status
        self.message = message
        self.headers = dict(headers or {})


def shape_for(path: str) -> Any:
    """The function that makes the JSON content of an error under a path: OpenAI's on /v1."""
    return openai_shape if path == "/v1" or path.startswith("/v1/") else plain_shape


def plain_shape(refusal: Refusal) -> dict[str, Any]:
    """text-embeddings-inference's shape, which is ours too."""
    return {"error": refusal.message, "error_type": KINDS.get(refusal.status, "Internal")}


def openai_shape(refusal: Refusal) -> dict[str, Any]:
    """OpenAI's shape."""
    types = {401: "authentication_error", 429: "rate_limit_error"}
    kind = types.get(refusal.status, "invalid_request_error")
    if refusal.status >= 500 or refusal.status == 424:
        kind = "server_error"
    codes = {401: "invalid_api_key", 429: "rate_limit_exceeded"}
    content = {
        "message": refusal.message,
        "type": kind,
        "param": None,
        "code": codes.get(refusal.status),
    }
    return {"error": content}


def response_to(refusal: Refusal, path: str) -> JSONResponse:
    """The response that tells about a refusal, in the shape of the path's dialect."""
    content = shape_for(path)(refusal)
    return JSONResponse(content, refusal.status, headers=refusal.headers)


def refusal_of(error: Exception) -> Refusal:
    """What an exception means to a client; what is nobody's fault but ours is logged."""
    if isinstance(error, Refusal):
        return error
    if isinstance(error, RequestValidationError):
        return _refusal_of_body(error.errors())
    if isinstance(error, HTTPException):
        message = _SENTENCES.get(error.status_code, str(error.detail))
        # What FastAPI calls 400 is a body that is too deep or holds too long a number.
        status = 422 if error.status_code == 400 else error.status_code
        return Refusal(status, message, headers=error.headers)
    if isinstance(error, Overloaded):
        return overloaded(error.retry_after)
    if isinstance(error, Closed):
        return Refusal(503, "The server is being stopped. Ask another, or try again later.")
    if isinstance(error, Late):
        message = "The answer took longer than a request may take. Try again later, or send less."
        return Refusal(503, message)
    if isinstance(error, NoSuchModel):
        return Refusal(404, str(error))
    if isinstance(error, FilbertError):
        return Refusal(413 if isinstance(error, TooLong) else 422, str(error))
    if isinstance(error, Failed):
        return Refusal(424, str(error))
    log_failure(error)
    return Refusal(500, "The server failed at this request; its log says where.")


def log_failure(error: BaseException) -> None:
    """Log what nobody foresaw: its kind and places, not its message, which may quote a text."""
    frames = traceback.extract_tb(error.__traceback__)
    places = ", ".join(f"{frame.filename}:{frame.lineno} {frame.name}" for frame in frames[-6:])
    log.error("A request failed: %s at %s", type(error).__name__, places)


def overloaded(seconds: float) -> Refusal:
    """More is waiting than may wait; try again after so many seconds."""
    wait = str(max(1, round(seconds)))
    return Refusal(429, "The server has too much to do.", headers={"Retry-After": wait})


def add_handlers(app: FastAPI) -> None:
    """Make every exception of a route a response in the right shape."""

    async def handle(request: Request, error: Exception) -> JSONResponse:
        return response_to(refusal_of(error), request.url.path)

    foreseen = (Refusal, RequestValidationError, HTTPException, FilbertError)
    for kind in (*foreseen, Overloaded, Late, Failed):
        app.add_exception_handler(kind, handle)


def _refusal_of_body(errors: Sequence[Mapping[str, Any]]) -> Refusal:
    if any(error["type"] == TOO_MANY for error in errors):
        return Refusal(413, f"A list has more than {MOST_INPUTS:,} entries. Send less at once.")
    return Refusal(422, _what_is_invalid(max(errors, key=_progress)))


def _progress(error: Mapping[str, Any]) -> tuple[int, list[int], bool]:
    """How far a branch of a union got before it complained: the one that got furthest was meant."""
    indices = [part for part in error["loc"] if isinstance(part, int)]
    return len(error["loc"]), indices, not error["type"].endswith("_type")


def _what_is_invalid(error: Mapping[str, Any]) -> str:
    if error["type"] == "json_invalid":
        reason = error.get("ctx", {}).get("error", "it cannot be read")
        return printable(f"The body is not valid JSON: {reason}.", 300)
    if error["type"] == "extra_forbidden":
        return printable(f"{error['loc'][-1]!r} is no key of this request; see /openapi.json.", 300)
    if error["type"] == "value_error":
        return printable(f"The body cannot be meant: {error['ctx']['error']}.", 300)
    places = [str(part) for part in error["loc"] if _is_place(part)]
    if not places:
        return "The body must be a JSON object, sent with Content-Type: application/json."
    message = error["msg"][:1].lower() + error["msg"][1:]
    return printable(f"{'.'.join(places)}: {message}.", 300)


def _is_place(part: str | int) -> bool:
    """Whether a part of pydantic's path is a key or an index, and no type of a union."""
    if isinstance(part, int):
        return True
    return part.replace("_", "").isalpha() and part.islower() and part not in ("body", "int", "str")
