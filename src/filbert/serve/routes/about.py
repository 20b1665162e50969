"""Routes about the server itself: /info, /health, /ping, /metrics and the page at /."""

from __future__ import annotations

import asyncio
import hashlib
from functools import cache
from importlib import resources
from importlib.metadata import version
from typing import Any, NamedTuple

from fastapi import APIRouter, Request, Response
from starlette.exceptions import HTTPException

from filbert.serve.engine import NUM_TOKENIZATION_THREADS, Engine
from filbert.serve.errors import Refusal, log_failure
from filbert.serve.metrics import CONTENT_TYPE
from filbert.serve.routes.shared import Caller
from filbert.serve.schema import ErrorReply

router = APIRouter(tags=["operations"])
page_router = APIRouter(include_in_schema=False)

# A model that needs longer for one short text does not work.
_HEALTH_SECONDS = 10.0
_HEALTH: dict[int | str, dict[str, Any]] = {
    200: {"description": "Every model has just worked.", "content": {}},
    503: {"model": ErrorReply, "description": "A model does not work."},
}

MEDIA_TYPES = {
    ".html": "text/html; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
}

# Only the page's own files and this server, and no inline script or style: a text that looks like
# markup stays text, whatever the page's code does.
_PAGE_HEADERS = {
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; "
    "img-src 'self'; connect-src 'self'; base-uri 'none'; form-action 'none'; "
    "frame-ancestors 'none'; require-trusted-types-for 'script'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    # Requested each time, and answered with 304 if unchanged.
    "Cache-Control": "no-cache",
}


@router.get("/info", summary="Models and limits")
async def info(call: Caller) -> dict[str, Any]:
    """The loaded models with what each can do, and the limits of this server."""
    engine = next(iter(call.engines.values()))
    return {
        "version": version("filbert"),
        "models": [_card(engine) for engine in call.engines.values()],
        "model_id": engine.name,
        "model_sha": None,
        "model_dtype": engine.predictor.number_format,
        "model_type": _type_of(engine),
        "max_concurrent_requests": call.settings.max_concurrent_requests,
        "max_input_length": engine.predictor.max_length,
        "max_batch_tokens": engine.max_batch_tokens,
        "max_batch_requests": None,
        "max_client_batch_size": call.settings.max_inputs,
        "auto_truncate": call.settings.auto_truncate,
        "tokenization_workers": NUM_TOKENIZATION_THREADS,
    }


@router.get("/ping", summary="Health", response_class=Response, responses=_HEALTH)
@router.get("/health", summary="Health", response_class=Response, responses=_HEALTH)
async def health(call: Caller) -> Response:
    """200 after a forward pass of every model."""
    checks = asyncio.gather(*(engine.check() for engine in call.engines.values()))
    try:
        await asyncio.wait_for(checks, _HEALTH_SECONDS)
    except Exception as error:
        log_failure(error)
        raise Refusal(503, "A model does not work; see the server's log.") from error
    return Response()


@router.get(
    "/metrics",
    summary="Metrics for Prometheus",
    response_class=Response,
    responses={200: {"content": {"text/plain": {"schema": {"type": "string"}}}}},
)
def metrics(request: Request) -> Response:
    """Requests, times, batches, queues and memory in Prometheus' text format."""
    return Response(request.app.state.metrics.exposition(), media_type=CONTENT_TYPE)


@page_router.api_route("/", methods=["GET", "HEAD"])
@page_router.api_route("/page/{name}", methods=["GET", "HEAD"])
async def page(request: Request, name: str = "index.html") -> Response:
    """A file of the page."""
    # The name is looked up among the files read at the first request; it is never used as a path.
    if name not in page_files():
        raise HTTPException(404)
    content, media_type, etag = page_files()[name]
    headers = {**_PAGE_HEADERS, "ETag": etag}
    if request.headers.get("if-none-match") == etag:
        return Response(status_code=304, headers=headers)
    return Response(content, headers=headers, media_type=media_type)


class PageFile(NamedTuple):
    """A file of the page with its headers."""

    content: bytes
    media_type: str
    etag: str


@cache
def page_files() -> dict[str, PageFile]:
    """The files of the page by name."""
    files = {}
    for entry in resources.files("filbert.serve").joinpath("page").iterdir():
        suffix = "." + entry.name.rpartition(".")[2]
        if suffix in MEDIA_TYPES:
            content = entry.read_bytes()
            digest = hashlib.sha256(content).hexdigest()[:20]
            files[entry.name] = PageFile(content, MEDIA_TYPES[suffix], f'"{digest}"')
    return files


def _card(engine: Engine) -> dict[str, Any]:
    predictor = engine.predictor
    task, config = predictor.task, predictor.model.config
    labels = None if task is None else task.spec.labels
    positive = None if task is None else task.spec.positive
    thresholds = None if task is None else task.spec.thresholds
    if task is not None and labels and thresholds is None and task.spec.multilabel:
        thresholds = (0.5,) * len(labels)
    return {
        "name": engine.name,
        "task": None if task is None else task.spec.name,
        "labels": labels,
        "positive": positive,
        "threshold": thresholds[0] if thresholds and positive else thresholds,
        "can": engine.can,
        "max_length": predictor.max_length,
        "hidden_size": config.hidden_size,
        "num_hidden_layers": config.num_hidden_layers,
        "num_attention_heads": config.attention.heads,
        "precision": predictor.number_format,
    }


def _type_of(engine: Engine) -> dict[str, Any]:
    """The kind of model in the form of text-embeddings-inference."""
    task = engine.predictor.task
    if task is None or task.spec.name == "embedding":
        return {"embedding": {"pooling": engine.predictor.sentence_vectors.pooling}}
    labels = task.spec.labels or ()
    names = {
        "id2label": {str(number): label for number, label in enumerate(labels)},
        "label2id": {label: number for number, label in enumerate(labels)},
    }
    return {"reranker" if task.spec.name == "regression" else "classifier": names}
