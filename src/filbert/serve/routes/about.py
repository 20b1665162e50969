"""Routes about the server itself: /info, /health, /ping, /metrics and the page at /."""

from __future__ import annotations

import asyncio
from importlib.metadata import version
from pathlib import Path
from typing import Any

from fastapi import APIRouter, Request, Response
from starlette.routing import BaseRoute, Mount, Route
from starlette.staticfiles import StaticFiles

from filbert.files import THEME
from filbert.serve.engine import NUM_TOKENIZATION_THREADS, Engine
from filbert.serve.errors import Refusal, log_failure
from filbert.serve.metrics import CONTENT_TYPE
from filbert.serve.routes.shared import Caller
from filbert.serve.schema import ErrorReply

router = APIRouter(tags=["operations"])

# A model that needs longer for one short text does not work.
_HEALTH_SECONDS = 10.0
_HEALTH: dict[int | str, dict[str, Any]] = {
    200: {"description": "Every model has just worked.", "content": {}},
    503: {"model": ErrorReply, "description": "A model does not work."},
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
    """Return the loaded models with what each can do, and the limits of this server."""
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
    """Return 200 after a forward pass of every model."""
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
    """Return requests, times, batches, queues and memory in Prometheus' text format."""
    return Response(request.app.state.metrics.exposition(), media_type=CONTENT_TYPE)


class Page(StaticFiles):
    """The files of the page, which may not load or run anything of another origin."""

    def file_response(self, *args: Any, **kwargs: Any) -> Response:
        """Return a file with the page's headers, or 304."""
        response = super().file_response(*args, **kwargs)
        response.headers.update(_PAGE_HEADERS)
        return response


_page = Page(directory=Path(__file__).parents[1] / "page")
_page.all_directories.append(THEME)


async def _index(request: Request) -> Response:
    return await _page.get_response("index.html", request.scope)


page_routes: list[BaseRoute] = [Route("/", _index), Mount("/page", _page)]


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
    """Return the kind of model in the form of text-embeddings-inference."""
    task = engine.predictor.task
    if task is None or task.spec.name == "embedding":
        return {"embedding": {"pooling": engine.predictor.sentence_vectors.pooling}}
    labels = task.spec.labels or ()
    names = {
        "id2label": {str(number): label for number, label in enumerate(labels)},
        "label2id": {label: number for number, label in enumerate(labels)},
    }
    return {"reranker" if task.spec.name == "regression" else "classifier": names}
