"""Google's checkpoints: which are read, what is left out, and what is refused.

The checkpoints are tiny and come from filbert's own writer. tests/reference/test_google.py compares
reader and writer with transformers' models, with names that are written out there.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from filbert.checkpoints import google, huggingface
from filbert.checkpoints.checkpoint import Checkpoint, with_new_head
from filbert.checkpoints.fresh import fresh_checkpoint
from filbert.checkpoints.opening import find_model, read_tokenizer
from filbert.checkpoints.tensor_bundle import TensorBundle, write_bundle
from filbert.errors import ConfigError, FormatError
from filbert.inference.predictor import Predictor
from filbert.text.tokenizer import Tokenizer

VOCAB, WIDTH = 34, 64
SIZES: dict[str, Any] = {
    "vocab_size": VOCAB,
    "hidden_size": WIDTH,
    "num_hidden_layers": 2,
    "intermediate_size": 48,
    "max_position_embeddings": 24,
}
NARROW = {"albert": {"embedding_size": 16}, "electra": {"embedding_size": 16}}
KINDS = {
    "bert pretraining": ("bert", "pretraining"),
    "bert encoder": ("bert", None),
    "bert masked_lm": ("bert", "masked_lm"),
    "bert sequence": ("bert", "sequence"),
    "albert pretraining": ("albert", "pretraining"),
    "albert sequence": ("albert", "sequence"),
    "electra discriminator": ("electra", "discriminator"),
}
every_kind = pytest.mark.parametrize("name", list(KINDS))
Variables = dict[str, np.ndarray]


def model(family: str = "bert", head: str | None = "pretraining") -> Checkpoint:
    """A drawn model with a head of pre-training, or another one put in its place."""
    torch.manual_seed(3)
    first = {"bert": "pretraining", "albert": "pretraining"}.get(family, "discriminator")
    made = fresh_checkpoint(family, head=first, **SIZES, **NARROW.get(family, {}))
    if head == first:
        return made
    labels = ("LABEL_0", "LABEL_1", "LABEL_2") if head == "sequence" else None
    return with_new_head(made, head, labels=labels)


@pytest.fixture
def written(vocab: Path, tmp_path: Path) -> Callable[..., Path]:
    """Writes a checkpoint as Google's code would have; `change` sees its variables before."""

    def write(
        checkpoint: Checkpoint | None = None,
        change: Callable[[Variables], object] = lambda variables: None,
        folder: str = "google",
        **config: Any,
    ) -> Path:
        google.write(checkpoint or model(), Tokenizer.load(vocab), tmp_path / folder)
        prefix = tmp_path / folder / google.PREFIX
        bundle = TensorBundle.open(prefix)
        variables = {name: bundle.read(name).copy() for name in bundle.entries}
        change(variables)
        write_bundle(prefix, variables)
        (path,) = (tmp_path / folder).glob("*_config.json")
        raw = {k: v for k, v in {**json.loads(path.read_text()), **config}.items() if v is not ...}
        path.write_text(json.dumps(raw, indent=2, sort_keys=True) + "\n")
        return prefix

    return write


def with_slots(variables: Variables) -> None:
    """Add Adam's slots and the counter of a training run."""
    for name in list(variables):
        for slot in ("adam_m", "adam_v"):
            variables[f"{name}/{slot}"] = np.zeros_like(variables[name])
    variables["global_step"] = np.array(1000, np.int64)


