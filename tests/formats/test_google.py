"""Google's checkpoints are read into the checkpoint they are, and written back byte for byte."""

from __future__ import annotations

import importlib.util
import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from filbert.formats import google, huggingface
from filbert.formats.checkpoint import Checkpoint, with_new_head
from filbert.formats.google_vocabulary import read_google_tokenizer
from filbert.formats.tensor_bundle import TensorBundle
from filbert.text.tokenizer import Tokenizer

_spec = importlib.util.spec_from_file_location(
    "google_samples", Path(__file__).with_name("google_samples.py")
)
samples = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(samples)
drawn, save, with_slots = samples.drawn, samples.save, samples.with_slots


SHAPES = {
    "bert pretraining": ("bert", samples.BERT),
    "bert encoder": ("bert", samples.BERT_ENCODER),
    "bert masked_lm": ("bert", {k: v for k, v in samples.BERT.items() if k not in samples.PAIR}),
    "bert sequence": ("bert", {**samples.BERT_ENCODER, **samples.CLASSIFIER}),
    "albert pretraining": ("albert", samples.ALBERT),
    "albert sequence": ("albert", {**samples.albert_encoder(), **samples.CLASSIFIER}),
    "electra discriminator": ("electra", samples.ELECTRA),
}
every_shape = pytest.mark.parametrize("name", list(SHAPES))


def saved(name: str, folder: Path, vocab: Path) -> tuple[Path, dict[str, np.ndarray]]:
    family, shapes = SHAPES[name]
    variables = drawn(shapes)
    return save(folder, variables, vocab, samples.CONFIGS[family]), variables


