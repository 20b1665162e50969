"""The application: all dialects over the loaded models, and what stands before them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from importlib.metadata import version

from fastapi import FastAPI
from starlette.datastructures import Headers
from starlette.middleware.cors import CORSMiddleware
from starlette.responses import Response
from starlette.types import ASGIApp, Receive, Scope, Send

from filbert.serve.access_log import AccessLog
from filbert.serve.engines import Engines
from filbert.serve.errors import Refusal, add_handlers, response_to
from filbert.serve.limits import Gate
from filbert.serve.memory import give_back_often
from filbert.serve.metrics import Metrics
from filbert.serve.routes import about, bert_as_service, openai, operations, ours, page, tei, tokens
from filbert.serve.routes.common import Desk
from filbert.serve.settings import Settings

# Headers that scripts of other origins may read.
_SHOWN_HEADERS = (
    "x-compute-tokens",
    "x-inference-time",
    "x-queue-time",
    "x-request-id",
    "x-tokenization-time",
    "x-total-time",
    "x-num-tokens",
    "x-truncated",
    "retry-after",
)

# What the models' threads are given once no request waits for them any more.
_LAST_SECONDS = 2.0

_DESCRIPTION = (
    "Every head of a BERT-family encoder behind one server: in the dialects of "
    "text-embeddings-inference, OpenAI and bert-as-service, and filbert's own."
)


class _Heads:
    """Takes HEAD wherever GET is taken (RFC 9110, section 9.1); the server sends no body then."""

    def __init__(self, app: ASGIApp) -> None:
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and scope["method"] == "HEAD":
            scope = {**scope, "method": "GET"}
        await self.app(scope, receive, send)


class _Origins(CORSMiddleware):
    """Refuses in the shape of all errors."""

    def preflight_response(self, request_headers: Headers) -> Response:
        found = super().preflight_response(request_headers)
        if found.status_code == 200:
            return found
        message = "This origin, method or header is not let in; --cors names the origins that are."
        kept = {k: v for k, v in found.headers.items() if not k.startswith("content-")}
        return response_to(Refusal(403, message, headers=kept), "")


def make_app(engines: Engines, settings: Settings, metrics: Metrics) -> FastAPI:
    """The application over engines, which it starts and stops with itself.

    Args:
        engines: of the models, not yet started.
        settings: what is let in.
        metrics: what requests are counted in.

    Raises:
        ConfigError: keys or origins of the settings cannot be read.
    """

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        engines.start()
        keeping_small = asyncio.create_task(give_back_often())
        yield
        keeping_small.cancel()
        # The server has given requests their time of grace already.
        await engines.close(min(_LAST_SECONDS, settings.grace_seconds))

    app = FastAPI(
        title="filbert",
        version=version("filbert"),
        description=_DESCRIPTION,
        openapi_url="/openapi.json" if settings.docs else None,
        # These pages fetch scripts from outside addresses.
        docs_url=None,
        redoc_url=None,
        redirect_slashes=False,
        lifespan=lifespan,
    )
    add_handlers(app)
    desk = Desk(engines, settings)
    tei.add(app, desk)
    tokens.add(app, desk)
    ours.add(app, desk)
    openai.add(app, desk)
    bert_as_service.add(app, desk)
    about.add(app, engines, settings)
    operations.add(app, engines, metrics)
    page.add(app, engines, settings)
    # The last one added is the outermost.
    app.add_middleware(_Heads)
    app.add_middleware(Gate, settings=settings)
    if origins := settings.origins():
        app.add_middleware(
            _Origins,
            allow_origins=origins,
            allow_methods=["GET", "POST"],
            # Clients send headers of their own, such as x-stainless-os; none of them is a danger.
            allow_headers=["*"],
            expose_headers=_SHOWN_HEADERS,
        )
    app.add_middleware(AccessLog, metrics=metrics)
    return app
