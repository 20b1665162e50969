"""Middleware in front of all routes: counts, keys, body size, concurrency, disconnected clients."""

from __future__ import annotations

import asyncio
import hmac
import time
from collections.abc import Sequence

from starlette.routing import BaseRoute, Match, Mount, Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from filbert.serve.errors import Refusal, overloaded, refusal_of, response_to, stopping
from filbert.serve.metrics import CLIENT_DISCONNECTED, Metrics
from filbert.serve.settings import Settings

# GET without a key: reveals nothing about texts, or is needed before a person can type a key.
_OPEN_PATHS = frozenset({"/", "/favicon.ico", "/health", "/ping", "/metrics"})
_OPEN_PREFIX = "/page/"

# Bodies being received may hold this share of what all concurrent requests could hold. Beyond it
# only small ones are accepted.
_RECEIVING_SHARE = 1 / 8
_SMALL_BODY = 65_536


class Limits:
    """ASGI middleware that counts requests and applies the limits of the settings.

    Routes get a request with its whole body, so their time limit does not include a slow sender. A
    request is cancelled when its client disconnects. Only POST requests whose body has arrived
    count as concurrent; of those being received, the bytes are limited.
    """

    def __init__(
        self,
        app: ASGIApp,
        settings: Settings,
        *,
        metrics: Metrics | None = None,
        routes: Sequence[BaseRoute] = (),
    ) -> None:
        self.app, self.settings, self.routes = app, settings, routes
        self.metrics = metrics or Metrics()
        self._keys = [key.encode() for key in settings.bearer_keys()]
        most = settings.max_body_bytes
        self._max_held = max(most, int(_RECEIVING_SHARE * settings.max_concurrent_requests * most))
        self._held = self._running = 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle one request."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        method, route, started = scope["method"], self._route(scope), time.perf_counter()
        if method == "HEAD":  # RFC 9110, section 9.1; uvicorn omits the body.
            scope = {**scope, "method": "GET"}
        status, is_counted = CLIENT_DISCONNECTED, False

        def count() -> None:
            nonlocal is_counted
            if not is_counted:
                is_counted = True
                seconds = time.perf_counter() - started
                self.metrics.request_finished(method, route, status=status, seconds=seconds)

        async def observed_send(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
            elif not message.get("more_body", False):
                # Before the end is sent: a client that has its answer finds it counted.
                count()
            await send(message)

        with self.metrics.in_flight.track_inprogress():
            try:
                await self._handle(scope, receive, observed_send)
            except (Exception, asyncio.CancelledError) as error:
                # Only the server cancels this task, after the grace period.
                is_stopped = isinstance(error, asyncio.CancelledError)
                refusal = stopping() if is_stopped else refusal_of(error)  # type: ignore[arg-type]
                if status != CLIENT_DISCONNECTED:
                    # Part of the answer is sent; the connection has to be broken off.
                    raise
                await response_to(refusal, scope["path"])(scope, receive, observed_send)
            finally:
                count()

    def _route(self, scope: Scope) -> str:
        """Return the declared path of a request, such as /v1/models/{model:path}."""
        for route in self.routes:
            if isinstance(route, Route | Mount) and route.matches(scope)[0] is not Match.NONE:
                return route.path
        return "unmatched"

    async def _handle(self, scope: Scope, receive: Receive, send: Send) -> None:
        headers = dict(scope["headers"])
        is_post = scope["method"] == "POST"
        is_open = scope["path"] in _OPEN_PATHS or scope["path"].startswith(_OPEN_PREFIX)
        if is_post or not is_open:
            self._check_key(headers.get(b"authorization", b""))
        if not is_post:
            await _until_disconnected(self.app, scope, b"", receive=receive, send=send)
            return
        self._check_concurrency()
        declared, seconds = headers.get(b"content-length", b"0"), self.settings.request_seconds
        try:
            body = await asyncio.wait_for(self._body(receive, declared), seconds)
        except asyncio.TimeoutError as error:
            message = f"The request was not sent within {seconds:g} seconds."
            raise Refusal(408, message, headers={"Connection": "close"}) from error
        if body is None:
            return
        self._check_concurrency()
        self._running += 1
        try:
            await _until_disconnected(self.app, scope, body, receive=receive, send=send)
        finally:
            self._running -= 1

    def _check_concurrency(self) -> None:
        if self._running >= self.settings.max_concurrent_requests:
            raise overloaded(1.0)

    def _check_key(self, authorization: bytes) -> None:
        scheme, _, key = authorization.partition(b" ")
        # Compare with every key, so that the time reveals nothing.
        matches = [hmac.compare_digest(key.strip(), known) for known in self._keys]
        if self._keys and (scheme.lower() != b"bearer" or not any(matches)):
            message = "A key is required: Authorization: Bearer KEY."
            raise Refusal(401, message, headers={"WWW-Authenticate": "Bearer"})

    async def _body(self, receive: Receive, declared: bytes) -> bytes | None:
        """Receive the whole body; None if the client disconnects first."""
        most = self.settings.max_body_bytes
        too_large = Refusal(413, f"The body is larger than {most:,} bytes. Send less at once.")
        # uvicorn accepts only digits here.
        if len(declared) > 18 or int(declared) > most:
            raise too_large
        parts: list[bytes] = []
        size = 0
        try:
            while True:
                message = await receive()
                if message["type"] == "http.disconnect":
                    return None
                parts.append(message.get("body", b""))
                size += len(parts[-1])
                self._held += len(parts[-1])
                if size > most:
                    raise too_large
                if size > _SMALL_BODY and self._held > self._max_held:
                    raise overloaded(1.0)
                if not message.get("more_body", False):
                    return b"".join(parts)
        finally:
            self._held -= size


async def _until_disconnected(
    app: ASGIApp, scope: Scope, body: bytes, *, receive: Receive, send: Send
) -> None:
    """Run `app`, and cancel it when its client disconnects."""
    disconnected = asyncio.Event()
    messages = [{"type": "http.request", "body": body, "more_body": False}]

    async def replay() -> Message:
        if messages:
            return messages.pop()
        await disconnected.wait()
        return {"type": "http.disconnect"}

    async def watch() -> None:
        while (await receive())["type"] != "http.disconnect":
            pass
        disconnected.set()

    work = asyncio.ensure_future(app(scope, replay, send))
    watching = asyncio.ensure_future(watch())
    try:
        await asyncio.wait({work, watching}, return_when=asyncio.FIRST_COMPLETED)
    finally:
        tasks = [task for task in (work, watching) if not task.done()]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
    if not work.cancelled():
        work.result()
