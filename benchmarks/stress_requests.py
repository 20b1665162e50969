"""What stress_serve.py asks for: every route with ordinary texts, and what nobody should send."""

from __future__ import annotations

import asyncio
import contextlib
import json
import random
from collections.abc import Callable, Sequence

from sides.clients import request

# Every other byte of these is a request as it is written here.
_HEAD = b"POST /embed HTTP/1.1\r\nHost: a\r\nContent-Type: application/json\r\n"


def ordinary(texts: Sequence[str], draw: random.Random) -> bytes:
    """A request that a server with the models of `stress_serve.make_models` should answer."""
    text, *some = draw.choices(texts, k=9)
    few = some[: draw.randint(1, 4)]
    masked = "The [MASK] was very [MASK]. " + text[:200]
    makers: list[Callable[[], bytes]] = [
        lambda: request("/embed", {"inputs": text}),
        lambda: request("/embed", {"inputs": some}),
        lambda: request("/v1/embeddings", {"model": "masks", "input": some}),
        lambda: request("/encode", {"id": 1, "texts": few}),
        lambda: request("/embed_all", {"inputs": text[:400]}),
        lambda: request("/predict", {"inputs": [[one] for one in few], "model": "classes"}),
        lambda: request("/predict", {"inputs": text, "model": "classes"}),
        lambda: request("/rerank", {"query": text[:100], "texts": few, "model": "masks"}),
        lambda: request("/similarity", {"inputs": {"source_sentence": text, "sentences": few}}),
        lambda: request("/fill", {"inputs": masked, "top": 3}),
        lambda: request("/tag", {"inputs": text}),
        lambda: request("/answer", {"question": text[:60], "context": few}),
        lambda: request("/attention", {"inputs": text[:40], "layers": [0], "heads": [0]}),
        lambda: request("/tokenize", {"inputs": few}),
        lambda: request("/info", method="GET"),
        lambda: request("/metrics", method="GET"),
        lambda: request("/v1/models", method="GET"),
        lambda: request("/health", method="GET"),
    ]
    return draw.choice(makers)()


def _bodies(texts: Sequence[str]) -> dict[str, bytes]:
    """Whole requests that are wrong, or far too much."""
    large = "word " * 200_000
    deep = b"[" * 200_000
    numbers = b'{"inputs": "a", "dimensions": 1e400}'
    return {
        "a text of 1 MB": request("/embed", {"inputs": large}),
        "a text of 1 MB to read in windows": request("/tag", {"inputs": large}),
        "a body of 4 MB": request("/embed", {"inputs": large * 4}),
        "one word of 400,000 letters": request("/embed", {"inputs": "a" * 400_000}),
        "10,000 inputs": request("/embed", {"inputs": ["a"] * 10_000}),
        "NUL": request("/embed", {"inputs": "a\0b\0" * 50}),
        "a lone surrogate": request("/embed", b'{"inputs": "\\ud800 a \\udfff"}'),
        "surrogates everywhere": request("/answer", b'{"question":"\\ud83d","context":"\\udc00"}'),
        "control characters": request("/tag", {"inputs": "".join(map(chr, range(32))) * 9}),
        "right to left and emoji": request("/fill", {"inputs": "\u202e[MASK]\U0001f468\u200d" * 9}),
        "not UTF-8": request("/embed", b'{"inputs": "\xff\xfe\xfd"}'),
        "no JSON": request("/embed", b'{"inputs": "a'),
        "nothing": request("/embed", b""),
        "deep JSON": request("/embed", deep),
        "deep JSON that ends": request("/embed", b'{"inputs": ' + deep + b"]" * 200_000 + b"}"),
        "numbers": request("/embed", {"inputs": 5}),
        "a number beyond all": request("/embed", numbers),
        "another type": request("/embed", {"inputs": {"a": [None]}}),
        "token ids that are none": request("/v1/embeddings", {"model": "masks", "input": [10**12]}),
        "negative token ids": request("/v1/embeddings", {"model": "masks", "input": [-1, -2]}),
        "no such model": request("/embed", {"inputs": "a", "model": "../../etc/passwd"}),
        "empty": request("/embed", {"inputs": ["", texts[0]]}),
        "a vector without end": request("/embed", {"inputs": "a", "layers": [-1] * 19_000}),
        "pooling without end": request(
            "/embed", {"inputs": "a", "pooling": "+".join(["cls"] * 9_000)}
        ),
        "a matrix without end": request("/embed_all", {"inputs": ["a " * 1_000] * 900}),
        "tokens without end": request("/tokenize", {"inputs": "!" * 480_000}),
        "a surrogate as id": request("/encode", b'{"id": "\\ud800", "texts": ["a"]}'),
        "a question read again": request(
            "/answer", {"question": "a" * 200_000, "context": ["a"] * 9_000}
        ),
        "a query read again": request(
            "/rerank", {"query": "a" * 200_000, "texts": ["a"] * 9_000, "model": "classes"}
        ),
        "GET with a body": request("/health", b"a" * 100_000, method="GET"),
        "many masks": request("/fill", {"inputs": "[MASK] " * 3000, "top": 1000}),
        "layers that are none": request("/attention", {"inputs": "a", "layers": [99]}),
        "a path outside": request("/page/../../../etc/passwd", method="GET"),
        "an encoded path": request("/page/%2e%2e%2f%2e%2e%2fetc%2fpasswd", method="GET"),
        "no such address": request("/" + "x" * 5000, method="GET"),
        "another method": request("/embed", b"{}", method="DELETE"),
    }


