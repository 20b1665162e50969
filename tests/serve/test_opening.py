"""What `filbert serve` makes of its options: limits, number formats, engine, parser of HTTP."""

from __future__ import annotations

import logging
import socket
from collections.abc import Callable
from dataclasses import fields
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest
from tests.serve.conftest import running

from filbert.cli.main import run
from filbert.export import export_onnx
from filbert.predict import Predictor
from filbert.serve import process
from filbert.serve.app import make_app
from filbert.serve.engine import EngineLimits
from filbert.serve.operation import Operation
from filbert.serve.settings import NAMES, Settings

SENTENCE = "the film was very good"


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch) -> Callable[..., tuple[Any, Any]]:
    """Gives the app over one model, and its engine."""

    def make(model: Path, settings: Settings, **operation: Any) -> tuple[Any, Any]:
        found: list[Any] = []

        def keep(engines: Any, *rest: Any) -> Any:
            found.append(next(iter(engines)))
            return make_app(engines, *rest)

        monkeypatch.setattr("filbert.serve.app.make_app", keep)
        app, _ = process.open_app({"one": str(model)}, settings, Operation(**operation))
        return app, found[0]

    return make


def test_what_is_said_of_queues_and_batches_reaches_the_engine(made, tiny_model):
    asked = {
        "max_batch_tokens": 77,
        "max_wait_ms": 2.5,
        "max_queue_tokens": 5_555,
        "max_queue_seconds": 3.5,
        "max_input_tokens": 999,
        "cache_size": 3,
    }
    _, engine = made(tiny_model, Settings(**asked))
    assert {name: getattr(engine.limits, name) for name in asked} == asked
    assert engine.max_batch_tokens == 77
    # A field of another name would be passed over in silence.
    engine_s = {field.name for field in fields(EngineLimits)} - {"tokenization_workers"}
    assert engine_s == set(asked) and engine_s <= set(NAMES)


@pytest.mark.parametrize(("precision", "least"), [("bf16", 0.999), ("int8", 0.98)])
def test_vectors_of_other_number_formats(made, tiny_model, precision, least):
    app, engine = made(tiny_model, Settings(), precision=precision)
    assert engine.predictor.number_format == precision
    (exact,) = Predictor.load(tiny_model).embed([SENTENCE])
    (rounded,) = Predictor.load(tiny_model, precision=precision).embed([SENTENCE])
    with running(app) as address:
        found = httpx.post(f"{address}/embed", json={"inputs": SENTENCE, "normalize": False})
        assert httpx.get(f"{address}/health").status_code == 200
        about = httpx.get(f"{address}/info").json()
    assert about["model_dtype"] == about["models"][0]["precision"] == precision
    (vector,) = np.array(found.json())
    assert np.abs(vector - rounded).max() < 1e-6 < np.abs(vector - exact).max()
    assert vector @ exact / np.linalg.norm(vector) / np.linalg.norm(exact) > least


def test_int8_that_nobody_has_measured_is_told_of(
    unmeasured_model, films, tiny_model, tmp_path, caplog
):
    model = unmeasured_model

    def line(folder: Path, **operation: Any) -> str:
        (said,) = process.open_app({"one": str(folder)}, Settings(), Operation(**operation))[1]
        return str(said)

    warning = "not compared with float32 on labelled rows: filbert convert --to int8"
    assert warning in line(model, precision="int8")
    assert warning not in line(model) and warning not in line(tiny_model, precision="int8")
    chosen, dev = tmp_path / "chosen", str(films / "dev.csv")
    assert run(["convert", str(model), str(chosen), "--to", "int8", "--data", dev]) == 0
    assert warning not in line(chosen, precision="int8")
    pytest.importorskip("onnxruntime", reason="the extra onnx is not installed")
    for name, data in (("blind", None), ("seen", str(films / "dev.csv"))):
        with caplog.at_level(logging.WARNING, logger="filbert.export"):
            caplog.clear()
            export_onnx(str(model), tmp_path / name, int8=True, data=data)
        assert ("not compared with float32" in caplog.text) == (data is None)
        said = line(tmp_path / name, backend="onnxruntime")
        assert ("rows: filbert export --data" in said) == (data is None)


def test_a_model_in_onnxruntime(made, film_run, tmp_path):
    pytest.importorskip("onnxruntime", reason="the extra onnx is not installed")
    exported = tmp_path / "films-onnx"
    export_onnx(str(film_run.folder / "model"), exported)
    app, engine = made(exported, Settings(), backend="onnxruntime")
    assert "predict" in engine.can and "attention" not in engine.can
    (expected,) = Predictor.load(film_run.folder / "model").predict([SENTENCE])
    with running(app) as address, httpx.Client(base_url=address) as client:
        assert client.get("/health").status_code == 200
        assert client.get("/info").json()["model_id"]
        found = client.post("/predict", json={"inputs": SENTENCE}).json()
        refused = client.post("/attention", json={"inputs": SENTENCE})
    assert {e["label"]: e["score"] for e in found} == pytest.approx(expected["scores"], abs=1e-5)
    assert refused.status_code == 424


def test_a_head_without_end_is_not_kept(made, tiny_model):
    app, _ = made(tiny_model, Settings())
    config = process._config(app, Settings(), Operation())
    assert config.http == "h11", "the only one of uvicorn's two that bounds it"
    with running(app) as address:
        host, port = address.removeprefix("http://").split(":")
        with socket.create_connection((host, int(port)), timeout=10) as connection:
            connection.sendall(b"GET /info HTTP/1.1\r\n")
            sent = 0
            with pytest.raises(OSError):
                while sent < 2**22:
                    connection.sendall(b"X-More: " + b"y" * 8_000)
                    sent += 8_008
        assert httpx.get(f"{address}/info").status_code == 200
