"""What does not fit is refused with a sentence that names it, before any tensor is read."""

from __future__ import annotations

import importlib.util
import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from filbert.errors import ConfigError, FilbertError, FormatError
from filbert.formats import google
from filbert.formats.checkpoint import Checkpoint, with_new_head
from filbert.formats.fresh import fresh_checkpoint
from filbert.text.tokenizer import Tokenizer

_spec = importlib.util.spec_from_file_location(
    "google_samples", Path(__file__).with_name("google_samples.py")
)
samples = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(samples)
drawn, save = samples.drawn, samples.save


QUERY = "bert/encoder/layer_1/attention/self/query/kernel"


def refusal(prefix: Path, kind: type[FilbertError] = FormatError, **options: Any) -> str:
    with pytest.raises(kind) as caught:
        google.read(prefix, **options)
    text = str(caught.value)
    assert "\n" not in text
    assert len(text) < 700
    return text


@pytest.fixture
def changed(tmp_path: Path, vocab: Path) -> Callable[..., Path]:
    def make(change: Callable[[dict[str, np.ndarray]], object], **config: Any) -> Path:
        variables = drawn(samples.BERT)
        change(variables)
        raw = {k: v for k, v in {**samples.BERT_CONFIG, **config}.items() if v is not ...}
        return save(tmp_path, variables, vocab, ("bert_config.json", raw))

    return make


def test_a_missing_tensor_is_named(changed: Callable[..., Path]) -> None:
    text = refusal(changed(lambda v: v.pop(QUERY)))
    assert f"1 missing ({QUERY})" in text
    assert "bert_config.json describes" in text


def test_an_unexpected_tensor_of_the_encoder_is_named(changed: Callable[..., Path]) -> None:
    name = "bert/encoder/layer_0/adapter/dense/kernel"
    text = refusal(changed(lambda v: v.update({name: np.zeros((2, 2), np.float32)})))
    assert f"1 unexpected ({name})" in text


def test_a_tensor_of_another_shape_is_named_with_both_shapes(changed: Callable[..., Path]) -> None:
    text = refusal(changed(lambda v: v.update({QUERY: np.zeros((32, 31), np.float32)})))
    assert QUERY in text
    assert "(32, 31)" in text
    assert "asks for (32, 32)" in text


@pytest.mark.parametrize("said", [2, 5])
def test_another_number_of_layers_is_said_as_such(said: int, changed: Callable[..., Path]) -> None:
    text = refusal(changed(lambda v: None, num_hidden_layers=said))
    assert f"says num_hidden_layers {said}" in text
    assert "holds 3, the last with bert/encoder/layer_2/" in text


def test_a_vocabulary_of_another_size_is_said_with_the_tables_name(
    changed: Callable[..., Path],
) -> None:
    text = refusal(changed(lambda v: None, vocab_size=35))
    assert "bert/embeddings/word_embeddings has shape (34, 32)" in text
    assert "asks for (35, 32)" in text


def test_whole_numbers_are_no_weights(changed: Callable[..., Path]) -> None:
    text = refusal(changed(lambda v: v.update({QUERY: np.zeros((32, 32), np.int32)})))
    assert QUERY in text
    assert "dtype int32" in text


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_values_that_are_not_finite_are_refused_by_name(
    value: float, changed: Callable[..., Path]
) -> None:
    def spoil(variables: dict[str, np.ndarray]) -> None:
        variables["bert/pooler/dense/kernel"][3, 4] = value

    text = refusal(changed(spoil))
    assert "bert/pooler/dense/kernel" in text
    assert "not finite" in text


@pytest.mark.parametrize(
    ("key", "value", "words"),
    [
        ("hidden_size", ..., "no hidden_size"),
        ("hidden_size", "wide", "hidden_size is 'wide'"),
        ("num_attention_heads", 5, "not a multiple of num_attention_heads 5"),
        ("num_hidden_layers", 10**9, "num_hidden_layers"),
        ("vocab_size", -3, "vocab_size"),
        ("hidden_act", "swish", "'swish'"),
        ("hidden_act", 3, "hidden_act is 3"),
        ("gelu_form", "cubic", "gelu_form is 'cubic'"),
        ("net_structure_type", 1, "net_structure_type is 1"),
    ],
)
def test_a_wrong_configuration_is_refused_by_its_key(
    key: str, value: Any, words: str, changed: Callable[..., Path]
) -> None:
    text = refusal(changed(lambda v: None, **{key: value}))
    assert words in text
    assert "bert_config.json" in text


def test_bert_without_configuration_is_refused(tmp_path: Path, vocab: Path) -> None:
    text = refusal(save(tmp_path, drawn(samples.BERT), vocab, (None, {})))
    assert "no bert_config.json" in text
    assert "attention heads" in text


def test_electra_of_an_odd_width_needs_a_configuration(tmp_path: Path, vocab: Path) -> None:
    shapes = {
        name: tuple(100 if size == 128 else size for size in shape)
        for name, shape in samples.ELECTRA.items()
    }
    text = refusal(save(tmp_path, drawn(shapes), vocab, (None, {})))
    assert "hidden_size 100 is no multiple of 64" in text


