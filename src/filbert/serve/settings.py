"""What the operator of a server may say: the fields are the flags of `filbert serve`."""

from __future__ import annotations

import os
from dataclasses import dataclass, fields
from pathlib import Path

from filbert.errors import ConfigError

# The environment variable that may hold bearer keys, so that they stand in no process list.
KEYS_VARIABLE = "FILBERT_API_KEYS"

# What the shape of a request allows: see schema.py.
MOST_INPUTS = 20_000

# Below this a key could be guessed over the network.
_SHORTEST_KEY = 8

_AT_LEAST_ONE = (
    "max_concurrent_requests",
    "max_body_bytes",
    "max_inputs",
    "max_characters",
    "max_input_tokens",
    "max_attention_tokens",
    "max_response_bytes",
    "max_batch_tokens",
    "max_queue_tokens",
)
_ABOVE_ZERO = (
    "max_queue_seconds",
    "request_seconds",
    "receive_seconds",
    "idle_seconds",
    "grace_seconds",
)


@dataclass(frozen=True, kw_only=True)
class Settings:
    """How a server listens, what it lets in and how long it takes.

    Attributes:
        host: address to listen on; 127.0.0.1 is reached from this machine alone, 0.0.0.0 from
            everywhere.
        port: port to listen on; 0 takes a free one.
        max_body_bytes: largest body of a request; a larger one gets 413 before it is read.
        max_inputs: most texts (or pairs, documents) in one request, 20,000 at the outside; more get
            413.
        max_characters: most characters in one text; a longer one gets 413.
        max_input_tokens: most tokens that are read for one text where all of it is read in windows,
            as by /answer and /tag; more get 413. Other routes cut, and say so.
        max_attention_tokens: tokens to which /attention cuts its text.
        max_response_bytes: largest answer, of all routes but those with a vector a text; a larger
            one gets 413.
        auto_truncate: cut texts that are too long for a model, and say so, when a request does not
            say what to do with them; else they get 413.
        max_concurrent_requests: requests that are worked on at once; one more gets 429.
        max_batch_tokens: tokens after which a batch is closed and run; the device's usual number
            when not given (2,048 on a processor).
        max_wait_ms: longest time that a batch waits for company; 0 never waits.
        max_queue_tokens: tokens of others that a model may have to read before a request's own; a
            request that would wait for more gets 429 at once.
        max_queue_seconds: longest that a request may have to wait for others, by the speed at which
            the model has lately worked; one that would wait longer gets 429 at once.
        cache_size: answers that are kept for the same text asked again; 0 for none.
        request_seconds: time from the last byte of a request to its answer; 503 after it.
        receive_seconds: time a client has to send its whole body; 408 after it.
        idle_seconds: time a connection without a request, or one whose answer is not read, is kept
            open.
        grace_seconds: time that running requests are given when the server is told to stop.
        api_keys: file with one bearer key a line, for all routes but /health, /ping, /metrics and
            the page itself; FILBERT_API_KEYS (between commas) when not given, else no key is asked
            for.
        cors: origins whose pages may call, between commas, or *; none when not given.
        page: serve the page at /.
        docs: serve the OpenAPI document at /openapi.json.
    """

    host: str = "127.0.0.1"
    port: int = 8080
    max_body_bytes: int = 2_000_000
    max_inputs: int = 10_000
    max_characters: int = 500_000
    max_input_tokens: int = 100_000
    max_attention_tokens: int = 512
    max_response_bytes: int = 32_000_000
    auto_truncate: bool = True
    max_concurrent_requests: int = 512
    max_batch_tokens: int | None = None
    max_wait_ms: float = 10.0
    max_queue_tokens: int = 1_000_000
    max_queue_seconds: float = 10.0
    cache_size: int = 0
    request_seconds: float = 60.0
    receive_seconds: float = 20.0
    idle_seconds: float = 60.0
    grace_seconds: float = 30.0
    api_keys: str | None = None
    cors: str | None = None
    page: bool = True
    docs: bool = True

    def __post_init__(self) -> None:
        """Refuse what cannot be meant.

        Raises:
            ConfigError: a number out of range.
        """
        if not 0 <= self.port <= 65535:
            raise ConfigError(f"port {self.port} is not in 0..65535.")
        low = {name: 1.0 for name in _AT_LEAST_ONE} | {"max_wait_ms": 0.0, "cache_size": 0.0}
        for name, least in low.items():
            value = getattr(self, name)
            if value is not None and not least <= value < float("inf"):
                raise ConfigError(f"{_flag(name)} is {value}; it must be at least {least:g}.")
        if self.max_inputs > MOST_INPUTS:
            raise ConfigError(f"--max-inputs is {self.max_inputs}; at most {MOST_INPUTS} can be.")
        for name in _ABOVE_ZERO:
            value = getattr(self, name)
            if not 0 < value < float("inf"):
                raise ConfigError(f"{_flag(name)} is {value}; it must be above 0.")

    def origins(self) -> tuple[str, ...]:
        """The origins of `cors`.

        Raises:
            ConfigError: one is no origin.
        """
        found = tuple(part.strip() for part in (self.cors or "").split(",") if part.strip())
        for origin in found:
            if origin != "*" and not origin.startswith(("http://", "https://")):
                raise ConfigError(
                    f"--cors {origin!r} is no origin. Give one such as https://example.org, or *."
                )
        return found

    def keys(self) -> tuple[str, ...]:
        """The bearer keys that are let in; none when no key is asked for.

        Raises:
            ConfigError: the file cannot be read, it holds no key, or a key cannot be one. The
                message never has a key in it.
        """
        if self.api_keys is not None:
            where = f"--api-keys {self.api_keys}"
            try:
                lines = Path(self.api_keys).read_text(encoding="utf-8").splitlines()
            except (OSError, UnicodeDecodeError) as error:
                reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8"
                raise ConfigError(f"{where} cannot be read: {reason}. Check the path.") from error
            found = [line.strip() for line in lines if not line.lstrip().startswith("#")]
        elif KEYS_VARIABLE in os.environ:
            where = KEYS_VARIABLE
            found = [part.strip() for part in os.environ[KEYS_VARIABLE].split(",")]
        else:
            return ()
        keys = tuple(key for key in found if key)
        if not keys:
            raise ConfigError(f"{where} holds no key. Write one a line, or leave it out.")
        for number, key in enumerate(keys, 1):
            if len(key) < _SHORTEST_KEY or not key.isascii() or not key.isprintable() or " " in key:
                raise ConfigError(
                    f"{where}: key {number} cannot be a bearer key; {_SHORTEST_KEY} or more "
                    "printable ASCII characters without blanks are wanted."
                )
        return keys


def _flag(name: str) -> str:
    return "--" + name.replace("_", "-")


NAMES = tuple(field.name for field in fields(Settings))
