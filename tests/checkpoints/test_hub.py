"""Fetching and uploading with huggingface_hub's real client, against a Hub on this machine."""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from huggingface_hub import constants
from safetensors.torch import load_file, save_file

import filbert
from filbert.checkpoints import upload
from filbert.checkpoints.hub import to_fetch
from filbert.checkpoints.opening import find_model
from filbert.errors import ConfigError, FormatError, InputError
from filbert.files import sha256_of

_spec = importlib.util.spec_from_file_location(
    "hub_server", Path(__file__).parents[1] / "hub_server.py"
)
assert _spec is not None and _spec.loader is not None
hub_server = importlib.util.module_from_spec(_spec)
sys.modules["hub_server"] = hub_server
_spec.loader.exec_module(hub_server)


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Any]:
    with hub_server.running() as running, hub_server.client(monkeypatch, running, tmp_path / "hf"):
        yield running


def refusal(kind: type[Exception], name: str) -> str:
    with pytest.raises(kind) as caught:
        find_model(name)
    text = str(caught.value)
    assert "\n" not in text and len(text) < 500
    return text


def names(folder: Path) -> set[str]:
    return {p.relative_to(folder).as_posix() for p in folder.rglob("*") if p.is_file()}


SMALL = {"config.json": b"{}", "vocab.txt": b"[PAD]"}
WEIGHTS = {"model.safetensors": b"weights" * 5000}


STATIC = ("tokenizer.json", "model.safetensors", "a.py")


# Which files are fetched.


@pytest.mark.parametrize(
    ("published", "fetched"),
    [
        (["config.json", "model.safetensors", "pytorch_model.bin", "tf_model.h5"], 2),
        (["config.json", "model.safetensors", "spm.model", "spiece.model", "spm.vocab"], 4),
        (["config.json", "pytorch_model.bin", "onnx/model.onnx", ".gitattributes"], 2),
        (["config.json", "model-00001-of-00002.safetensors", "model.safetensors.index.json"], 3),
        (["bert_config.json", "b.ckpt.index", "b.ckpt.data-00000-of-00001", "b.ckpt.meta"], 3),
        (["config.json", "b.ckpt.index", "b.ckpt.data-00000-of-00001", "pytorch_model.bin"], 2),
        (["modules.json", "1_Pooling/config.json", "2_Dense/config.json", "2_Dense/x.py"], 3),
        (["2_Dense/model.safetensors", "2_Dense/pytorch_model.bin", "3_Normalize/a"], 1),
        (["modules.json", "tokenizer.json", "model.safetensors", "model.onnx"], 3),
        (["router_config.json", *(f"query_0_StaticEmbedding/{name}" for name in STATIC)], 3),
        (["2_Dense/pytorch_model.bin", "../config.json", "a/config.json"], 1),
    ],
)
def test_nothing_is_fetched_that_is_not_read(published, fetched):
    chosen = to_fetch(published)
    assert len(chosen) == fetched
    assert not set(chosen) & {"pytorch_model.bin"} or "model.safetensors" not in published


def test_a_tokenizer_alone_fetches_no_weights(server, capfd):
    server.add("owner/name", SMALL | WEIGHTS)
    folder = find_model("owner/name", tokenizer_only=True)
    assert names(folder) == set(SMALL)
    assert names(find_model("owner/name")) == set(SMALL | WEIGHTS)
    assert "%" not in capfd.readouterr().err, "a progress bar is for a terminal"


def test_a_checkpoint_of_googles_on_the_hub_is_found_as_its_prefix(server):
    google = ("bert_config.json", "vocab.txt", "m.ckpt.index", "m.ckpt.data-00000-of-00001")
    server.add("owner/name", dict.fromkeys(google, b"x") | {"m.ckpt.meta": b"x"})
    place = find_model("owner/name")
    assert place.name == "m.ckpt"
    assert names(place.parent) == set(google)
    two = {f"{n}.{part}": b"" for n in "ab" for part in ("index", "data-00000-of-00001")}
    server.add("owner/two", two)
    assert "2 checkpoints: a, b" in refusal(FormatError, "owner/two")


# The way there.


def test_a_private_model_needs_its_token(server, monkeypatch):
    server.add("owner/name", SMALL | WEIGHTS, token="hf_reader")
    assert "private one: set HF_TOKEN" in refusal(InputError, "owner/name")
    monkeypatch.setenv("HF_TOKEN", "hf_invalid")
    assert "does not accept the token" in refusal(InputError, "owner/name")
    monkeypatch.setenv("HF_TOKEN", "hf_reader")
    assert names(find_model("owner/name")) == set(SMALL | WEIGHTS)