def files(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


@every_kind
def test_from_google_to_hugging_face_and_back_is_the_same_bytes(name, written, tmp_path):
    prefix = written(model(*KINDS[name]))
    checkpoint = google.read(prefix)
    assert (checkpoint.family, checkpoint.head) == KINDS[name]
    assert checkpoint.source == prefix.parent
    assert not any("left out" in note for note in checkpoint.notes)
    huggingface.write(checkpoint, tmp_path / "hf")
    google.read_google_tokenizer(prefix.parent).save(tmp_path / "hf")
    google.write(
        huggingface.read(tmp_path / "hf"), Tokenizer.load(tmp_path / "hf"), tmp_path / "back"
    )
    assert files(tmp_path / "back") == files(prefix.parent)


def test_a_training_runs_slots_and_counters_are_left_out_with_their_number(written):
    plain = google.read(written())
    run = google.read(written(change=with_slots))
    assert all(torch.equal(run.tensors[name], value) for name, value in plain.tensors.items())
    note = next(note for note in run.notes if "left out" in note)
    assert "x optimizer slot adam_m" in note and "x optimizer slot adam_v" in note
    assert "1 x counter (global_step)" in note


def test_a_span_head_leaves_the_pooler_out_and_says_so(written):
    def add(variables: Variables) -> None:
        variables["bert/pooler/dense/kernel"] = np.zeros((WIDTH, WIDTH), np.float32)

    checkpoint = google.read(written(model(head="spans"), add))
    assert (checkpoint.head, checkpoint.config.pooling.activation) == ("spans", None)
    assert any("1 x pooler, which this head does not read" in note for note in checkpoint.notes)


def floats(*shape: int) -> np.ndarray:
    return np.ones(shape, np.float32)


def test_a_fine_tuned_head_goes_before_those_of_pretraining(written):
    head = {"output_weights": floats(3, WIDTH), "output_bias": floats(3)}
    checkpoint = google.read(written(change=lambda variables: variables.update(head)))
    assert (checkpoint.head, checkpoint.labels) == ("sequence", ("LABEL_0", "LABEL_1", "LABEL_2"))
    assert any("7 x another head" in note for note in checkpoint.notes)


@pytest.mark.parametrize(
    "head",
    [
        {"output_weights": floats(3, 31), "output_bias": floats(3)},
        {"output_weights": floats(3, WIDTH)},
        {"start_logits/dense/kernel": floats(WIDTH, 1)},
        {"cls/squad/output_weights": floats(1, WIDTH), "cls/squad/output_bias": floats(1)},
    ],
)
def test_a_head_that_is_none_of_ours_is_left_out_by_name(head, written):
    checkpoint = google.read(written(model(head=None), lambda variables: variables.update(head)))
    assert checkpoint.head is None
    assert any(next(iter(head)) in note for note in checkpoint.notes)


def test_electra_without_configuration_has_the_sizes_of_its_tensors(written):
    generator = {
        "generator_predictions/output_bias": floats(VOCAB),
        "generator/encoder/layer_0/output/dense/bias": floats(16),
    }
    prefix = written(model("electra", "discriminator"), lambda v: v.update(generator))
    config = google.read(prefix).config
    (prefix.parent / "bert_config.json").unlink()
    checkpoint = google.read(prefix)
    assert checkpoint.config.changed(head_dropout=0) == config.changed(head_dropout=0)
    assert any("no configuration: 2 layers" in note and "64" in note for note in checkpoint.notes)
    assert any("2 x of ELECTRA's generator" in n for n in checkpoint.notes)


def test_the_report_names_every_tensor_once(written):
    prefix = written(change=with_slots)
    rows = {row["name"]: row for row in google.tensor_report(prefix)}
    assert rows.keys() == TensorBundle.open(prefix).entries.keys()
    row = rows["bert/encoder/layer_0/attention/self/key/kernel"]
    assert row["becomes"] == "encoder.layers.0.qkv.weight, part 2 of 3"
    assert (row["shape"], row["dtype"]) == ([WIDTH, WIDTH], "float32")
    assert row["file"] == "bert_model.ckpt.data-00000-of-00001"
    assert rows["global_step"]["becomes"] == "left out: counter"


@pytest.mark.parametrize(
    ("family", "usual", "words"),
    [
        ("bert", "gelu", "erf form, as the checkpoints of 2018"),
        ("albert", "gelu_tanh", "tanh form, which google-research/albert"),
        ("electra", "gelu", "erf form, which google-research/electra"),
    ],
)
def test_each_family_has_its_own_form_of_gelu_and_keeps_a_chosen_one(
    family, usual, words, written, vocab, tmp_path
):
    head = "discriminator" if family == "electra" else "pretraining"
    prefix = written(replace(model(family, head)), hidden_act="gelu")
    checkpoint = google.read(prefix)
    assert checkpoint.config.feed_forward.activation == usual
    (note,) = (note for note in checkpoint.notes if "hidden_act" in note)
    assert words in note
    for act, name in (("gelu", "gelu_python"), ("gelu_tanh", "gelu_new")):
        out = tmp_path / act
        chosen = replace(checkpoint, config=checkpoint.config.changed(hidden_act=act))
        google.write(chosen, Tokenizer.load(vocab), out)
        assert google.read(out / google.PREFIX).config.feed_forward.activation == act
        raw = json.loads(next(out.glob("*_config.json")).read_text())
        # Google's code knows one name only, and refuses the others.
        assert raw["hidden_act"] == ("gelu" if act == usual else name)


QUERY = "bert/encoder/layer_1/attention/self/query/kernel"


def refusal(prefix: Path) -> str:
    with pytest.raises(FormatError) as caught:
        google.read(prefix)
    text = str(caught.value)
    assert "\n" not in text
    assert len(text) < 700
    return text


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda v: v.pop(QUERY), f"1 missing ({QUERY})"),
        (lambda v: v.update({QUERY: floats(64, 31)}), "shape (64, 31)"),
        (lambda v: v[QUERY].fill(np.nan), f"{QUERY} holds values that are not finite"),
        (lambda v: v[QUERY].fill(-np.inf), "not finite"),
    ],
)
def test_tensors_that_do_not_fit_are_named(change, words, written):
    text = refusal(written(change=change))
    assert words in text and QUERY in text


