"""Tiny models with every head, and real servers over them."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from threading import Thread
from types import MappingProxyType
from typing import Any

import httpx
import pytest
import torch
import uvicorn

from filbert.checkpoints import huggingface
from filbert.checkpoints.checkpoint import with_new_head
from filbert.checkpoints.opening import read_checkpoint
from filbert.inference.predictor import Predictor
from filbert.serve.app import make_app
from filbert.serve.engine import Engine, Engines
from filbert.serve.metrics import Metrics
from filbert.serve.settings import ModelSettings, Settings
from filbert.text.tokenizer import Tokenizer

HEADS: dict[str, tuple[str | None, tuple[str, ...] | None, str | None]] = {
    "vectors": (None, None, None),
    "classes": ("sequence", ("neg", "pos"), None),
    "kinds": ("sequence", ("a", "b", "c"), "multi_label_classification"),
    "value": ("sequence", ("value",), "regression"),
    "words": ("tokens", ("O", "B-FILM", "I-FILM"), None),
    "spans": ("spans", None, None),
    "choices": ("choices", None, None),
    "masks": ("masked_lm", None, None),
}


@pytest.fixture(scope="session")
def predictors(tiny_model: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Predictor]:
    """One tiny model for each head, by the names above, over the same encoder."""
    place = tmp_path_factory.mktemp("heads")
    bare, tokenizer = read_checkpoint(tiny_model), Tokenizer.load(tiny_model)
    loaded = {}
    for name, (kind, labels, problem) in HEADS.items():
        torch.manual_seed(3)
        headed = with_new_head(bare, kind, labels=labels, problem_type=problem)
        huggingface.write(headed, place / name)
        tokenizer.save(place / name)
        loaded[name] = Predictor.load(place / name)
    return loaded


@contextmanager
def running(app: Any) -> Iterator[str]:
    """A real server over an app on a free port, in a thread of its own; its address."""
    config = uvicorn.Config(
        app, port=0, http="h11", log_config=None, access_log=False, lifespan="on"
    )
    server = uvicorn.Server(config)
    thread = Thread(target=server.run, daemon=True)
    thread.start()
    while not server.started:
        assert thread.is_alive(), "the server did not start"
        time.sleep(0.005)
    try:
        yield f"http://127.0.0.1:{server.servers[0].sockets[0].getsockname()[1]}"
    finally:
        server.should_exit = True
        thread.join(20)


Serve = Callable[..., Any]


@pytest.fixture(scope="session")
def serve(predictors: dict[str, Predictor]) -> Serve:
    """`with serve("masks", "words", max_inputs=3) as client`: a real server and a client of it."""

    @contextmanager
    def make(
        *names: str,
        model_settings: ModelSettings | None = None,
        others: Mapping[str, Predictor] = MappingProxyType({}),
        **settings: Any,
    ) -> Iterator[Any]:
        metrics, known = Metrics(), predictors | dict(others)
        engines = Engines(
            {n: Engine(n, known[n], settings=model_settings, metrics=metrics) for n in names}
        )
        app = make_app(engines, Settings(**settings), metrics)
        with running(app) as address, httpx.Client(base_url=address, timeout=20) as client:
            client.app = app  # type: ignore[attr-defined]
            yield client

    return make


@pytest.fixture(scope="session")
def client(serve: Serve) -> Iterator[httpx.Client]:
    """A client of a server over all the models, with the settings' defaults."""
    with serve(*HEADS) as made:
        yield made
