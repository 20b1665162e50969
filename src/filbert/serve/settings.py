"""Options of `filbert serve`: the fields of these two classes are its flags."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from filbert.errors import ConfigError, unreadable_as
from filbert.train.options import check_range

# Environment variable with bearer keys, so that they do not appear in the list of processes.
KEYS_VARIABLE = "FILBERT_API_KEYS"

# The longest list that schema.py accepts.
MAX_LIST = 20_000

# A shorter key could be guessed over the network.
_SHORTEST_KEY = 8


@dataclass(frozen=True, kw_only=True)
class Settings:
    """Address, processes, access and limits of requests.

    Attributes:
        host: address to listen on; 127.0.0.1 is reached from this machine only, 0.0.0.0 from
            everywhere.
        port: port to listen on; 0 takes a free one.
        workers: processes that share the port; each loads the models and gets its share of the
            cores.
        max_body_bytes: largest request body; a larger one gets 413 before it is read.
        max_inputs: most texts (or pairs, documents) in one request, at most 20,000; more get 413.
        auto_truncate: cut texts that are too long for a model when the request does not say what to
            do with them; otherwise they get 413.
        max_concurrent_requests: requests answered at once; one more gets 429.
        request_seconds: time that a client has to send its body (408 after it), and time from the
            last byte of a request to its answer (503 after it).
        grace_seconds: time for running requests when the server stops.
        api_keys: file with one bearer key per line, required on all routes but /health, /ping,
            /metrics and the page; FILBERT_API_KEYS (comma separated) when not given, else no key is
            required.
        cors: origins whose pages may call the server, comma separated, or *; none when not given.
        page: serve the page at /.
    """

    host: str = "127.0.0.1"
    port: int = 8080
    workers: int = 1
    max_body_bytes: int = 2_000_000
    max_inputs: int = 10_000
    auto_truncate: bool = True
    max_concurrent_requests: int = 512
    request_seconds: float = 60.0
    grace_seconds: float = 30.0
    api_keys: str | None = None
    cors: str | None = None
    page: bool = True

    def __post_init__(self) -> None:
        counts = ("workers", "max_body_bytes", "max_inputs", "max_concurrent_requests")
        check_range(self, ("port",), "be in 0..65535", lambda n: 0 <= n <= 65535)
        check_range(self, counts, "be at least 1", lambda n: n >= 1)
        check_range(self, ("max_inputs",), f"be at most {MAX_LIST}", lambda n: n <= MAX_LIST)
        times = ("request_seconds", "grace_seconds")
        check_range(self, times, "be above 0", lambda n: 0 < n < float("inf"))

    def origins(self) -> tuple[str, ...]:
        """Return the origins of `cors`, or raise a ConfigError if one is not an origin."""
        parts = tuple(part.strip() for part in (self.cors or "").split(",") if part.strip())
        for origin in parts:
            if origin != "*" and not origin.startswith(("http://", "https://")):
                raise ConfigError(
                    f"--cors {origin!r} is not an origin. Give one such as https://example.org, "
                    "or *."
                )
        return parts

    def bearer_keys(self) -> tuple[str, ...]:
        """Return the accepted bearer keys; empty when no key is required.

        Raises:
            ConfigError: The file cannot be read, has no key, or a key is invalid. The message never
                contains a key.
        """
        if self.api_keys is not None:
            source = f"--api-keys {self.api_keys}"
            try:
                with unreadable_as(ConfigError):
                    text = Path(self.api_keys).read_text(encoding="utf-8")
            except UnicodeDecodeError as error:
                raise ConfigError(f"{source} is not UTF-8. Save it as a text file.") from error
            entries = [line for line in text.splitlines() if not line.lstrip().startswith("#")]
        elif KEYS_VARIABLE in os.environ:
            source, entries = KEYS_VARIABLE, os.environ[KEYS_VARIABLE].split(",")
        else:
            return ()
        keys = tuple(entry.strip() for entry in entries if entry.strip())
        if not keys:
            raise ConfigError(f"{source} holds no key. Write one per line, or omit the option.")
        for number, key in enumerate(keys, 1):
            if len(key) < _SHORTEST_KEY or not key.isascii() or not key.isprintable() or " " in key:
                raise ConfigError(
                    f"{source}: key {number} is not a valid bearer key. Use at least "
                    f"{_SHORTEST_KEY} printable ASCII characters without spaces."
                )
        return keys


@dataclass(frozen=True, kw_only=True)
class ModelSettings:
    """How models are loaded, how their batches are formed, and how much work they accept.

    Attributes:
        precision: float32, bf16, int8, or auto: bf16 where it is faster and keeps the answers.
        backend: torch, or onnxruntime for folders written by filbert export.
        device: cpu, cuda, ...; the first GPU if there is one.
        max_length: cut texts to this many tokens; each model's own limit when not given.
        null_threshold: for question answering: the answer is "" if the null score is above the best
            answer's by more than this. When not given, the threshold stored with the model.
        max_batch_tokens: tokens at which a batch is closed and run; the device's usual number when
            not given (at most 2,048 on a CPU).
        max_wait_ms: longest time in milliseconds that a batch waits for further requests; 0 never
            waits.
        max_queue_tokens: tokens of other requests that a model may have to read before a request's
            own; a request that would wait for more gets 429 at once.
        max_input_tokens: most tokens read for one text where all of it is read in windows, as by
            /answer and /tag; more get 413. Other routes cut the text and report it.
    """

    precision: str = "float32"
    backend: str = "torch"
    device: str | None = None
    max_length: int | None = None
    null_threshold: float | None = None
    max_batch_tokens: int | None = None
    max_wait_ms: float = 10.0
    max_queue_tokens: int = 1_000_000
    max_input_tokens: int = 100_000

    def __post_init__(self) -> None:
        counts = ("max_batch_tokens", "max_queue_tokens", "max_input_tokens")
        check_range(self, counts, "be at least 1", lambda n: n >= 1)
        check_range(self, ("max_wait_ms",), "be at least 0", lambda n: 0 <= n < float("inf"))

    @property
    def loading(self) -> dict[str, Any]:
        """Keyword arguments of `Predictor.load`."""
        names = ("precision", "backend", "device", "max_length", "null_threshold")
        return {name: getattr(self, name) for name in names}


def named_models(models: Sequence[str]) -> dict[str, str]:
    """Map the name of each model to its folder, built-in name or Hub id.

    NAME=MODEL sets the name. Otherwise a folder is named after itself, the folder `model` of a run
    after the run, and anything else by its own id.

    Raises:
        ConfigError: Two models have the same name, or a name is empty.
    """
    if not models:
        raise ConfigError("Which model? Give a folder, a built-in name or a Hub id: minilm.")
    named: dict[str, str] = {}
    for given in models:
        name, equals, model = given.partition("=")
        if Path(given).exists():
            place, model = Path(given).resolve(), given
            name = place.parent.name if place.name == "model" else place.name
        elif not equals:
            model = given
        if not name or not model:
            raise ConfigError(f"{given!r}: give NAME=MODEL, or MODEL alone.")
        if name in named:
            raise ConfigError(
                f"{named[name]} and {model} are both called {name}. Choose names: "
                f"{name}=... and another=..."
            )
        named[name] = model
    return named
