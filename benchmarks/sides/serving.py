"""Sides that answer over HTTP: each starts a server, and its clients run next to it."""

from __future__ import annotations

import asyncio
import atexit
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from sides.clients import closed_loop, percentile, request
from sides.job import Job
from sides.served import Served, free_port
from sides.tokenizing import sample_texts

# clients, seconds -> what was counted
Load = Callable[[int, float], dict[str, Any]]

_TEXTS = 2000
# Nothing is fetched, nothing is told to anybody.
QUIET = {"HF_HUB_OFFLINE": "1", "TOKENIZERS_PARALLELISM": "false"}


def filbert(job: Job, precision: str) -> Load:
    """`filbert serve`, with one worker."""
    port = free_port()
    command = ["-m", "filbert", "serve", f"m={job.model}", "--port", str(port)]
    options = ["--precision", precision, "--device", job.device]
    return _load(job, [sys.executable, *command, *options], port)


def sentence_transformers(job: Job, precision: str) -> Load:
    """FastAPI around `SentenceTransformer.encode`, as tutorials have it."""
    port = free_port()
    command = [
        sys.executable,
        str(Path(__file__).with_name("plain_server.py")),
        job.model,
        str(port),
    ]
    return _load(job, command, port)


def _load(job: Job, command: list[str], port: int) -> Load:
    """OpenAI's request for the vector of one comment, from so many clients at once."""
    log = Path(job.place).parent / f"{job.side}-server.log"
    server = Served(command, port, log, env=QUIET)
    # It has nothing to finish: its only clients are here.
    atexit.register(server.close, 0)
    texts = sample_texts(Path(job.data), _TEXTS)
    requests = [request("/v1/embeddings", {"model": "m", "input": [text]}) for text in texts]
    asked = 0

    def load(clients: int, seconds: float) -> dict[str, Any]:
        nonlocal asked
        replies, taken = asyncio.run(
            closed_loop(port, requests, clients=clients, seconds=seconds, first=asked)
        )
        asked += len(replies)
        good = [reply for reply in replies if reply.status == 200]
        return {
            "seconds": taken,
            "requests": len(good),
            "errors": len(replies) - len(good),
            "p50": percentile(good, 0.5),
            "p99": percentile(good, 0.99),
            "megabytes": server.megabytes(),
        }

    return load