def test_a_branch_a_tag_and_a_commit_are_revisions(server):
    repo = server.add("owner/name", SMALL | WEIGHTS)
    repo.commit("refs/pr/1", SMALL | WEIGHTS | {"vocab.txt": b"[NEW]"})
    assert (find_model("owner/name") / "vocab.txt").read_bytes() == b"[PAD]"
    for revision in ("refs/pr/1", repo.refs["refs/pr/1"]):
        place = find_model(f"owner/name@{revision}")
        assert (place / "vocab.txt").read_bytes() == b"[NEW]"
    assert "no revision 'v9'" in refusal(InputError, "owner/name@v9")


# What goes wrong.


@pytest.mark.parametrize(
    ("fault", "says"),
    [
        ({"status": 503}, "has failed (it answered 503)"),
        ({"status": 429}, "too many requests"),
        ({"silent": True}, "Timeout"),
    ],
)
def test_a_faulty_hub_is_one_sentence_and_the_cache_still_serves(server, monkeypatch, fault, says):
    server.add("owner/name", SMALL | WEIGHTS)
    folder = find_model("owner/name")
    monkeypatch.setattr(constants, "HF_HUB_ETAG_TIMEOUT", 0.5)
    server.status, server.silent = fault.get("status"), fault.get("silent") and threading.Event()
    assert says in refusal(InputError, "owner/other")
    assert find_model("owner/name") == folder


def test_no_network_is_one_sentence(server, monkeypatch):
    monkeypatch.setattr(constants, "ENDPOINT", "http://127.0.0.1:9")
    text = refusal(InputError, "owner/name")
    assert "http://127.0.0.1:9 failed" in text and "Check the network" in text


def test_a_gated_and_a_missing_model_are_told_apart(server):
    server.add("owner/name", SMALL, gated=True)
    assert "is gated" in refusal(InputError, "owner/name")
    assert "no model on the Hugging Face Hub" in refusal(InputError, "owner/nothing")


def test_offline_only_a_copy_in_the_cache_serves(server, monkeypatch):
    server.add("owner/name", SMALL | WEIGHTS)
    folder = find_model("owner/name")
    server.requests.clear()
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    assert find_model("owner/name") == folder
    text = refusal(InputError, "owner/never")
    assert "no copy" in text and "switched off" in text
    assert server.requests == []


