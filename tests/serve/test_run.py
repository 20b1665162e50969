"""What `filbert serve` refuses before anything is loaded, and what it calls the models."""

from __future__ import annotations

import socket

import pytest
from huggingface_hub import constants

from filbert.cli.main import run
from filbert.errors import ConfigError, InputError
from filbert.serve import process
from filbert.serve.listening import bound, check_tls, url_of
from filbert.serve.operation import Operation, named_models
from filbert.serve.settings import Settings


def test_a_model_is_called_as_asked_else_after_its_folder_or_its_run(tmp_path):
    folder = tmp_path / "runs" / "toxic" / "model"
    folder.mkdir(parents=True)
    assert named_models(["a=minilm", "minilm", "org/model", str(folder), f"b={folder}"]) == {
        "a": "minilm",
        "minilm": "minilm",
        "org/model": "org/model",
        "toxic": str(folder),
        "b": str(folder),
    }


def test_a_model_that_is_nowhere_is_named(monkeypatch, capsys):
    monkeypatch.setattr(constants, "ENDPOINT", "http://127.0.0.1:9")
    monkeypatch.delenv("HF_HUB_OFFLINE", raising=False)
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
    with pytest.raises(InputError, match="'nothere' is no built-in name and no folder here, and"):
        process.open_app({"nothere": "nothere"}, Settings(), Operation())


def test_an_equals_sign_in_a_folder_s_name_is_no_name(tmp_path):
    folder = tmp_path / "lr=3e-5"
    folder.mkdir()
    assert named_models([str(folder)]) == {"lr=3e-5": str(folder)}


@pytest.mark.parametrize(
    ("models", "said"),
    [
        ([], "Which model"),
        (["=minilm"], "NAME=MODEL"),
        (["a="], "NAME=MODEL"),
        (["a=x", "a=y"], "both called a"),
    ],
)
def test_names_that_cannot_be_meant_are_refused(models, said):
    with pytest.raises(ConfigError, match=said):
        named_models(models)


def test_a_server_without_processes_is_refused():
    with pytest.raises(ConfigError, match="--workers is 0"):
        Operation(workers=0)


def test_a_taken_port_is_one_sentence_before_any_model_is_loaded(capsys):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        assert run(["serve", "no-such-model", "--port", str(port)]) == 2
    said = capsys.readouterr().err
    assert f"Port {port} of 127.0.0.1 cannot be listened on: Address already in use." in said
    assert said.count("\n") == 1


def test_an_unknown_host_is_refused():
    said = r"'no\.such\.host\.invalid' is no address"
    with pytest.raises(ConfigError, match=said), bound("no.such.host.invalid", 0):
        pass


def test_nobody_is_let_in_before_the_models_are_there():
    with bound("127.0.0.1", 0) as listener:
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection(listener.getsockname(), timeout=5)
        listener.listen()
        socket.create_connection(listener.getsockname(), timeout=5).close()
        assert url_of(listener, is_tls=False).startswith("http://127.0.0.1:")


def test_the_address_for_everybody_is_shown_as_one_that_works_here():
    with bound("0.0.0.0", 0) as listener:
        assert url_of(listener, is_tls=True).startswith("https://127.0.0.1:")


@pytest.mark.parametrize(
    ("certificate", "key", "said"),
    [
        (None, "key.pem", "without --certificate"),
        ("missing.pem", "key.pem", "no such file"),
        ("certificate.pem", "missing.pem", "no such file"),
        ("certificate.pem", "other-key.pem", "cannot be used"),
        ("certificate.pem", None, "cannot be used"),
        ("certificate.pem", "locked.pem", "passphrase"),
    ],
)
def test_a_certificate_that_cannot_be_used_is_refused(certificates, certificate, key, said):
    names = [None if name is None else str(certificates / name) for name in (certificate, key)]
    with pytest.raises(ConfigError, match=said):
        check_tls(*names)


def test_a_certificate_with_its_key_is_taken(certificates):
    check_tls(str(certificates / "certificate.pem"), str(certificates / "key.pem"))
    check_tls(None, None)