# What is wrong below HTTP's body: sent as it is, and the connection may well be broken.
_RAW = {
    "no HTTP": b"\x16\x03\x01\x02\x00" + bytes(range(256)),
    "a head of 300 KB": _HEAD + b"X: " + b"y" * 300_000 + b"\r\n\r\n",
    "10,000 fields": _HEAD + b"X: y\r\n" * 10_000 + b"\r\n",
    "a length that is none": _HEAD + b"Content-Length: -5\r\n\r\n{}",
    "two lengths": _HEAD + b"Content-Length: 2\r\nContent-Length: 20\r\n\r\n{}",
    "a length that lies": _HEAD + b"Content-Length: 99999999999\r\n\r\n{}",
    "chunks that are none": _HEAD + b"Transfer-Encoding: chunked\r\n\r\nzz\r\n{}\r\n",
    "a pipeline": request("/embed", {"inputs": "a"}) * 50,
    "an upgrade": b"GET / HTTP/1.1\r\nHost: a\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n",
}


class Hostile:
    """Sends one bad thing after the other, each on a connection of its own.

    Args:
        port: of the server on this machine.
        texts: ordinary ones.
        slow_seconds: how long a slow sender goes on.

    Attributes:
        shapeless: errors that had no error's shape.
    """

    def __init__(self, port: int, texts: Sequence[str], slow_seconds: float) -> None:
        self.port, self.slow_seconds = port, slow_seconds
        self._bodies = _bodies(texts)
        self._whole = [request("/embed", {"inputs": list(texts[:20])})]
        self.shapeless = 0
        self.names = [*self._bodies, *_RAW, "gone at once", "gone in the body", "slow head"]
        self.names += ["slow body"]

    async def send(self, name: str) -> int:
        """The status of the answer; 0 when there was none."""
        try:
            reader, writer = await asyncio.open_connection("127.0.0.1", self.port, limit=2**24)
        except OSError:
            return 0
        try:
            return await asyncio.wait_for(self._send(name, reader, writer), 120)
        except (OSError, EOFError, ValueError, asyncio.TimeoutError):
            return 0
        finally:
            writer.close()
            with contextlib.suppress(OSError):
                await writer.wait_closed()

    async def _send(
        self, name: str, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> int:
        whole = self._bodies.get(name) or _RAW.get(name) or self._whole[0]
        if name == "gone at once":
            writer.write(whole)
            await writer.drain()
            return 0
        if name == "gone in the body":
            writer.write(whole[: len(whole) // 2])
            await writer.drain()
            return 0
        if name in ("slow head", "slow body"):
            at = 20 if name == "slow head" else whole.index(b"\r\n\r\n") + 20
            writer.write(whole[:at])
            for byte in whole[at : at + int(self.slow_seconds / 0.1)]:
                writer.write(bytes([byte]))
                await writer.drain()
                await asyncio.sleep(0.1)
                if reader.at_eof():
                    break
            return 0
        writer.write(whole)
        if name == "a length that lies":
            writer.write_eof()
        head = (await reader.readuntil(b"\r\n\r\n")).lower()
        status = int(head.split(b" ")[1])
        size = int(head.partition(b"content-length:")[2].partition(b"\r")[0] or 0)
        body = await reader.readexactly(size)
        # What is no HTTP is answered below everything that knows of shapes.
        self.shapeless += status >= 400 and name not in _RAW and not is_an_error(body)
        return status


def is_an_error(body: bytes) -> bool:
    """Whether a body has the shape of an error, without a word of Python in it."""
    try:
        content = json.loads(body)["error"]
    except (ValueError, KeyError, TypeError):
        return False
    message = content["message"] if isinstance(content, dict) else content
    return "Traceback" not in message and 'File "' not in message
