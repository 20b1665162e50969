"""One door for all formats: a place is a Hugging Face folder or the prefix of a checkpoint."""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path

import pytest
import torch

from filbert.errors import ConfigError, FormatError
from filbert.formats import google, huggingface
from filbert.formats.find import find_model
from filbert.formats.opening import is_google, read_checkpoint, read_tokenizer
from filbert.predict import Predictor
from filbert.text.tokenizer import Tokenizer

_spec = importlib.util.spec_from_file_location(
    "google_samples", Path(__file__).with_name("google_samples.py")
)
samples = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(samples)


@pytest.fixture
def prefix(tmp_path: Path, vocab: Path) -> Path:
    return samples.save(tmp_path / "google", samples.drawn(samples.BERT), vocab)


def test_each_place_is_opened_by_its_own_format(prefix: Path, tiny_model: Path) -> None:
    assert is_google(prefix)
    assert read_checkpoint(prefix).head == "pretraining"
    assert not is_google(tiny_model)
    assert read_checkpoint(tiny_model).tensors.keys() == huggingface.read(tiny_model).tensors.keys()


@pytest.mark.parametrize("option", [{"hidden_act": "gelu"}, {"part": "generator"}])
def test_options_of_googles_checkpoints_are_refused_elsewhere(
    option: dict[str, str], tiny_model: Path
) -> None:
    with pytest.raises(ConfigError, match=f"no choice of {next(iter(option))}|choice of"):
        read_checkpoint(tiny_model, **option)


def test_a_google_tokenizer_knows_words_of_200_characters(prefix: Path) -> None:
    (prefix.parent / "vocab.txt").write_text("[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\na\n##a\n")
    tokenizer = read_tokenizer(prefix)
    known, unknown = (tokenizer.encode(["a" * length])[0].input_ids for length in (200, 201))
    assert len(known) == 202
    assert unknown.tolist() == [2, 1, 3]
    tokenizer.save(prefix.parent / "hf")  # and keeps its limit in the other layout
    again = Tokenizer.load(prefix.parent / "hf")
    assert len(again.encode(["a" * 200])[0].input_ids) == 202


@pytest.mark.parametrize(("entry", "lowercase"), [("Film", False), ("film", True)])
def test_case_is_told_by_the_vocabulary_and_not_by_the_folders_name(
    entry: str, lowercase: bool, tmp_path: Path, vocab: Path
) -> None:
    folder = tmp_path / ("uncased_L-2" if not lowercase else "cased_L-2")
    prefix = samples.save(folder, samples.drawn(samples.BERT), vocab)
    (folder / "vocab.txt").write_text(f"[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\n{entry}\n")
    assert read_tokenizer(prefix).lowercase == lowercase
    (folder / "tokenizer_config.json").write_text(json.dumps({"do_lower_case": not lowercase}))
    assert read_tokenizer(prefix).lowercase != lowercase


def test_a_sentencepiece_model_of_any_name_is_found(
    tmp_path: Path, vocab: Path, shared_data: Path
) -> None:
    prefix = samples.save(tmp_path, samples.drawn(samples.ALBERT), vocab, samples.CONFIGS["albert"])
    (tmp_path / "vocab.txt").unlink()
    with pytest.raises(FormatError, match="no vocabulary"):
        read_tokenizer(prefix)
    model = (shared_data / "tokenizers/albert-base-v2/spiece.model").read_bytes()
    (tmp_path / "30k-clean.model").write_bytes(model)
    tokenizer = read_tokenizer(prefix)
    assert (tokenizer.kind, tokenizer.vocab_size) == ("unigram", 30_000)
    assert tokenizer.encode(["Hello world"])[0].input_ids.tolist() == [2, 10975, 126, 3]
    (tmp_path / "other.model").write_bytes(model)
    with pytest.raises(FormatError, match="2 vocabularies"):
        read_tokenizer(prefix)


def test_albert_takes_its_sentencepiece_model_along_byte_for_byte(
    tmp_path: Path, shared_data: Path
) -> None:
    model = shared_data / "tokenizers/albert-base-v2/spiece.model"
    checkpoint = google.read(
        samples.save(
            tmp_path / "a",
            samples.drawn(samples.ALBERT),
            shared_data / "tokenizers/bert-base-uncased",
            samples.CONFIGS["albert"],
        )
    )
    google.write(checkpoint, Tokenizer.load(model), tmp_path / "b")
    assert (tmp_path / "b" / "spiece.model").read_bytes() == model.read_bytes()


def test_a_google_checkpoint_can_be_used_like_any_model(prefix: Path) -> None:
    for name in (prefix, prefix.parent, f"{prefix}.index"):
        assert find_model(str(name)) == prefix
    predictor = Predictor.load(prefix.parent)
    assert len(predictor.fill("the film was [MASK]", top=2)["candidates"][0]) == 2
    vectors = predictor.embed(["the film was good"])
    assert torch.from_numpy(vectors).isfinite().all()
