"""What runs here, and whether it does: GET /info, /health and /ping."""

from __future__ import annotations

import asyncio
from importlib.metadata import version
from typing import Any

from fastapi import FastAPI, Response

from filbert.serve.answers import ErrorReply, Info
from filbert.serve.engine import Engine
from filbert.serve.engines import Engines
from filbert.serve.errors import Refusal, log_failure
from filbert.serve.settings import Settings

# A model that takes longer than this for one short text is not well.
_HEALTHY_SECONDS = 10.0


def add(app: FastAPI, engines: Engines, settings: Settings) -> None:
    """Add the routes."""

    @app.get("/info", tags=["operations"], summary="What runs here", response_model=Info)
    async def info() -> dict[str, Any]:
        """The loaded models with what each can do, and the limits of this server."""
        return facts(engines, settings)

    async def health() -> Response:
        """200 when every model has just worked."""
        try:
            await asyncio.wait_for(engines.check(), _HEALTHY_SECONDS)
        except Exception as error:
            log_failure(error)
            raise Refusal(503, "A model does not work; the server's log says where.") from error
        return Response()

    responses: dict[int | str, dict[str, Any]] = {
        200: {"description": "Every model has just worked.", "content": {}},
        503: {"model": ErrorReply, "description": "A model does not work."},
    }
    for path in ("/health", "/ping"):
        app.get(
            path,
            tags=["operations"],
            summary="Whether the models work",
            response_class=Response,
            responses=responses,
            name=path[1:],
        )(health)


def facts(engines: Engines, settings: Settings) -> dict[str, Any]:
    """The content of /info."""
    first = next(iter(engines))
    predictor = first.predictor
    return {
        "version": version("filbert"),
        "models": [_card(engine) for engine in engines],
        "model_id": first.name,
        "model_sha": None,
        "model_dtype": predictor.number_format,
        "model_type": _type(first),
        "max_concurrent_requests": settings.max_concurrent_requests,
        "max_input_length": predictor.max_length,
        "max_batch_tokens": first.max_batch_tokens,
        "max_batch_requests": None,
        "max_client_batch_size": settings.max_inputs,
        "auto_truncate": settings.auto_truncate,
        "tokenization_workers": first.limits.tokenization_workers,
    }


def _card(engine: Engine) -> dict[str, Any]:
    predictor = engine.predictor
    task, config = predictor.task, predictor.model.config
    thresholds = getattr(task, "thresholds", None)
    binary = getattr(task, "is_binary", False)
    labels = None if task is None else task.labels
    if labels and thresholds is None and getattr(task, "multilabel", False):
        thresholds = (0.5,) * len(labels)
    return {
        "name": engine.name,
        "task": None if task is None else task.name,
        "labels": labels,
        "positive": labels[task.positive_id] if binary and labels and task else None,  # type: ignore[attr-defined]
        "threshold": thresholds[0] if thresholds and binary else thresholds,
        "can": engine.can,
        "max_length": predictor.max_length,
        "hidden_size": config.hidden_size,
        "num_hidden_layers": config.num_hidden_layers,
        "num_attention_heads": config.num_attention_heads,
        "precision": predictor.number_format,
    }


def _type(engine: Engine) -> dict[str, Any]:
    """As text-embeddings-inference says what kind of model it is."""
    task = engine.predictor.task
    if task is None or task.name == "embedding":
        return {"embedding": {"pooling": engine.predictor.sentence_vectors.pooling}}
    labels = task.labels or ()
    names = {
        "id2label": {str(number): label for number, label in enumerate(labels)},
        "label2id": {label: number for number, label in enumerate(labels)},
    }
    return {"reranker" if task.name == "regression" else "classifier": names}