def test_a_checkpoint_of_something_else_is_refused_with_some_of_its_names(
    tmp_path: Path, vocab: Path
) -> None:
    text = refusal(save(tmp_path, drawn({"resnet/conv/kernel": (3, 3)}), vocab))
    assert "no BERT, ALBERT or ELECTRA" in text
    assert "resnet/conv/kernel" in text


def test_two_encoders_cannot_be_told_apart(tmp_path: Path, vocab: Path) -> None:
    student = {f"student/{name}": shape for name, shape in samples.BERT_ENCODER.items()}
    text = refusal(save(tmp_path, drawn({**samples.BERT_ENCODER, **student}), vocab))
    assert "2 encoders (bert, student/bert)" in text


def test_groups_that_do_not_divide_the_layers_are_refused(tmp_path: Path, vocab: Path) -> None:
    config = {**samples.ALBERT_CONFIG, "num_hidden_layers": 18, "num_hidden_groups": 14}
    prefix = save(
        tmp_path, drawn(samples.albert_encoder(14)), vocab, ("albert_config.json", config)
    )
    assert "18 layers in 14 groups" in refusal(prefix)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"part": "generator"}, "only those have a generator"),
        ({"part": "teacher"}, "'teacher' is not one of discriminator, generator"),
        ({"hidden_act": "swish"}, "'swish' is not one of gelu, gelu_tanh"),
    ],
)
def test_options_that_do_not_fit_are_refused(
    options: dict[str, str], words: str, changed: Callable[..., Path]
) -> None:
    assert words in refusal(changed(lambda v: None), ConfigError, **options)


def test_a_generator_that_is_not_there_is_refused(tmp_path: Path, vocab: Path) -> None:
    prefix = save(tmp_path, drawn(samples.ELECTRA), vocab, samples.CONFIGS["electra"])
    assert "holds no generator" in refusal(prefix, part="generator")


# Writing.


def write_refusal(checkpoint: Checkpoint, vocab: Path, folder: Path) -> str:
    with pytest.raises(ConfigError) as caught:
        google.write(checkpoint, Tokenizer.load(vocab), folder)
    assert not folder.exists() or not list(folder.iterdir())
    return str(caught.value)


SIZES = {"vocab_size": 34, "hidden_size": 32, "num_attention_heads": 4, "num_hidden_layers": 1}


@pytest.mark.parametrize("family", ["roberta", "distilbert"])
def test_families_without_a_google_format_are_refused(
    family: str, tmp_path: Path, vocab: Path
) -> None:
    text = write_refusal(
        fresh_checkpoint(family, head="masked_lm", **SIZES), vocab, tmp_path / "out"
    )
    assert "bert, albert, electra" in text
    assert f"a {family}" in text


@pytest.mark.parametrize(
    ("family", "head"),
    [
        ("bert", "tokens"),
        ("bert", "choices"),
        ("albert", "choices"),
        ("electra", "sequence"),
        ("electra", "spans"),
    ],
)
def test_heads_without_a_google_format_are_refused(
    family: str, head: str, tmp_path: Path, vocab: Path
) -> None:
    torch.manual_seed(0)
    made = fresh_checkpoint(family, head="masked_lm", embedding_size=32, **SIZES)
    count = 3 if head in ("tokens", "sequence") else None
    text = write_refusal(with_new_head(made, head, count), vocab, tmp_path / "out")
    assert f"{family} has no {head!r} head" in text
    assert "--encoder-only" in text


def test_numbers_that_the_configuration_cannot_say_are_refused(tmp_path: Path, vocab: Path) -> None:
    made = fresh_checkpoint("bert", head="masked_lm", **SIZES)
    changed = replace(made, config=replace(made.config, layer_norm_eps=1e-5))
    text = write_refusal(changed, vocab, tmp_path / "out")
    assert "no way to say layer_norm_eps 1e-05" in text
    assert "1e-12" in text


def test_a_projection_that_does_something_is_refused(tmp_path: Path, vocab: Path) -> None:
    made = fresh_checkpoint("albert", head="masked_lm", embedding_size=32, **SIZES)
    assert "no projection" in write_refusal(made, vocab, tmp_path / "out")


def test_float64_that_would_be_rounded_is_refused(tmp_path: Path, vocab: Path) -> None:
    made = fresh_checkpoint("bert", head="masked_lm", **SIZES)
    tensors = {name: tensor.double() + 1e-12 for name, tensor in made.tensors.items()}
    text = write_refusal(replace(made, tensors=tensors), vocab, tmp_path / "out")
    assert "float64" in text


def test_a_damaged_configuration_is_refused(tmp_path: Path, vocab: Path) -> None:
    prefix = save(tmp_path, drawn({**samples.BERT_ENCODER, **samples.CLASSIFIER}), vocab)
    (tmp_path / "bert_config.json").write_text(json.dumps(samples.BERT_CONFIG)[:-9])
    assert "not valid JSON" in refusal(prefix)
