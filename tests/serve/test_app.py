"""What `filbert serve` checks before it loads models, and what it loads."""

from __future__ import annotations

import json
import logging
import socket
import sys

import httpx
import numpy as np
import pytest
from huggingface_hub import constants
from tests.serve.conftest import running

from filbert.cli.main import run
from filbert.errors import ConfigError, InputError
from filbert.inference.predictor import Predictor
from filbert.onnx_export import export_onnx, int8_engine
from filbert.serve.app import check_address, load_app
from filbert.serve.logs import JsonLines, WithoutQueries
from filbert.serve.settings import ModelSettings, Settings, named_models

SENTENCE = "the film was very good"


def load(model, **settings):
    """The application over one model, and its engine."""
    app = load_app({"one": str(model)}, Settings(), ModelSettings(**settings))
    return app, app.state.engines["one"]


def test_the_name_of_a_model_is_given_or_that_of_its_folder_or_run(tmp_path):
    folder = tmp_path / "runs" / "toxic" / "model"
    folder.mkdir(parents=True)
    other = tmp_path / "lr=3e-5"
    other.mkdir()
    models = ["a=minilm", "minilm", "org/model", str(folder), f"b={folder}", str(other)]
    assert named_models(models) == {
        "a": "minilm",
        "minilm": "minilm",
        "org/model": "org/model",
        "toxic": str(folder),
        "b": str(folder),
        "lr=3e-5": str(other),
    }


@pytest.mark.parametrize(
    ("models", "message"),
    [
        ([], "Which model"),
        (["=minilm"], "NAME=MODEL"),
        (["a="], "NAME=MODEL"),
        (["a=x", "a=y"], "both called a"),
    ],
)
def test_invalid_names_are_refused(models, message):
    with pytest.raises(ConfigError, match=message):
        named_models(models)


def test_an_unknown_model_is_named(monkeypatch):
    monkeypatch.setattr(constants, "ENDPOINT", "http://127.0.0.1:9")
    monkeypatch.delenv("HF_HUB_OFFLINE", raising=False)
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
    with pytest.raises(InputError, match="no folder 'nothere' and no built-in"):
        load("nothere")


def test_a_taken_port_and_an_unknown_host_are_refused():
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        with pytest.raises(ConfigError, match=f"port {port} of 127.0.0.1: Address already in use"):
            check_address("127.0.0.1", port)
    with pytest.raises(ConfigError, match=r"of no\.such\.host\.invalid: "):
        check_address("no.such.host.invalid", 0)


@pytest.mark.parametrize(("precision", "least"), [("bf16", 0.999), ("int8", 0.98)])
def test_the_server_computes_in_the_precision_that_it_reports(tiny_model, precision, least):
    app, _ = load(tiny_model, precision=precision)
    (exact,) = Predictor.load(tiny_model).embed([SENTENCE])
    engine, loading = str(tiny_model), {"precision": precision, "backend": "torch", "device": None}
    if precision == "int8":
        engine, loading = int8_engine(engine, loading)
    (rounded,) = Predictor.load(engine, **loading).embed([SENTENCE])
    with running(app) as address:
        found = httpx.post(f"{address}/embed", json={"inputs": SENTENCE, "normalize": False})
        info = httpx.get(f"{address}/info").json()
    assert info["model_dtype"] == info["models"][0]["precision"] == precision
    (vector,) = np.array(found.json())
    assert np.abs(vector - rounded).max() < 1e-6 < np.abs(vector - exact).max()
    assert vector @ exact / np.linalg.norm(vector) / np.linalg.norm(exact) > least


def test_int8_that_was_never_compared_with_float32_is_logged(
    unmeasured_model, films, caplog, tmp_path
):
    warning = "not compared with float32 on labelled rows: filbert "

    def logged(model=unmeasured_model, **settings) -> str:
        caplog.clear()
        with caplog.at_level(logging.INFO, logger="filbert.serve.app"):
            load(model, **settings)
        return caplog.text

    assert warning in logged(precision="int8")
    assert warning not in logged()
    chosen, dev = tmp_path / "chosen", str(films / "dev.csv")
    assert run(["convert", str(unmeasured_model), str(chosen), "--to", "int8", "--data", dev]) == 0
    assert warning not in logged(chosen, precision="int8")


def test_a_model_in_onnxruntime(film_run, tmp_path):
    pytest.importorskip("onnxruntime", reason="the extra onnx is not installed")
    exported = tmp_path / "films-onnx"
    export_onnx(str(film_run.folder / "model"), exported)
    app, engine = load(exported, backend="onnxruntime")
    assert "predict" in engine.can and "attention" not in engine.can
    (expected,) = Predictor.load(film_run.folder / "model").predict([SENTENCE])
    with running(app) as address, httpx.Client(base_url=address) as client:
        assert client.get("/health").status_code == 200
        found = client.post("/predict", json={"inputs": SENTENCE}).json()
        refused = client.post("/attention", json={"inputs": SENTENCE})
    assert {e["label"]: e["score"] for e in found} == pytest.approx(expected["scores"], abs=1e-5)
    assert refused.status_code == 424


def record_of(logger: str, *args: object, **more: object) -> logging.LogRecord:
    return logging.LogRecord(logger, logging.INFO, "x.py", 1, '%s "%s %s"', args, None, **more)


def test_a_log_line_has_neither_the_query_of_a_path_nor_the_message_of_an_exception():
    record = record_of("uvicorn.access", "127.0.0.1:9", "POST", "/embed?text=secret")
    assert WithoutQueries().filter(record)
    assert json.loads(JsonLines().format(record))["message"] == '127.0.0.1:9 "POST /embed"'
    try:
        raise KeyError("secret")
    except KeyError:
        record.exc_info = sys.exc_info()
    entry = json.loads(JsonLines().format(record))
    assert (entry["error"], entry["level"]) == ("KeyError", "info")
    assert "secret" not in json.dumps(entry)