def test_a_model_is_loaded_from_the_hub_and_then_without_it(server, tiny_model, tmp_path):
    repo = server.add("owner/tiny", tiny_model)
    tensors = load_file(tiny_model / "model.safetensors")
    half = sorted(tensors)[: len(tensors) // 2]
    files = [f"model-0000{i}-of-00002.safetensors" for i in (1, 2)]
    parts = ({k: v for k, v in tensors.items() if (k in half) == first} for first in (True, False))
    for file, part in zip(files, parts, strict=True):
        save_file(part, tmp_path / file)
        repo.files[file] = (tmp_path / file).read_bytes()
    table = {"weight_map": {name: files[name not in half] for name in tensors}}
    repo.files["model.safetensors.index.json"] = json.dumps(table).encode()
    del repo.files["model.safetensors"]
    repo.commit("sharded", repo.files)

    code = (
        "import filbert, sys\n"
        "v = filbert.load(sys.argv[1], device='cpu').embed(['the film was good'])\n"
        "print(v.tobytes().hex())"
    )

    vectors = filbert.load("owner/tiny@sharded", device="cpu").embed(["the film was good"])
    environment = os.environ | hub_server.environment(server, tmp_path / "hf")
    command = [sys.executable, "-W", "error", "-c", code, "owner/tiny@sharded"]
    run = subprocess.run(
        command, env=environment | {"HF_HUB_OFFLINE": "1"}, capture_output=True, text=True
    )
    assert (run.stderr, run.stdout) == ("", vectors.tobytes().hex() + "\n")


# Uploading.

# The client's own call of its HTTP library.
pytestmark = pytest.mark.filterwarnings("ignore:Use 'content=:DeprecationWarning")


@pytest.fixture
def model(tiny_model: Path, tmp_path: Path) -> Path:
    """A model folder with the digests of its files, and with things that are no part of it."""
    folder = tmp_path / "model"
    for name in names(tiny_model):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes((tiny_model / name).read_bytes())
    digests = {name: {"sha256": sha256_of(folder / name)} for name in names(folder)}
    (folder / "filbert.json").write_text(json.dumps({"files": digests}))
    (folder / "README.md").write_text("# tiny")
    (folder / "1_Pooling").mkdir()
    (folder / "1_Pooling" / "config.json").write_text("{}")
    for name in ("train.csv", "optimizer.safetensors", "pytorch_model.bin", "state.json", ".env"):
        (folder / name).write_text("secret")
    (folder / "state").mkdir()
    (folder / "state" / "model.safetensors").write_text("secret")
    return folder


def test_what_was_uploaded_is_what_is_fetched(server, model, monkeypatch):
    monkeypatch.setenv("HF_TOKEN", "hf_writer")
    told: list[dict[str, int]] = []
    url = upload.push(model, "me/new", private=True, announce=told.append)
    repo = server.repos["me/new"]
    assert url == f"{server.url}/me/new"
    assert repo.private and repo.messages == ["Upload a model with filbert"]
    files = repo.commits[repo.refs["main"]]
    assert set(files) - {".gitattributes"} == set(told[0])
    assert b"secret" not in files.values()
    assert {"README.md", "filbert.json", "1_Pooling/config.json", "vocab.txt"} <= set(files)
    assert "pytorch_model.bin" not in files
    fetched = find_model("me/new")
    for name in names(fetched):
        assert (fetched / name).read_bytes() == (model / name).read_bytes()


def test_another_models_files_go_and_foreign_ones_stay(server, model, monkeypatch):
    monkeypatch.setenv("HF_TOKEN", "hf_writer")
    old = {"pytorch_model.bin": b"x", "merges.txt": b"x", "README.md": b"x", "LICENSE": b"x"}
    repo = server.add("me/old", {**old, "model.safetensors.index.json": b"{}"})
    before = repo.commits[repo.refs["main"]]
    assert upload.push(model, "me/old").endswith("/me/old")
    assert set(before) == {*old, "model.safetensors.index.json"}
    files = repo.commits[repo.refs["main"]]
    assert {"LICENSE", "README.md", "model.safetensors"} <= set(files)
    assert not {"pytorch_model.bin", "merges.txt", "model.safetensors.index.json"} & set(files)


@pytest.mark.parametrize(
    ("damage", "says"),
    [
        (lambda f: (f / "vocab.txt").write_text("changed"), "sha256"),
        (lambda f: (f / "model.safetensors").unlink(), "pickle"),
        (lambda f: (f / "config.json").unlink(), "no config.json"),
        (lambda f: (f / "tokenizer_config.json").unlink(), "No such file"),
        (lambda f: (f / "config.json").rename(f / "bert_config.json"), "filbert convert"),
        (lambda f: (f / "filbert.json").write_text("[]"), "not an object"),
    ],
)
def test_a_folder_that_is_no_whole_model_is_never_uploaded(server, model, damage, says):
    damage(model)
    with pytest.raises((FormatError, InputError), match=says):
        upload.push(model, "me/new")
    assert server.requests == []


def test_without_the_right_to_write_nothing_is_uploaded(server, model, monkeypatch):
    server.add("me/public", SMALL)
    cases: list[tuple[type[Exception], str, str, bool, str]] = [
        (InputError, "me/new", "", False, "needs a token"),
        (InputError, "me/new", "hf_reader", False, "no right to this on me/new"),
        (InputError, "me/public", "hf_reader", False, "no right to this on me/public"),
        (ConfigError, "new", "hf_writer", False, "give owner/name"),
        (ConfigError, "me/public", "hf_writer", True, "already public"),
    ]
    for kind, repo, token, private, says in cases:
        monkeypatch.setenv("HF_TOKEN", token)
        with pytest.raises(kind, match=says):
            upload.push(model, repo, private=private)
    assert list(server.repos) == ["me/public"] and len(server.repos["me/public"].commits) == 1


def test_offline_nothing_is_uploaded(server, model, monkeypatch):
    monkeypatch.setenv("HF_TOKEN", "hf_writer")
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    with pytest.raises(InputError, match="HF_HUB_OFFLINE"):
        upload.push(model, "me/new")
    server.status = 503
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
    with pytest.raises(InputError, match="has failed"):
        upload.push(model, "me/new")