def files(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


@every_shape
def test_every_variable_of_googles_code_has_its_place(
    name: str, tmp_path: Path, vocab: Path
) -> None:
    prefix, variables = saved(name, tmp_path, vocab)
    checkpoint = google.read(prefix)
    family, _, kind = name.partition(" ")
    assert (checkpoint.family, checkpoint.head or "encoder") == (family, kind)
    assert checkpoint.source == tmp_path
    assert sum(t.numel() for t in checkpoint.tensors.values()) == sum(
        v.size for v in variables.values()
    )
    assert not any("left out" in note for note in checkpoint.notes)
    checkpoint.build()


def test_kernels_are_transposed_and_hand_written_heads_are_not(tmp_path: Path, vocab: Path) -> None:
    prefix, variables = saved("bert pretraining", tmp_path, vocab)
    tensors = {name: tensor.numpy() for name, tensor in google.read(prefix).tensors.items()}
    self = "bert/encoder/layer_1/attention/self"
    qkv = np.concatenate([variables[f"{self}/{n}/kernel"].T for n in ("query", "key", "value")])
    assert np.array_equal(tensors["encoder.layers.1.qkv.weight"], qkv)
    assert np.array_equal(
        tensors["encoder.layers.2.up.weight"],
        variables["bert/encoder/layer_2/intermediate/dense/kernel"].T,
    )
    assert np.array_equal(
        tensors["head.pair.out.weight"], variables["cls/seq_relationship/output_weights"]
    )
    assert np.array_equal(
        tensors["encoder.embeddings.norm.weight"], variables["bert/embeddings/LayerNorm/gamma"]
    )


@every_shape
def test_from_google_to_hugging_face_and_back_is_the_same_bytes(
    name: str, tmp_path: Path, vocab: Path
) -> None:
    prefix, _ = saved(name, tmp_path / "original", vocab)
    if name.startswith("electra"):  # no configuration was there, so there is none to compare
        google.write(google.read(prefix), Tokenizer.load(vocab), tmp_path / "first")
        prefix = tmp_path / "first" / google.PREFIX
    huggingface.write(google.read(prefix), tmp_path / "hf")
    read_google_tokenizer(prefix.parent).save(tmp_path / "hf")
    google.write(
        huggingface.read(tmp_path / "hf"), Tokenizer.load(tmp_path / "hf"), tmp_path / "back"
    )
    assert files(tmp_path / "back") == files(prefix.parent)


@every_shape
def test_from_hugging_face_to_google_and_back_is_the_same_model(
    name: str, tmp_path: Path, vocab: Path
) -> None:
    prefix, _ = saved(name, tmp_path / "original", vocab)
    huggingface.write(google.read(prefix), tmp_path / "hf")
    first = huggingface.read(tmp_path / "hf")
    google.write(first, Tokenizer.load(vocab), tmp_path / "google")
    second = google.read(tmp_path / "google" / google.PREFIX)
    assert (second.config, second.head, second.labels) == (first.config, first.head, first.labels)
    assert second.tensors.keys() == first.tensors.keys()
    assert all(torch.equal(second.tensors[n], t) for n, t in first.tensors.items())


def test_write_returns_the_hashes_of_its_files(tmp_path: Path, vocab: Path) -> None:
    prefix, _ = saved("bert encoder", tmp_path / "a", vocab)
    digests = google.write(google.read(prefix), Tokenizer.load(vocab), tmp_path / "b")
    assert sorted(digests) == [
        "bert_config.json",
        "bert_model.ckpt.data-00000-of-00001",
        "bert_model.ckpt.index",
        "vocab.txt",
    ]


def test_a_training_runs_slots_and_counters_are_left_out_with_their_number(
    tmp_path: Path, vocab: Path
) -> None:
    plain = google.read(save(tmp_path / "a", drawn(samples.BERT), vocab))
    run = google.read(save(tmp_path / "b", with_slots(drawn(samples.BERT)), vocab))
    assert all(torch.equal(run.tensors[name], value) for name, value in plain.tensors.items())
    note = next(note for note in run.notes if "left out" in note)
    assert f"{len(samples.BERT)} x optimizer slot adam_m" in note
    assert f"{len(samples.BERT)} x optimizer slot adam_v" in note
    assert "1 x counter (global_step)" in note


@pytest.mark.parametrize("outer", ["module/", "a/b/", "student_"])
def test_a_prefix_before_all_names_is_seen_and_said(
    outer: str, tmp_path: Path, vocab: Path
) -> None:
    plain = google.read(save(tmp_path / "a", drawn(samples.BERT_ENCODER), vocab))
    variables = {
        outer + name: value for name, value in with_slots(drawn(samples.BERT_ENCODER)).items()
    }
    found = google.read(save(tmp_path / "b", variables, vocab))
    assert all(torch.equal(found.tensors[name], value) for name, value in plain.tensors.items())
    assert any(f"'{outer}" in note for note in found.notes)


def test_heads_keep_their_prefix_too(tmp_path: Path, vocab: Path) -> None:
    variables = {f"module/{name}": value for name, value in drawn(samples.BERT).items()}
    assert google.read(save(tmp_path, variables, vocab)).head == "pretraining"


def test_a_pooler_may_be_missing(tmp_path: Path, vocab: Path) -> None:
    shapes = {name: shape for name, shape in samples.BERT.items() if name not in samples.POOLER}
    checkpoint = google.read(save(tmp_path, drawn(shapes), vocab))
    assert (checkpoint.head, checkpoint.config.pooler) == ("masked_lm", None)
    assert any("head over a pooler that is not there" in note for note in checkpoint.notes)


def test_a_span_head_leaves_the_pooler_out_and_says_so(tmp_path: Path, vocab: Path) -> None:
    checkpoint = google.read(
        save(tmp_path, drawn({**samples.BERT_ENCODER, **samples.SQUAD}), vocab)
    )
    assert (checkpoint.head, checkpoint.config.pooler) == ("spans", None)
    assert any("2 x pooler, which this head does not read" in note for note in checkpoint.notes)


def test_a_fine_tuned_head_goes_before_those_of_pretraining(tmp_path: Path, vocab: Path) -> None:
    checkpoint = google.read(save(tmp_path, drawn({**samples.BERT, **samples.CLASSIFIER}), vocab))
    assert (checkpoint.head, checkpoint.labels) == ("sequence", ("LABEL_0", "LABEL_1", "LABEL_2"))
    assert any("7 x head" in note for note in checkpoint.notes)


@pytest.mark.parametrize(
    ("head", "reason"),
    [
        ({"output_weights": (3, 31), "output_bias": (3,)}, "head of another shape (output_"),
        ({"output_weights": (3, 32)}, "incomplete head (output_weights)"),
        ({"start_logits/dense/kernel": (32, 1)}, "outside the encoder (start_logits/dense/kernel)"),
        ({"cls/squad/output_weights": (1, 32), "cls/squad/output_bias": (1,)}, "another shape"),
    ],
)
def test_a_head_that_is_none_of_ours_is_left_out_by_name(
    head: dict[str, tuple[int, ...]], reason: str, tmp_path: Path, vocab: Path
) -> None:
    checkpoint = google.read(save(tmp_path, drawn({**samples.BERT_ENCODER, **head}), vocab))
    assert checkpoint.head is None
    assert any(reason in note for note in checkpoint.notes)


def test_labels_survive_in_a_key_that_googles_code_does_not_read(
    tmp_path: Path, vocab: Path
) -> None:
    prefix, _ = saved("bert sequence", tmp_path / "a", vocab)
    labels = ("no", "yes", "né")
    checkpoint = replace(
        google.read(prefix), labels=labels, problem_type="multi_label_classification"
    )
    google.write(checkpoint, Tokenizer.load(vocab), tmp_path / "b")
    back = google.read(tmp_path / "b" / google.PREFIX)
    assert (back.labels, back.problem_type) == (labels, "multi_label_classification")


# samples.ALBERT and samples.ELECTRA.


def test_albert_groups_are_read_each_in_its_place(tmp_path: Path, vocab: Path) -> None:
    config = {**samples.ALBERT_CONFIG, "num_hidden_layers": 4, "num_hidden_groups": 2}
    variables = drawn(samples.albert_encoder(groups=2))
    checkpoint = google.read(save(tmp_path, variables, vocab, ("albert_config.json", config)))
    assert checkpoint.config.num_groups == 2
    name = "bert/encoder/transformer/group_1/inner_group_0/LayerNorm_1/gamma"
    assert np.array_equal(
        checkpoint.tensors["encoder.layers.1.norm.weight"].numpy(), variables[name]
    )


def test_albert_as_wide_as_its_tables_has_no_projection_in_google(
    tmp_path: Path, vocab: Path
) -> None:
    shapes = {
        name: tuple(32 if n == 16 else n for n in shape)
        for name, shape in samples.albert_encoder().items()
        if "mapping_in" not in name
    }
    config = ("albert_config.json", {**samples.ALBERT_CONFIG, "embedding_size": 32})
    prefix = save(tmp_path / "a", drawn(shapes), vocab, config)
    checkpoint = google.read(prefix)
    assert torch.equal(checkpoint.tensors["encoder.embeddings.project.weight"], torch.eye(32))
    huggingface.write(checkpoint, tmp_path / "hf")
    google.write(huggingface.read(tmp_path / "hf"), Tokenizer.load(vocab), tmp_path / "b")
    assert files(tmp_path / "b") == files(tmp_path / "a")


def test_electra_without_configuration_has_the_sizes_of_its_tensors(
    tmp_path: Path, vocab: Path
) -> None:
    prefix = save(
        tmp_path,
        drawn({**samples.ELECTRA, **samples.GENERATOR}),
        vocab,
        samples.CONFIGS["electra"],
    )
    checkpoint = google.read(prefix)
    config = checkpoint.config
    assert (config.hidden_size, config.num_attention_heads, config.table_size) == (128, 2, 16)
    assert (config.num_hidden_layers, config.intermediate_size) == (3, 256)
    assert (config.max_position_embeddings, config.vocab_size) == (24, samples.VOCAB)
    assert any("no configuration: 3 layers" in note and "64" in note for note in checkpoint.notes)
    count = len(samples.GENERATOR)
    assert any(f"{count} x of the generator (--part generator)" in n for n in checkpoint.notes)


def test_both_of_electras_models_are_in_one_checkpoint(tmp_path: Path, vocab: Path) -> None:
    variables = drawn({**samples.ELECTRA, **samples.GENERATOR})
    prefix = save(tmp_path, variables, vocab, samples.CONFIGS["electra"], prefix="electra_small")
    generator = google.read(prefix, part="generator")
    assert generator.head == "masked_lm"
    assert (generator.config.hidden_size, generator.config.num_attention_heads) == (64, 1)
    assert np.array_equal(
        generator.tensors["encoder.embeddings.word.weight"].numpy(),
        variables["electra/embeddings/word_embeddings"],
    )
    google.write(generator, Tokenizer.load(vocab), tmp_path / "alone")
    alone = google.read(tmp_path / "alone" / google.PREFIX)
    assert alone.config == generator.config
    assert all(torch.equal(alone.tensors[name], t) for name, t in generator.tensors.items())


def test_a_generator_may_have_tables_of_its_own(tmp_path: Path, vocab: Path) -> None:
    own = {
        name.replace("electra/", "generator/"): shape
        for name, shape in samples.ELECTRA.items()
        if "electra/embeddings/" in name
    }
    variables = drawn({**samples.ELECTRA, **samples.GENERATOR, **own})
    prefix = save(tmp_path, variables, vocab, samples.CONFIGS["electra"])
    for part, root in (("generator", "generator"), ("discriminator", "electra")):
        found = google.read(prefix, part=part).tensors["encoder.embeddings.word.weight"]
        assert np.array_equal(found.numpy(), variables[f"{root}/embeddings/word_embeddings"])


@pytest.mark.parametrize(("part", "heads"), [("discriminator", 4), ("generator", 1)])
def test_of_two_models_the_configuration_is_that_of_the_one_as_wide(
    part: str, heads: int, tmp_path: Path, vocab: Path
) -> None:
    sizes = {"hidden_size": 128, "intermediate_size": 256, "num_attention_heads": 4}
    config = ("bert_config.json", {**samples.BERT_CONFIG, **sizes})
    variables = drawn({**samples.ELECTRA, **samples.GENERATOR})
    checkpoint = google.read(save(tmp_path, variables, vocab, config), part=part)
    assert checkpoint.config.num_attention_heads == heads
    is_refused = any("bert_config.json is not used" in note for note in checkpoint.notes)
    assert is_refused == (part == "generator")


# What is written.


def test_the_names_written_are_those_of_googles_code(tmp_path: Path, vocab: Path) -> None:
    prefix, variables = saved("albert pretraining", tmp_path / "a", vocab)
    google.write(google.read(prefix), Tokenizer.load(vocab), tmp_path / "b")
    bundle = TensorBundle.open(tmp_path / "b" / google.PREFIX)
    assert bundle.shapes == {name: value.shape for name, value in variables.items()}


def test_half_precision_is_written_as_float32_without_loss(tmp_path: Path, vocab: Path) -> None:
    prefix, _ = saved("bert encoder", tmp_path / "a", vocab)
    checkpoint = google.read(prefix)
    half = {name: tensor.to(torch.bfloat16) for name, tensor in checkpoint.tensors.items()}
    google.write(replace(checkpoint, tensors=half), Tokenizer.load(vocab), tmp_path / "b")
    back = google.read(tmp_path / "b" / google.PREFIX)
    assert all(torch.equal(back.tensors[name], tensor.float()) for name, tensor in half.items())


def test_a_new_head_can_be_put_on_what_was_read(tmp_path: Path, vocab: Path) -> None:
    prefix, _ = saved("bert pretraining", tmp_path, vocab)
    made: Checkpoint = with_new_head(google.read(prefix), "sequence", 2)
    assert "encoder.pooler.weight" in made.tensors
    made.build()


def test_the_report_names_every_tensor_once(tmp_path: Path, vocab: Path) -> None:
    variables = with_slots(drawn(samples.BERT))
    report = google.tensor_report(save(tmp_path, variables, vocab))
    assert sorted(row["name"] for row in report) == sorted(variables)
    rows = {row["name"]: row for row in report}
    row = rows["bert/encoder/layer_0/attention/self/key/kernel"]
    assert row["becomes"] == "encoder.layers.0.qkv.weight, part 2 of 3"
    assert (row["shape"], row["dtype"]) == ([32, 32], "float32")
    assert row["file"] == "bert_model.ckpt.data-00000-of-00001"
    assert rows["global_step"]["becomes"] == "left out: counter"


def test_the_config_is_written_as_google_writes_it(tmp_path: Path, vocab: Path) -> None:
    prefix, _ = saved("bert encoder", tmp_path / "a", vocab)
    google.write(google.read(prefix), Tokenizer.load(vocab), tmp_path / "b")
    assert json.loads((tmp_path / "b" / "bert_config.json").read_text()) == samples.BERT_CONFIG
