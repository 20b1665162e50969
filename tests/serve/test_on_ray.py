"""The server on a Ray cluster of this machine; `make test-ray` runs what needs one."""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
from types import SimpleNamespace

import pytest

from filbert.errors import ConfigError
from filbert.serve.on_ray import build

# What Ray Serve needs beside ray itself is an extra of its own.
HAS_RAY = all(importlib.util.find_spec(name) for name in ("ray", "grpc_reflection"))
needs_ray = pytest.mark.skipif(not HAS_RAY, reason="ray[serve] is not installed: make test-ray")

# A busy machine may need longer than five seconds to start Ray's proxy.
ENV = {"OMP_NUM_THREADS": "1", "RAY_ADDRESS": "", "RAY_SERVE_PROXY_READY_CHECK_TIMEOUT_S": "120"}

# In a process of its own, since a cluster leaves threads behind. Prints one JSON object.
PROGRAM = """
import json, sys, urllib.error, urllib.request
import numpy as np
import ray
from ray import serve
from filbert.predict import Predictor
from filbert.serve.on_ray import build

ray.init("local", num_cpus=3, include_dashboard=False, log_to_driver=False, logging_level="ERROR")
serve.start(http_options={"host": "127.0.0.1", "port": int(sys.argv[2])})
serve.run(build({"models": [f"m={sys.argv[1]}"], "replicas": "2", "max_inputs": "3"}))

def ask(path, content=None):
    body = None if content is None else json.dumps(content).encode()
    asked = urllib.request.Request(f"http://127.0.0.1:{sys.argv[2]}{path}", body)
    asked.add_header("Content-Type", "application/json")
    try:
        with urllib.request.urlopen(asked) as reply:
            return reply.status, json.loads(reply.read() or b"null")
    except urllib.error.HTTPError as error:
        return error.code, json.loads(error.read())

texts = ["the film was good", "a very bad play"]
wanted = Predictor.load(sys.argv[1]).embed(texts, normalize=True)
vectors = [ask("/embed", {"inputs": texts})[1] for _ in range(6)]
states = serve.status().applications["default"].deployments["filbert"].replica_states
print("RESULT", json.dumps({
    "health": ask("/health")[0],
    "info": ask("/info")[1]["models"][0]["name"],
    "difference": max(float(abs(np.array(found) - wanted).max()) for found in vectors),
    "replicas": sum(states.values()),
    "many": ask("/embed", {"inputs": ["a"] * 4}),
}))
serve.shutdown()
ray.shutdown()
"""


@needs_ray
def test_replicas_on_a_cluster_answer_as_the_model_does(tiny_model):
    import socket

    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, str(tiny_model), str(port)],
        capture_output=True,
        text=True,
        env=os.environ | ENV,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    # Ray says something of its own, too.
    (line,) = (line for line in done.stdout.splitlines() if line.startswith("RESULT "))
    found = json.loads(line.removeprefix("RESULT "))
    assert found["health"] == 200
    assert found["info"] == "m"
    assert found["difference"] < 1e-6
    assert found["replicas"] == 2
    assert found["many"][0] == 413
    assert found["many"][1]["error_type"] == "Validation"


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ({}, "Which model"),
        ({"models": "a", "port": 80}, "Unknown: port"),
        ({"models": "a", "replicas": "many"}, "give a number"),
        ({"models": "a", "page": "maybe"}, "give true or false"),
        ({"models": "a", "max_inputs": "0"}, "at least 1"),
    ],
)
def test_arguments_that_cannot_be_meant_are_refused(arguments, said):
    with pytest.raises(ConfigError, match=said):
        build(arguments)


@pytest.mark.skipif(HAS_RAY, reason="ray[serve] is installed")
def test_without_ray_it_says_how_to_get_it():
    with pytest.raises(ConfigError, match=r"pip install 'filbert\[serve,ray\]'"):
        build({"models": "minilm"})


def test_what_is_said_of_the_models_is_said_in_a_replica_too(monkeypatch, capsys):
    from filbert.serve import memory, process

    made: list[object] = []

    class Serve:
        """Ray's decorators, which only hand through."""

        ingress = staticmethod(lambda application: lambda: made.append(application))
        deployment = staticmethod(
            lambda **options: lambda replica: SimpleNamespace(bind=lambda: replica)
        )

    monkeypatch.setitem(sys.modules, "ray", SimpleNamespace(serve=Serve))
    monkeypatch.setattr(memory, "keep_less", lambda: None)
    monkeypatch.setattr(process, "open_app", lambda *_: ("app", ["m; int8 was not compared"]))
    build({"models": "m"})
    (application,) = made
    assert application() == "app"
    assert "m; int8 was not compared" in capsys.readouterr().err
