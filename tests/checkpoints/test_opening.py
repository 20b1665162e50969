"""A model's name is found as a folder, a checkpoint, a built-in name or a Hub id."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import filbert
from filbert.checkpoints.opening import find_model
from filbert.errors import ConfigError, FormatError, InputError


def refusal(kind: type[Exception], name: object, **options: Any) -> str:
    with pytest.raises(kind) as caught:
        find_model(str(name), **options)
    assert "\n" not in str(caught.value)
    return str(caught.value)


def fill(folder: Path, *names: str) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    for name in names:
        (folder / name).write_bytes(b"{}")
    return folder


def bundle(prefix: str) -> tuple[str, str]:
    return f"{prefix}.index", f"{prefix}.data-00000-of-00001"


BERT = ("bert_config.json", "vocab.txt", *bundle("bert_model.ckpt"), "bert_model.ckpt.meta")
ALBERT = ("albert_config.json", "30k-clean.model", *bundle("model.ckpt-best"))
ELECTRA = ("vocab.txt", "checkpoint", *bundle("electra_small"))


# Folders in Hugging Face's layout.


def test_a_folder_goes_before_a_name_and_before_a_revision(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name in ("minilm", "bert@v2"):
        fill(tmp_path / name, "config.json")
        assert find_model(name) == Path(name)


def test_an_unpacked_folder_within_a_folder_is_pointed_at(tmp_path):
    inner = fill(tmp_path / "uncased_L-12_H-768_A-12", *BERT)
    assert f"Did you mean {inner}?" in refusal(FormatError, tmp_path)


def test_a_tokenizer_needs_no_config(tmp_path):
    assert find_model(str(fill(tmp_path, "vocab.txt")), tokenizer_only=True) == tmp_path


# TensorFlow checkpoints.


@pytest.mark.parametrize(
    ("files", "prefix"),
    [(BERT, "bert_model.ckpt"), (ALBERT, "model.ckpt-best"), (ELECTRA, "electra_small")],
)
@pytest.mark.parametrize("tokenizer_only", [False, True])
def test_a_published_folder_of_googles_is_the_prefix_of_its_checkpoint(
    tmp_path, files, prefix, tokenizer_only
):
    fill(tmp_path, *files)
    assert find_model(str(tmp_path), tokenizer_only=tokenizer_only) == tmp_path / prefix


@pytest.mark.parametrize("part", ["", ".index", ".data-00000-of-00001", ".meta"])
def test_the_prefix_and_each_of_its_files_are_the_same_place(tmp_path, part):
    prefix = fill(tmp_path, *BERT) / "bert_model.ckpt"
    assert find_model(f"{prefix}{part}") == prefix


def test_of_several_checkpoints_one_must_be_named(tmp_path):
    fill(tmp_path, "bert_config.json", *bundle("model.ckpt-10"), *bundle("model.ckpt-20"))
    text = refusal(FormatError, tmp_path)
    assert "2 checkpoints: model.ckpt-10, model.ckpt-20" in text
    assert str(tmp_path / "model.ckpt-20") in text
    assert find_model(str(tmp_path / "model.ckpt-10")) == tmp_path / "model.ckpt-10"


def test_where_both_formats_lie_in_a_folder_hugging_faces_is_read(tmp_path):
    fill(tmp_path, *BERT, "config.json")
    assert find_model(str(tmp_path)) == tmp_path / "bert_model.ckpt"
    fill(tmp_path, "model.safetensors")
    assert find_model(str(tmp_path)) == tmp_path


# Other files.


def test_a_file_is_not_a_model(tmp_path):
    assert "is a file; name the model's folder" in refusal(
        InputError, fill(tmp_path, "model.safetensors") / "model.safetensors"
    )


@pytest.mark.parametrize("name", ["bert_model.ckpt", "a/b.zip", "x.index", "a/model.ckpt-1000"])
def test_a_file_that_is_not_there_is_never_looked_for_on_the_hub(name):
    assert "no such file or checkpoint" in refusal(InputError, name)


# Names.


@pytest.mark.parametrize(
    "name", ["./no", "/no/where", "~/no-such", "no/", "a/b/c", "no such", "é", "", "@main"]
)
def test_a_path_that_is_not_there_is_no_such_folder(name):
    assert "no such folder" in refusal(InputError, name)


@pytest.mark.parametrize("name", ["x" * 5000, "~nobody-of-this-name/model"])
def test_a_name_that_cannot_be_a_path_is_refused(name):
    assert "cannot be opened" in refusal(InputError, name)


def test_a_revision_stands_behind_the_name(monkeypatch, tmp_path):
    asked = []

    def fetch(name: str, *, revision: str | None, **options: Any) -> Path:
        asked.append((name, revision))
        return fill(tmp_path, "config.json")

    monkeypatch.setattr("filbert.checkpoints.hub.fetch", fetch)
    find_model("owner/name@refs/pr/1")
    find_model("owner/name")
    assert asked == [("owner/name", "refs/pr/1"), ("owner/name", None)]


@pytest.mark.parametrize("revision", ["", "../../etc", "/etc", "a b", "-x", "a" * 300, "a@b"])
def test_a_revision_that_could_be_a_path_elsewhere_is_refused(revision):
    assert "is no revision" in refusal(ConfigError, f"owner/name@{revision}")


def test_a_built_in_model_has_no_revisions():
    assert "has no revisions" in refusal(ConfigError, "filbert-mini@v1")


@pytest.mark.parametrize("name", ["minilm", "all-MiniLM-L6-v2"])
def test_minilm_is_part_of_the_package(name):
    folder = Path(filbert.__file__).parent / "samples" / "minilm"
    assert find_model(name) == folder
