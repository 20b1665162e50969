"""Files from strangers: damaged at random by benchmarks/stress_formats.py, and by hand here."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from tokenizers import AddedToken, Regex, models, normalizers
from tokenizers import Tokenizer as Backend

from filbert import files
from filbert.checkpoints import huggingface, weights
from filbert.checkpoints.checkpoint import with_new_head
from filbert.checkpoints.sentence_transformers import read_sentence_vectors
from filbert.errors import ConfigError
from filbert.inference.predictor import Predictor
from filbert.text import vocabulary
from filbert.text.tokenizer import Tokenizer

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"
CASES = 240


def run(*command: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PYTHONPATH": str(BENCHMARKS), "RUST_BACKTRACE": "0"}
    environment["TOKENIZERS_PARALLELISM"] = "false"
    return subprocess.run(
        [sys.executable, *command], env=environment, capture_output=True, text=True, check=False
    )


def test_no_reader_lets_through_a_hostile_file(tmp_path):
    script = str(BENCHMARKS / "stress_formats.py")
    found = run(script, "--cases", str(CASES), "--seed", "1", "--out", str(tmp_path))
    assert found.returncode == 0, found.stdout + found.stderr[-3000:]


def test_the_watchdog_sees_what_a_reader_may_not_do():
    found = run(str(BENCHMARKS / "hostile" / "control.py"))
    lines = found.stdout.splitlines()
    assert len(lines) == 7, found.stderr[-3000:]
    assert [line for line in lines if not line.startswith("True ")] == []


@pytest.fixture
def model(tiny_model: Path, tmp_path: Path) -> Path:
    """A copy of a small model, to be damaged."""
    for path in tiny_model.iterdir():
        (tmp_path / path.name).write_bytes(path.read_bytes())
    return tmp_path


def edit(path: Path, **changes: Any) -> None:
    path.write_text(json.dumps({**json.loads(path.read_text("utf-8")), **changes}))


# config.json and the tensors


@pytest.mark.parametrize("layers", [512, 10_000, 10**18, -1])
def test_layers_that_no_file_holds_are_not_even_outlined(model, monkeypatch, layers, refused):
    monkeypatch.setattr(huggingface, "meta_model", None)
    edit(model / "config.json", num_hidden_layers=layers)
    refused(lambda: huggingface.read(model), "num_hidden_layers")


def test_layers_without_tensors_are_not_outlined_though_the_last_is_there(
    model, monkeypatch, refused
):
    monkeypatch.setattr(huggingface, "meta_model", None)
    tensors = load_file(model / "model.safetensors")
    tensors["encoder.layer.511.output.dense.bias"] = torch.zeros(32)
    save_file(tensors, model / "model.safetensors")
    edit(model / "config.json", num_hidden_layers=512)
    refused(lambda: huggingface.read(model), "num_hidden_layers 512")


def test_a_label_is_a_text_or_a_number_and_nothing_nested(model, refused):
    deep: Any = 0
    for _ in range(900):
        deep = [deep]
    edit(model / "config.json", id2label={"0": deep, "1": "x"})
    refused(lambda: huggingface.read(model), "id2label")


@pytest.mark.parametrize("name", ["\x1b[2J", "x" * 10_000])
def test_a_task_of_a_hostile_name_cannot_steer_a_terminal(model, name, refused):
    (model / "filbert.json").write_text(json.dumps({"task": {"name": name}}))
    refused(lambda: Predictor.load(str(model)), "the task cannot be read")


@pytest.mark.parametrize("limit", ["\x1b[2J", [0] * 10_000, 10**18, -1, 0.5, "12"])
def test_a_limit_that_no_model_has_is_refused_by_its_file(model, limit, refused):
    (model / "filbert.json").write_text(json.dumps({"max_length": limit}))
    refused(lambda: Predictor.load(str(model)), "filbert.json", "max_length")


def test_a_task_that_names_no_labels_is_refused(model, refused):
    (model / "filbert.json").write_text(json.dumps({"task": {"name": "classification"}}))
    refused(lambda: Predictor.load(str(model)), "names no labels")


@pytest.mark.parametrize("content", [b"[" * 10**6, b'{"a":' * 10**5, b"[" * 900 + b"]" * 900])
def test_json_that_is_nested_without_end_is_refused(model, content, refused):
    (model / "config.json").write_bytes(content)
    refused(lambda: huggingface.read(model), "config.json")


def test_json_larger_than_any_config_is_not_parsed(model, monkeypatch, refused):
    (model / "config.json").write_bytes(b"[" + b"{}," * (3 * 2**20) + b"{}]")
    monkeypatch.setattr(json, "loads", None)
    refused(lambda: files.read_json(model / "config.json"), "bytes")


def test_a_config_that_could_not_be_read_again_is_not_written(model, tmp_path):
    labels = [f"{i:0100d}" for i in range(20_000)]
    checkpoint = with_new_head(huggingface.read(model), "tokens", labels=labels)
    with pytest.raises(ConfigError, match="20000 labels"):
        huggingface.write(checkpoint, tmp_path / "new")


def test_what_is_no_plain_file_is_not_opened(tmp_path, monkeypatch, refused):
    (tmp_path / "modules.json").write_text(
        '[{"type": "a.Transformer", "path": ""}, {"type": "a.Pooling", "path": ""}]'
    )
    os.mkfifo(tmp_path / "config.json")
    whole = Path.read_bytes

    def read_bytes(path: Path) -> bytes:
        assert path.is_file()  # reading would wait for somebody to write
        return whole(path)

    monkeypatch.setattr(Path, "read_bytes", read_bytes)
    refused(lambda: read_sentence_vectors(tmp_path, 8), "no plain file")


def test_a_safetensors_header_beyond_all_measure_is_not_parsed(model, monkeypatch, refused):
    monkeypatch.setattr(weights, "safe_open", None)
    path = model / "model.safetensors"
    path.write_bytes((9 * 2**20).to_bytes(8, "little") + b"{" + b" " * (9 * 2**20))
    refused(lambda: huggingface.read(model), "header of 9,437,184 bytes")


# Pickles


@pytest.fixture
def pickled(model: Path) -> Path:
    """The same with its tensors in pytorch_model.bin."""
    torch.save(load_file(model / "model.safetensors"), model / "pytorch_model.bin")
    (model / "model.safetensors").unlink()
    return model


def test_a_number_that_says_it_is_a_matrix_is_refused(pickled, refused):
    tensors = torch.load(pickled / "pytorch_model.bin", weights_only=True)
    tensors["embeddings.word_embeddings.weight"] = torch.zeros(1).expand(1_000_000, 32)
    torch.save(tensors, pickled / "pytorch_model.bin")
    edit(pickled / "config.json", vocab_size=1_000_000)
    refused(lambda: huggingface.read(pickled), "would take 128,")


def test_a_pickle_that_unpacks_to_more_than_it_is_is_refused(pickled, refused):
    with zipfile.ZipFile(pickled / "pytorch_model.bin") as file:
        parts = {name: file.read(name) for name in file.namelist()}
    with zipfile.ZipFile(pickled / "pytorch_model.bin", "w", zipfile.ZIP_DEFLATED) as file:
        for name, content in parts.items():
            file.writestr(name, content)
    refused(lambda: huggingface.read(pickled), "compressed or overlap")


class Runs:
    """A pickle that runs a program where it is loaded."""

    def __init__(self, canary: Path) -> None:
        self.canary = canary

    def __reduce__(self) -> tuple[Any, ...]:
        return os.system, (f"touch {self.canary}",)


@pytest.mark.parametrize("zipped", [True, False])
def test_a_pickle_with_a_program_is_never_run(pickled, tmp_path_factory, zipped, refused):
    canary = tmp_path_factory.mktemp("canary") / "here"
    path = pickled / "pytorch_model.bin"
    content = {"embeddings.LayerNorm.bias": Runs(canary)}
    torch.save(content, path, _use_new_zipfile_serialization=zipped)
    refused(lambda: huggingface.read(pickled), "run code")
    assert not canary.exists()
    torch.load(path, weights_only=False)  # the control: it would have
    assert canary.exists()


def test_a_pickle_of_a_million_instructions_is_not_followed(pickled, monkeypatch, refused):
    tensors = dict.fromkeys(map(str, range(100_000)), torch.zeros(1))
    torch.save(tensors, pickled / "pytorch_model.bin")
    monkeypatch.setattr(torch, "load", None)
    refused(lambda: huggingface.read(pickled), "table of contents")


@pytest.mark.parametrize("zipped", [True, False])
def test_a_pickle_that_only_asks_for_memory_gets_none(pickled, zipped, monkeypatch, refused):
    tensors: Any = torch.load(pickled / "pytorch_model.bin", weights_only=True)
    tensors["embeddings.LayerNorm.bias"] = bytearray(1000)
    path = pickled / "pytorch_model.bin"
    torch.save(tensors, path, _use_new_zipfile_serialization=zipped, pickle_protocol=2)
    monkeypatch.setattr(torch, "load", None)
    refused(lambda: huggingface.read(pickled), "holds more than tensors")


# Tokenizers


def backend(**parts: Any) -> Backend:
    words = {"[UNK]": 0, "[CLS]": 1, "[SEP]": 2, "a": 3}
    made = Backend(models.WordPiece(words, unk_token="[UNK]"))
    made.add_special_tokens([AddedToken("[CLS]"), AddedToken("[SEP]")])
    for name, value in parts.items():
        setattr(made, name, value)
    return made


@pytest.mark.parametrize(
    "rule",
    [
        normalizers.Replace("a", "aa"),
        normalizers.Replace(Regex("b*"), "aa"),
        normalizers.Prepend("aa"),
        normalizers.ByteLevel(),
    ],
)
def test_a_tokenizer_that_makes_gigabytes_of_a_letter_is_refused(tmp_path, rule, refused):
    made = backend(normalizer=normalizers.Sequence([rule] * 13))
    (tmp_path / "tokenizer.json").write_text(made.to_str())
    refused(lambda: Tokenizer.load(tmp_path), "4,096 times as long")


def test_a_character_map_that_makes_a_book_of_a_letter_is_refused(tmp_path, refused):
    charsmap = (1024).to_bytes(4, "little") + bytes(1024) + b"a" * 5000 + b"\0"
    made = backend(normalizer=normalizers.Precompiled(charsmap))
    (tmp_path / "tokenizer.json").write_text(made.to_str())
    refused(lambda: Tokenizer.load(tmp_path), "4,096 times as long")


def test_an_expression_that_never_ends_is_stopped_by_its_library(tmp_path, capfd, refused):
    made = backend(normalizer=normalizers.Replace(Regex("(a+)+$"), "x"))
    (tmp_path / "tokenizer.json").write_text(made.to_str())
    tokenizer = Tokenizer.load(tmp_path)
    refused(lambda: tokenizer.encode(["a" * 60 + "b"]), "retry-limit")
    capfd.readouterr()


def test_what_the_library_says_of_a_hostile_tokenizer_cannot_steer_a_terminal(tmp_path, refused):
    made = json.loads(backend().to_str())
    for version in ("\x1b[2J", "9" * 10**6):
        (tmp_path / "tokenizer.json").write_text(json.dumps({**made, "version": version}))
        refused(lambda: Tokenizer.load(tmp_path), "damaged")


@pytest.mark.parametrize("name", ["tokenizer.json", "vocab.txt", "spiece.model", "vocab.json"])
def test_a_tokenizer_file_larger_than_any_is_not_read(tmp_path, name, monkeypatch, refused):
    monkeypatch.setattr(Path, "read_bytes", None)
    with (tmp_path / name).open("wb") as file:
        file.truncate(65 * 2**20)
    refused(lambda: Tokenizer.load(tmp_path), "bytes; ")


def test_a_vocabulary_of_empty_lines_is_refused_before_it_is_cut(tmp_path, monkeypatch, refused):
    monkeypatch.setattr(vocabulary, "_MAX_LINES", 1000)
    (tmp_path / "vocab.txt").write_bytes(b"[CLS]\n[SEP]\n[UNK]\n" + b"\n" * 1000)
    refused(lambda: Tokenizer.load(tmp_path), "1,000 lines")


@pytest.mark.parametrize("kind", ["cls_token", "added_tokens_decoder"])
def test_half_a_surrogate_pair_is_the_name_of_no_token(tmp_path, kind, refused):
    (tmp_path / "vocab.txt").write_text("[CLS]\n[SEP]\n[UNK]\na\n")
    half = "\ud800" if kind == "cls_token" else {"4": {"content": "\ud800"}}
    (tmp_path / "tokenizer_config.json").write_text(json.dumps({kind: half}))
    if kind == "cls_token":
        assert Tokenizer.load(tmp_path).specials["cls"] == "[CLS]"
    else:
        refused(lambda: Tokenizer.load(tmp_path), "damaged")
