"""BertClient of bert-as-service, talking to `filbert serve`: texts in, an array out.

    from filbert.client import BertClient

    with BertClient("localhost", 8080) as client:
        client.encode(["First do it", "then do it right"])  # float32 (2, H)

Needs NumPy and nothing else; torch is not imported. Source: bert-as-service 1.10, whose calls go on
working. What is different: one port in place of two, HTTP in place of ZeroMQ, and vectors are made
the way the model's folder says (bert-as-service: the mean over the last layer but one).
"""

from __future__ import annotations

import base64
import itertools
import json
import math
import time
import urllib.error
import urllib.request
import uuid
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from http.client import HTTPException
from typing import Any, NamedTuple

import numpy as np

from filbert.errors import ConfigError, InputError, RunError

# One call may bring any number of texts; a request brings no more than a server lets in.
_TEXTS_PER_REQUEST = 256
_BYTES_PER_REQUEST = 500_000

_REQUESTS_AT_ONCE = 8

# How often a request is sent again to a server that says it is overloaded.
_ATTEMPTS = 20


class Response(NamedTuple):
    """The answer to one call of `encode(blocking=False)`."""

    id: int
    embedding: Any


class BertClient:
    """A connection to a server; may be used in a `with`.

    Args:
        ip: host name or address, or a whole URL ("https://example.org/bert"), which counts alone.
        port: of the server.
        port_out, check_version, check_length, check_token_info, ignore_all_checks: are taken, and
            mean nothing here.
        output_fmt: "ndarray", or "list" for lists of floats.
        show_server_config: print what the server says about itself.
        identity: name of this client in the server's log; drawn when not given.
        timeout: milliseconds to wait for an answer; -1 waits as long as it takes.
        model: which of the server's models; its first one that embeds when not given.
        api_key: bearer key, if the server asks for one.
    """

    def __init__(
        self,
        ip: str = "localhost",
        port: int = 8080,
        port_out: int | None = None,
        output_fmt: str = "ndarray",
        show_server_config: bool = False,
        identity: str | None = None,
        check_version: bool = True,
        check_length: bool = True,
        check_token_info: bool = True,
        ignore_all_checks: bool = False,
        timeout: int = -1,
        *,
        model: str | None = None,
        api_key: str | None = None,
    ) -> None:
        if output_fmt not in ("ndarray", "list"):
            raise AttributeError(f'output_fmt is {output_fmt!r}; it must be "ndarray" or "list".')
        self.url = ip.rstrip("/") if "://" in ip else f"http://{ip}:{port}"
        self.output_fmt = output_fmt
        self.identity = identity or uuid.uuid4().hex
        self.timeout = timeout
        self._model = model
        self._headers = {"Content-Type": "application/json"}
        if api_key is not None:
            self._headers["Authorization"] = f"Bearer {api_key}"
        self._most: int | None = None
        self._numbers = itertools.count()
        self._pending: dict[Future[Any], int] = {}
        self._threads = ThreadPoolExecutor(_REQUESTS_AT_ONCE)
        if show_server_config:
            for name, value in self.server_status.items():
                print(f"{name:>30} = {value}")

    def __enter__(self) -> BertClient:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Give up what was not fetched."""
        self._threads.shutdown(wait=False, cancel_futures=True)

    @property
    def server_status(self) -> dict[str, Any]:
        """What the server says about itself (GET /info)."""
        status: dict[str, Any] = self._call("/info", None, self._end())
        return status

    def encode(
        self,
        texts: list[str] | list[list[str]],
        blocking: bool = True,
        is_tokenized: bool = False,
        show_tokens: bool = False,
    ) -> Any:
        """Vectors of texts.

        Args:
            texts: one or more texts, none of them blank; with `is_tokenized` a list of tokens for
                each.
            blocking: wait for the vectors. False: return None at once; `fetch` has them later.
            is_tokenized: take `texts` as tokens of the model's vocabulary; one that is not there
                becomes its unknown token.
            show_tokens: must stay False.

        Returns:
            float32 (n, H), or n lists.

        Raises:
            TypeError, ValueError: `texts` is no such list, it is empty, or a text is blank.
            ConfigError: `show_tokens` is asked for.
            InputError: the server refuses the texts.
            RunError: there is no server, or it cannot answer.
            TimeoutError: no answer within `timeout`.
        """
        if show_tokens:
            raise ConfigError("show_tokens is not known here. POST /tokenize gives the tokens.")
        _check(texts, is_tokenized)
        number = next(self._numbers)
        if blocking:
            return self._encode(number, texts, is_tokenized)
        self._pending[self._threads.submit(self._encode, number, texts, is_tokenized)] = number
        return None

    def fetch(self, delay: float = 0.0) -> Iterator[Response]:
        """Answers to the calls with `blocking=False`, as they come, after `delay` seconds."""
        time.sleep(delay)
        while self._pending:
            yield from self._done()

    def fetch_all(self, sort: bool = True, concat: bool = False) -> Any:
        """The same together, in the order of the calls where `sort`; joined where `concat`."""
        found = list(self.fetch())
        if sort:
            found.sort(key=lambda response: response.id)
        vectors = [response.embedding for response in found]
        if not concat:
            return vectors
        if self.output_fmt == "list":
            return list(itertools.chain.from_iterable(vectors))
        return np.concatenate(vectors)

    def encode_async(
        self,
        batch_generator: Iterable[list[str]],
        max_num_batch: int | None = None,
        delay: float = 0.1,
        is_tokenized: bool = False,
    ) -> Iterator[Response]:
        """Answers to a stream of lists, a few of which are always under way.

        Args:
            batch_generator: what `encode` takes, again and again.
            max_num_batch: stop after so many.
            delay: seconds to wait before the last answers are fetched.
            is_tokenized: as for `encode`.
        """
        for texts in itertools.islice(batch_generator, max_num_batch):
            self.encode(texts, blocking=False, is_tokenized=is_tokenized)
            if len(self._pending) >= 2 * _REQUESTS_AT_ONCE:
                yield from self._done()
        yield from self.fetch(delay)

    def _done(self) -> Iterator[Response]:
        for future in wait(self._pending, return_when=FIRST_COMPLETED).done:
            yield Response(self._pending.pop(future), future.result())

    def _encode(self, number: int, texts: Sequence[Any], is_tokenized: bool) -> Any:
        rows: list[np.ndarray] = []
        end = self._end()
        most = self._most_texts(end) if len(texts) > 1 else 1
        for part in _parts(texts, most):
            asked = {
                "id": number,
                "texts": part,
                "is_tokenized": is_tokenized,
                "encoding_format": "base64",
                **({} if self._model is None else {"model": self._model}),
            }
            found = self._call("/encode", asked, end)["result"]
            rows += [np.frombuffer(base64.b64decode(row), dtype="<f4") for row in found]
        vectors = np.stack(rows).astype(np.float32)
        return vectors if self.output_fmt == "ndarray" else vectors.tolist()

    def _most_texts(self, end: float) -> int:
        """How many texts one request may bring, as far as the server says so; asked once."""
        if self._most is None:
            self._most = _TEXTS_PER_REQUEST
            try:
                stated = self._call("/info", None, end).get("max_client_batch_size")
            except (InputError, RunError, AttributeError):
                stated = None  # behind a proxy that lets nothing but /encode through
            if isinstance(stated, int) and stated > 0:
                self._most = min(stated, _TEXTS_PER_REQUEST)
        return self._most

    def _end(self) -> float:
        return math.inf if self.timeout < 0 else time.monotonic() + self.timeout / 1000

    def _call(self, path: str, asked: Any, end: float) -> Any:
        body = None if asked is None else json.dumps(asked).encode()
        request = urllib.request.Request(self.url + path, body, self._headers)
        request.add_header("x-request-id", self.identity)
        for attempt in range(_ATTEMPTS):
            left = end - time.monotonic()
            if left <= 0:
                raise TimeoutError(f"No answer from {self.url} in {self.timeout} ms.")
            seconds = None if left == math.inf else left
            try:
                with urllib.request.urlopen(request, timeout=seconds) as answer:
                    return json.load(answer)
            except urllib.error.HTTPError as error:
                with error:
                    if error.code == 429 and attempt + 1 < _ATTEMPTS:
                        wished = _seconds(error.headers.get("Retry-After"))
                        time.sleep(max(0.0, min(wished, end - time.monotonic())))
                        continue
                    kind = InputError if 400 <= error.code < 500 else RunError
                    raise kind(f"{self.url}{path}: {_sentence(error)}") from None
            except (OSError, HTTPException) as error:
                reason = getattr(error, "reason", error)
                if isinstance(reason, TimeoutError):
                    text = f"No answer from {self.url} in {self.timeout} ms."
                    raise TimeoutError(text) from error
                raise RunError(f"{self.url} gives no answer: {reason}.") from error
            except ValueError as error:
                text = f"{self.url} does not answer as filbert serve does: {error}."
                raise RunError(text) from error
        raise AssertionError("the last attempt returns or raises")


def _seconds(retry_after: str | None) -> float:
    """How long to wait; a second where the header is missing or, as proxies may, names a date."""
    try:
        return float(retry_after or 1)
    except ValueError:
        return 1.0


def _sentence(error: urllib.error.HTTPError) -> str:
    try:
        return str(json.load(error)["error"])
    except (ValueError, KeyError, TypeError):
        return f"status {error.code}"


def _check(texts: Any, is_tokenized: bool) -> None:
    if not isinstance(texts, list):
        raise TypeError(f"texts is a {type(texts).__name__}; a list is wanted.")
    if not texts:
        raise ValueError("texts is empty; give at least one text.")
    for index, text in enumerate(texts):
        if is_tokenized:
            try:
                _check(text, False)
            except (TypeError, ValueError) as error:
                raise type(error)(f"texts[{index}]: {error}") from None
        elif not isinstance(text, str):
            raise TypeError(f"texts[{index}] is a {type(text).__name__}; a str is wanted.")
        elif not text.strip():
            raise ValueError(f"texts[{index}] is blank; every text must say something.")


def _parts(texts: Sequence[Any], most: int) -> Iterator[list[Any]]:
    """The texts in order, at most so many and not too many characters at a time."""
    part: list[Any] = []
    size = 0
    for text in texts:
        length = len(json.dumps(text))
        if part and (len(part) == most or size + length > _BYTES_PER_REQUEST):
            yield part
            part, size = [], 0
        part.append(text)
        size += length
    yield part