@pytest.mark.parametrize(
    ("key", "value", "words"),
    [
        ("hidden_size", ..., "no hidden_size"),
        ("hidden_size", "wide", "hidden_size is 'wide'"),
        ("num_attention_heads", 5, "not a multiple of num_attention_heads 5"),
        ("num_hidden_layers", 10**9, "num_hidden_layers"),
        ("vocab_size", -3, "vocab_size"),
        ("hidden_act", "cubic", "'cubic'"),
        ("hidden_act", 3, "hidden_act is 3"),
        ("net_structure_type", 1, "net_structure_type is 1"),
    ],
)
def test_a_wrong_configuration_is_refused_by_its_key(key, value, words, written):
    text = refusal(written(**{"hidden_act": "gelu", key: value}))
    assert words in text
    assert "bert_config.json" in text


def test_what_is_no_whole_checkpoint_is_refused(written):
    prefix = written()
    (prefix.parent / "bert_config.json").unlink()
    text = refusal(prefix)
    assert "no bert_config.json" in text and "attention heads" in text
    write_bundle(prefix, {"resnet/conv/kernel": floats(3, 3)})
    text = refusal(prefix)
    assert "no BERT, ALBERT or ELECTRA" in text and "resnet/conv/kernel" in text


# Writing.


@pytest.mark.parametrize(
    ("family", "head", "words"),
    [
        ("roberta", "masked_lm", "bert, albert, electra; it has no names for the tensors of a rob"),
        ("distilbert", "masked_lm", "of a distilbert"),
        ("bert", "tokens", "bert has no 'tokens' head"),
        ("albert", "choices", "albert has no 'choices' head"),
        ("electra", "sequence", "electra has no 'sequence' head"),
        ("electra", "spans", "electra has no 'spans' head"),
    ],
)
def test_models_without_a_google_format_are_refused(family, head, words, vocab, tmp_path):
    made = fresh_checkpoint(family, head="masked_lm", **SIZES)
    if head != "masked_lm":
        made = with_new_head(made, head, 3 if head in ("tokens", "sequence") else None)
    with pytest.raises(ConfigError, match=words):
        google.write(made, Tokenizer.load(vocab), tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_numbers_that_the_configuration_cannot_express_are_refused(tmp_path, vocab):
    made = model()
    changed = replace(made, config=made.config.changed(layer_norm_eps=1e-5))
    with pytest.raises(ConfigError, match=r"cannot express layer_norm_eps 1e-05.*1e-12"):
        google.write(changed, Tokenizer.load(vocab), tmp_path / "out")
    assert not list((tmp_path / "out").glob("*"))


# The tokenizer.


def test_a_google_tokenizer_knows_words_of_200_characters(written):
    folder = written().parent
    (folder / "vocab.txt").write_text("[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\na\n##a\n")
    tokenizer = read_tokenizer(folder / google.PREFIX)
    known, unknown = (tokenizer.encode(["a" * length])[0].input_ids for length in (200, 201))
    assert len(known) == 202
    assert unknown.tolist() == [2, 1, 3]
    tokenizer.save(folder / "hf")  # and keeps its limit in the other layout
    again = Tokenizer.load(folder / "hf")
    assert len(again.encode(["a" * 200])[0].input_ids) == 202


@pytest.mark.parametrize(("entry", "lowercase"), [("Film", False), ("film", True)])
def test_case_is_read_from_the_vocabulary_and_not_from_the_folders_name(entry, lowercase, written):
    prefix = written(folder="uncased_L-2" if not lowercase else "cased_L-2")
    folder = prefix.parent
    (folder / "vocab.txt").write_text(f"[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\n{entry}\n")
    assert read_tokenizer(prefix).lowercase == lowercase
    (folder / "tokenizer_config.json").write_text(json.dumps({"do_lower_case": not lowercase}))
    assert read_tokenizer(prefix).lowercase != lowercase


def test_a_sentencepiece_model_of_any_name_is_found(written, shared_data):
    prefix = written(model("albert"))
    folder = prefix.parent
    (folder / "vocab.txt").unlink()
    with pytest.raises(FormatError, match="no vocabulary"):
        read_tokenizer(prefix)
    content = (shared_data / "tokenizers/albert-base-v2/spiece.model").read_bytes()
    (folder / "30k-clean.model").write_bytes(content)
    tokenizer = read_tokenizer(prefix)
    assert (tokenizer.kind, tokenizer.vocab_size) == ("unigram", 30_000)
    assert tokenizer.encode(["Hello world"])[0].input_ids.tolist() == [2, 10975, 126, 3]
    (folder / "other.model").write_bytes(content)
    with pytest.raises(FormatError, match="2 vocabularies"):
        read_tokenizer(prefix)


def test_a_google_checkpoint_can_be_used_like_any_model(written):
    prefix = written()
    for name in (prefix, prefix.parent, f"{prefix}.index"):
        assert find_model(str(name)) == prefix
    predictor = Predictor.load(prefix.parent)
    assert len(predictor.fill("the film was [MASK]", top=2)["candidates"][0]) == 2
    vectors = predictor.embed(["the film was good"])
    assert torch.from_numpy(vectors).isfinite().all()
