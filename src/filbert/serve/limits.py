"""What stands before every route: keys, sizes, slow senders, and the client that leaves."""

from __future__ import annotations

import asyncio
import hashlib
import hmac

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from filbert.serve.errors import Refusal, overloaded, refusal_of, response_to
from filbert.serve.settings import Settings

# What GET is answered without a key: what says nothing about texts, and what a browser has to fetch
# before a person can type a key.
OPEN_PATHS = frozenset({"/", "/favicon.ico", "/health", "/ping", "/metrics"})
OPEN_PREFIX = "/page/"

# Bodies on their way hold so much of what all requests that may run could hold; beyond it only
# those go on that are small.
_SHARE_ON_THEIR_WAY = 1 / 8
_SMALL_BODY = 65_536


class Gate:
    """ASGI middleware around the routes.

    A request reaches them with its whole body read, so that none of their time goes into waiting
    for a sender; and they are cancelled as soon as its client is gone. Who sends slowly takes no
    place among those that are worked on: only the bytes that such requests hold are bounded. POST
    and what has no body (GET and the like) do not take each other's places.
    """

    def __init__(self, app: ASGIApp, settings: Settings) -> None:
        self.app = app
        self.settings = settings
        keys = settings.keys()
        self._keys = [_digest(key.encode()) for key in keys]
        self._running = {True: 0, False: 0}
        most = settings.max_body_bytes
        share = _SHARE_ON_THEIR_WAY * settings.max_concurrent_requests
        self._most_held, self._held = max(most, int(share * most)), 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """One request."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        started = False

        async def send_and_see(message: Message) -> None:
            nonlocal started
            started = True
            await send(message)

        try:
            await self._let_in(scope, receive, send_and_see)
        except asyncio.CancelledError:
            if started:
                raise
            # Only the server cancels this: the time of grace at its end is over.
            refusal = Refusal(503, "The server is being stopped. Try again.")
            await response_to(refusal, scope["path"])(scope, receive, send)
        except Exception as error:
            refusal = refusal_of(error)
            if started:
                # Half an answer is out; all that is left is to break it off.
                raise
            await response_to(refusal, scope["path"])(scope, receive, send)

    async def _let_in(self, scope: Scope, receive: Receive, send: Send) -> None:
        headers = dict(scope["headers"])
        is_post = scope["method"] == "POST"
        is_open = scope["path"] in OPEN_PATHS or scope["path"].startswith(OPEN_PREFIX)
        if is_post or not is_open:
            self._check_key(headers.get(b"authorization", b""))
        declared = headers.get(b"content-length", b"0")
        if not is_post and (b"transfer-encoding" in headers or declared.strip(b"0")):
            raise Refusal(413, "Only POST may have a body.", headers={"Connection": "close"})
        self._check_room(is_post)
        seconds = self.settings.receive_seconds
        try:
            body = await asyncio.wait_for(self._body(receive, declared), seconds)
        except asyncio.TimeoutError as error:
            message = f"The request was not sent within {seconds:g} seconds."
            raise Refusal(408, message, headers={"Connection": "close"}) from error
        if body is None:
            return
        self._check_room(is_post)
        self._running[is_post] += 1
        try:
            await _until_gone(self.app, scope, body, receive, send)
        finally:
            self._running[is_post] -= 1

    def _check_room(self, is_post: bool) -> None:
        if self._running[is_post] >= self.settings.max_concurrent_requests:
            raise overloaded(1.0)

    def _check_key(self, given: bytes) -> None:
        if not self._keys:
            return
        scheme, _, key = given.partition(b" ")
        digest = _digest(key.strip())
        # All keys are compared, and digests of one length, so that time tells nothing.
        found = [hmac.compare_digest(digest, known) for known in self._keys]
        if scheme.lower() != b"bearer" or not any(found):
            message = "A key is wanted, as in Authorization: Bearer KEY."
            raise Refusal(401, message, headers={"WWW-Authenticate": "Bearer"})

    async def _body(self, receive: Receive, declared: bytes) -> bytes | None:
        """The whole body; None when the client left before its end."""
        most = self.settings.max_body_bytes
        # A server in front of this one lets digits through alone.
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
                if size > _SMALL_BODY and self._held > self._most_held:
                    raise overloaded(1.0)
                parts.append(part)
                if not message.get("more_body", False):
                    return b"".join(parts)
        finally:
            self._held -= size


async def _until_gone(
    app: ASGIApp, scope: Scope, body: bytes, receive: Receive, send: Send
) -> None:
    """Run `app`, and cancel it when its client goes away."""
    gone = asyncio.Event()
    is_read = False

    async def replay() -> Message:
        nonlocal is_read
        if not is_read:
            is_read = True
            return {"type": "http.request", "body": body, "more_body": False}
        await gone.wait()
        return {"type": "http.disconnect"}

    async def watch() -> None:
        while (await receive())["type"] != "http.disconnect":
            pass
        gone.set()

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
