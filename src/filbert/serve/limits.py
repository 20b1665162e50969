"""Middleware in front of all routes: keys, body size, concurrency and disconnected clients."""

from __future__ import annotations

import asyncio
import hashlib
import hmac

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from filbert.serve.errors import Refusal, overloaded, refusal_of, response_to
from filbert.serve.settings import Settings

# GET without a key: reveals nothing about texts, or is needed before a person can type a key.
OPEN_PATHS = frozenset({"/", "/favicon.ico", "/health", "/ping", "/metrics"})
OPEN_PREFIX = "/page/"

# Bodies being received may hold this share of what all concurrent requests could hold. Beyond it
# only small ones are accepted.
_RECEIVING_SHARE = 1 / 8
_SMALL_BODY = 65_536


class Limits:
    """ASGI middleware that applies the limits of the settings.

    Routes get a request with its whole body, so their time limit does not include a slow sender. A
    request is cancelled when its client disconnects. A slow sender does not count as a concurrent
    request; only the bytes that such requests hold are limited. POST and other methods are counted
    separately.
    """

    def __init__(self, app: ASGIApp, settings: Settings) -> None:
        self.app = app
        self.settings = settings
        self._keys = [_digest(key.encode()) for key in settings.bearer_keys()]
        self._running = {True: 0, False: 0}
        most = settings.max_body_bytes
        self._max_held = max(most, int(_RECEIVING_SHARE * settings.max_concurrent_requests * most))
        self._held = 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle one request."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        is_started = False

        async def observed_send(message: Message) -> None:
            nonlocal is_started
            is_started = True
            await send(message)

        try:
            await self._handle(scope, receive, observed_send)
        except asyncio.CancelledError:
            if is_started:
                raise
            # Only the server cancels this task, after the grace period.
            refusal = Refusal(503, "The server is stopping. Try again later.")
            await response_to(refusal, scope["path"])(scope, receive, send)
        except Exception as error:
            refusal = refusal_of(error)
            if is_started:
                # Part of the answer is sent; the connection has to be broken off.
                raise
            await response_to(refusal, scope["path"])(scope, receive, send)

    async def _handle(self, scope: Scope, receive: Receive, send: Send) -> None:
        headers = dict(scope["headers"])
        is_post = scope["method"] == "POST"
        is_open = scope["path"] in OPEN_PATHS or scope["path"].startswith(OPEN_PREFIX)
        if is_post or not is_open:
            self._check_key(headers.get(b"authorization", b""))
        declared = headers.get(b"content-length", b"0")
        if not is_post and (b"transfer-encoding" in headers or declared.strip(b"0")):
            raise Refusal(413, "Only POST may have a body.", headers={"Connection": "close"})
        self._check_concurrency(is_post)
        seconds = self.settings.request_seconds
        try:
            body = await asyncio.wait_for(self._body(receive, declared), seconds)
        except asyncio.TimeoutError as error:
            message = f"The request was not sent within {seconds:g} seconds."
            raise Refusal(408, message, headers={"Connection": "close"}) from error
        if body is None:
            return
        self._check_concurrency(is_post)
        self._running[is_post] += 1
        try:
            await _until_disconnected(self.app, scope, body, receive=receive, send=send)
        finally:
            self._running[is_post] -= 1

    def _check_concurrency(self, is_post: bool) -> None:
        if self._running[is_post] >= self.settings.max_concurrent_requests:
            raise overloaded(1.0)

    def _check_key(self, authorization: bytes) -> None:
        if not self._keys:
            return
        scheme, _, key = authorization.partition(b" ")
        digest = _digest(key.strip())
        # Compare digests of equal length with every key, so that the time reveals nothing.
        matches = [hmac.compare_digest(digest, known) for known in self._keys]
        if scheme.lower() != b"bearer" or not any(matches):
            message = "A key is required: Authorization: Bearer KEY."
            raise Refusal(401, message, headers={"WWW-Authenticate": "Bearer"})

    async def _body(self, receive: Receive, declared: bytes) -> bytes | None:
        """Receive the whole body; None if the client disconnects first."""
        most = self.settings.max_body_bytes
        # uvicorn accepts only digits here.
        if len(declared) > 18 or int(declared) > most:
            raise _too_large(most)
        parts: list[bytes] = []
        size = 0
        try:
            while True:
                message = await receive()
                if message["type"] == "http.disconnect":
                    return None
                part = message.get("body", b"")
                size += len(part)
                self._held += len(part)
                if size > most:
                    raise _too_large(most)
                if size > _SMALL_BODY and self._held > self._max_held:
                    raise overloaded(1.0)
                parts.append(part)
                if not message.get("more_body", False):
                    return b"".join(parts)
        finally:
            self._held -= size


async def _until_disconnected(
    app: ASGIApp, scope: Scope, body: bytes, *, receive: Receive, send: Send
) -> None:
    """Run `app`, and cancel it when its client disconnects."""
    disconnected = asyncio.Event()
    is_read = False

    async def replay() -> Message:
        nonlocal is_read
        if not is_read:
            is_read = True
            return {"type": "http.request", "body": body, "more_body": False}
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


def _digest(key: bytes) -> bytes:
    return hashlib.sha256(key).digest()


def _too_large(most: int) -> Refusal:
    return Refusal(413, f"The body is larger than {most:,} bytes. Send less at once.")
