"""The folder that a BiGRU's training begins with, read and written like any other model's."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file

import filbert
from filbert.cli.main import run
from filbert.errors import ConfigError, FormatError
from filbert.formats import huggingface
from filbert.formats.bigru_start import write_bigru_start
from filbert.formats.checkpoint import as_causal, with_layers, with_new_head
from filbert.formats.opening import find_model, read_checkpoint, read_tokenizer
from filbert.text.word_vectors import WordVectors
from filbert.text.words import new_words

WORDS = ["the", "sun", "sea", "stone", "moon"]
VECTORS = WordVectors(
    ["sea", "sun", "else"], np.arange(12, dtype=np.float32).reshape(3, 4), "v.txt"
)
SIZES = {"dim": 4, "hidden": 3}


def start(folder: Path, vectors: WordVectors | None = VECTORS, **options) -> dict:
    return write_bigru_start(folder, new_words(WORDS), vectors, **(SIZES | options))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    start(tmp_path / "start", layers=2)
    return tmp_path / "start"


def test_what_is_written_is_read_again(tmp_path):
    facts = start(tmp_path / "start", pooling="max", dropout=0.3)
    place = find_model(str(tmp_path / "start"))
    checkpoint, tokenizer = read_checkpoint(place), read_tokenizer(place)
    config = checkpoint.config
    assert (config.recurrent, config.pooled, config.hidden_size) == (True, "max", 6)
    assert (config.hidden_dropout, config.head_dropout) == (0.3, 0.15)
    assert tokenizer.kind == "words" and tokenizer.max_length == 256
    assert tokenizer.check_fits(config.vocab_size, config.type_vocab_size, place) == ()
    parameters = sum(tensor.numel() for tensor in checkpoint.tensors.values())
    assert facts == {
        "words": 5, "with_vectors": 2, "vectors": "v.txt", "dim": 4, "parameters": parameters,
    }  # fmt: skip
    assert checkpoint.filbert is not None and checkpoint.filbert["word_vectors"] == facts


def test_the_table_holds_the_vectors(folder):
    tokenizer = read_tokenizer(folder)
    table = read_checkpoint(folder).tensors["encoder.embeddings.word.weight"]
    assert table[tokenizer.id_of("sea")].tolist() == [0, 1, 2, 3]
    assert table[tokenizer.id_of("sun")].tolist() == [4, 5, 6, 7]


def test_the_same_seed_writes_the_same_bytes_and_leaves_the_global_draws_alone(tmp_path):
    torch.manual_seed(5)
    wanted = torch.rand(1)
    torch.manual_seed(5)
    for name, seed in (("a", 1), ("b", 1), ("c", 2)):
        start(tmp_path / name, seed=seed)
    assert torch.equal(torch.rand(1), wanted)
    a, b, c = ((tmp_path / name / "model.safetensors").read_bytes() for name in "abc")
    assert a == b != c


def test_info_tells_it_apart(folder, capsys):
    assert run(["info", str(folder), "--json"]) == 0
    facts = json.loads(capsys.readouterr().out)
    assert (facts["family"], facts["head"], facts["max_length"]) == ("bigru", None, 256)
    assert facts["tokenizer"]["kind"] == "words"


def test_vectors_of_texts_come_from_words_and_from_layers(folder):
    model = filbert.load(folder, device="cpu")
    words = model.embed(["sun sea"], layers=[0])
    np.testing.assert_allclose(words, [[2, 3, 4, 5]])
    assert model.embed(["sun sea", ""], layers=[0, -1], pooling="max").shape == (2, 4 + 6)
    assert model.embed([], layers=[0, -1]).shape == (0, 10)


def test_a_head_reads_both_halves_of_the_pooled_vector(folder):
    checkpoint = with_new_head(read_checkpoint(folder), "sequence", labels=["a", "b"])
    assert checkpoint.tensors["head.out.weight"].shape == (2, 12)
    assert with_new_head(checkpoint, "tokens", 3).tensors["head.out.weight"].shape == (3, 6)


def test_another_pooling_than_the_head_was_made_for_is_named(folder, tmp_path):
    checkpoint = with_new_head(read_checkpoint(folder), "sequence", labels=["a", "b"])
    huggingface.write(checkpoint, tmp_path / "head")
    path = tmp_path / "head" / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"pooling": "mean"}))
    with pytest.raises(
        FormatError, match=r"config\.json says pooling mean, but classifier\.weight"
    ):
        huggingface.read(tmp_path / "head")


def test_bf16_leaves_the_recurrence_as_it_is(folder):
    exact, rounded = (
        filbert.load(folder, device="cpu", precision=name) for name in ("float32", "bf16")
    )
    texts = ["the sun", "the sea and the stone moon"]
    assert np.array_equal(rounded.embed(texts), exact.embed(texts))


@pytest.mark.parametrize(
    ("command", "message"),
    [
        (["convert", "{}", "{}-google", "--to", "google"], "no names for the tensors of a bigru"),
        (["fill", "{}", "The [MASK] sea."], "has no mask token"),
    ],
)
def test_what_it_cannot_do_is_said_in_a_sentence(folder, capsys, command, message):
    assert run([part.format(folder) for part in command]) == 2
    told = capsys.readouterr().err
    assert message in told.replace("\n", " ") and "Traceback" not in told


def test_a_copy_in_the_same_layout_is_the_same(folder, tmp_path, capsys):
    assert run(["convert", str(folder), str(tmp_path / "copy"), "--to", "huggingface"]) == 0
    first, second = (load_file(f / "model.safetensors") for f in (folder, tmp_path / "copy"))
    assert first.keys() == second.keys()
    assert all(torch.equal(first[name], second[name]) for name in first)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"hidden_size": 8}, "weight_.h_l0.* has shape .*; config.json asks for"),
        ({"embedding_size": 5}, "config.json says embedding_size 5, but word_embeddings"),
        ({"vocab_size": 9}, "config.json says vocab_size 9, but word_embeddings"),
        ({"num_hidden_layers": 1}, "says num_hidden_layers 1, but model.safetensors holds 2"),
        ({"pooling": "cls"}, r"pooling is 'cls', not one of mean\+max, mean, max"),
        ({"hidden_size": 7}, "hidden_size is 7; two directions share it evenly"),
        ({"model_type": "filbert_causal_bigru"}, "read every text from both ends"),
    ],
)
def test_a_config_that_does_not_fit_is_refused(folder, change, message):
    path = folder / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | change))
    (folder / "filbert.json").unlink()
    with pytest.raises(FormatError, match=message):
        read_checkpoint(folder)


def test_a_missing_tensor_is_refused(folder):
    tensors = load_file(folder / "model.safetensors")
    del tensors["layers.1.gru.bias_hh_l0_reverse"]
    save_file(tensors, folder / "model.safetensors")
    (folder / "filbert.json").unlink()
    with pytest.raises(FormatError, match="1 missing .*bias_hh_l0_reverse"):
        read_checkpoint(folder)


def test_it_is_not_made_causal_and_keeps_its_first_layer(folder):
    checkpoint = read_checkpoint(folder)
    with pytest.raises(ConfigError, match="cannot be made causal"):
        as_causal(checkpoint)
    with pytest.raises(ConfigError, match="Keep the first ones"):
        with_layers(checkpoint, [1])
    with_layers(checkpoint, [0]).check()


def test_dropout_is_set_where_there_is_a_place_for_it(folder, tmp_path):
    checkpoint = read_checkpoint(folder)
    changed = replace(checkpoint, config=checkpoint.config.with_dropout(0.4))
    huggingface.write(changed, tmp_path / "new")
    config = huggingface.read(tmp_path / "new").config
    assert (config.hidden_dropout, config.head_dropout, config.attention_dropout) == (0.4, 0.4, 0)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"hidden": 0}, "hidden is 0"),
        ({"pooling": "cls"}, "pooled 'cls' is not one of"),
        ({"dropout": 1.0}, "hidden_dropout is 1.0"),
        ({"dim": 8}, "v.txt has 4 numbers a word, and dim is 8"),
    ],
)
def test_options_that_cannot_be_are_refused_before_anything_is_written(tmp_path, options, message):
    with pytest.raises(ConfigError, match=message):
        start(tmp_path / "start", **options)
    assert not (tmp_path / "start").exists()


def test_a_head_it_cannot_have_is_refused(folder):
    with pytest.raises(ConfigError, match="no 'spans' head; it can have sequence, tokens"):
        with_new_head(read_checkpoint(folder), "spans")
