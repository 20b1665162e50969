"""Causal encoders and cut ones at rest: what a folder says of them, and who may read it."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from tests.conftest import sizes

from filbert.checkpoints import google, huggingface
from filbert.checkpoints.checkpoint import Checkpoint, as_causal, with_layers, with_new_head
from filbert.checkpoints.differences import differences
from filbert.checkpoints.fresh import fresh_checkpoint
from filbert.checkpoints.huggingface import convention_of
from filbert.errors import ConfigError, FormatError

SIZES = sizes(layers=3, width=16, heads=2, inner=24, positions=20)
FAMILIES = ("bert", "roberta", "distilbert", "albert", "electra")
KINDS = (None, "masked_lm", "sequence", "tokens", "spans", "choices")
# Whose classes, all heads that read no pooled vector, attend causally by a key.
BY_KEY = ("bert", "roberta", "electra")


def made(family: str, kind: str | None = None, causal: bool = True) -> Checkpoint:
    torch.manual_seed(0)
    head = "discriminator" if family == "electra" else "masked_lm"
    sizes = SIZES | ({"embedding_size": 8} if family in ("albert", "electra") else {})
    checkpoint = fresh_checkpoint(family, vocab_size=30, head=head, **sizes)
    checkpoint = as_causal(checkpoint) if causal else checkpoint
    labels = ("no", "yes") if kind in ("sequence", "tokens") else None
    return with_new_head(checkpoint, kind, labels=labels)


def raw(folder: Path) -> dict:
    return json.loads((folder / "config.json").read_text("utf-8"))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("family", FAMILIES)
def test_a_causal_model_is_written_and_read_back_causal(family, kind, tmp_path):
    checkpoint = made(family, kind)
    huggingface.write(checkpoint, tmp_path)
    back = huggingface.read(tmp_path)
    assert back.config == checkpoint.config.changed(head_dropout=back.config.dropout.head)
    assert (
        back.config.attention.causal
        and (back.family, back.head) == (family, kind)
        and not back.notes
    )
    assert all(torch.equal(back.tensors[name], value) for name, value in checkpoint.tensors.items())


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("family", FAMILIES)
def test_only_what_others_compute_alike_goes_by_their_names(family, kind, tmp_path):
    huggingface.write(made(family, kind), tmp_path)
    content = raw(tmp_path)
    theirs = family in BY_KEY and kind not in ("sequence", "choices")
    assert content["model_type"] == ("" if theirs else "filbert_causal_") + family
    assert content["architectures"][0].startswith("FilbertCausal") != theirs
    assert content.get("is_decoder", False) is theirs


def test_a_model_that_sees_both_ways_says_nothing_of_it(tmp_path):
    huggingface.write(made("bert", "sequence", causal=False), tmp_path)
    assert not {"is_decoder", "causal"} & raw(tmp_path).keys()
    assert not huggingface.read(tmp_path).config.attention.causal


def test_a_causal_encoder_alone_has_no_pooler_that_others_would_put_on_its_first_token(tmp_path):
    pooled = with_new_head(made("bert", causal=False), "sequence", num_labels=2)
    assert with_new_head(pooled, None).config.pooling.activation == "tanh", "the control"
    bare = with_new_head(as_causal(pooled), None)
    assert bare.config.pooling.activation is None
    assert bare.notes[-2] == (
        "pooler left out: it reads the first token, which attends to no other in a causal encoder."
    )
    kept = with_new_head(as_causal(pooled), "sequence", num_labels=2)
    assert torch.equal(
        kept.tensors["encoder.pooler.weight"], pooled.tensors["encoder.pooler.weight"]
    )


def test_somebody_elses_pooler_over_the_first_token_is_left_out_and_their_classifier_refused(
    tmp_path,
):
    sequence = made("bert", "sequence", causal=False)
    pooler = {n: t for n, t in sequence.tensors.items() if n.startswith("encoder.")}
    bare = replace(sequence, head=None, labels=None, tensors=pooler)
    for name, checkpoint in (("sequence", sequence), ("bare", bare)):
        huggingface.write(checkpoint, tmp_path / name)
        path = tmp_path / name / "config.json"
        path.write_text(json.dumps(raw(tmp_path / name) | {"is_decoder": True}))
    with pytest.raises(FormatError, match="is_decoder is True, and a BertForSequenceClassif"):
        huggingface.read(tmp_path / "sequence")
    read = huggingface.read(tmp_path / "bare")
    assert read.config.attention.causal and read.config.pooling.activation is None
    assert read.notes == (
        "pooler left out: the file's bert.pooler.dense is not used by a causal BertModel.",
    )


@pytest.mark.parametrize(
    ("family", "changes", "says"),
    [
        ("distilbert", {"is_decoder": True}, "is_decoder is True"),
        ("bert", {"is_decoder": "yes"}, "is_decoder is 'yes'"),
        ("bert", {"model_type": "filbert_causal_bart"}, "model_type 'filbert_causal_bart'"),
        ("bert", {"model_type": "filbert_causal_"}, "model_type 'filbert_causal_'"),
    ],
)
def test_what_no_causal_encoder_of_ours_can_be_is_refused(family, changes, says, tmp_path):
    huggingface.write(made(family, causal=False), tmp_path)
    (tmp_path / "config.json").write_text(json.dumps(raw(tmp_path) | changes))
    with pytest.raises(FormatError) as caught:
        huggingface.read(tmp_path)
    assert says in str(caught.value)


@pytest.mark.parametrize(
    ("family", "name"),
    [("bert", "BertLMHeadModel"), ("roberta", "RobertaForCausalLM"), ("bert", "ErnieForCausalLM")],
)
def test_a_decoder_is_no_masked_language_model(family, name, tmp_path):
    huggingface.write(made(family, "masked_lm"), tmp_path)
    said = raw(tmp_path)
    assert said["is_decoder"] is True and huggingface.read(tmp_path).head == "masked_lm"
    (tmp_path / "config.json").write_text(json.dumps(said | {"architectures": [name]}))
    with pytest.raises(FormatError, match=rf"'{name}', which predicts the next token; filbert has"):
        huggingface.read(tmp_path)


def test_a_causal_model_cannot_be_written_in_googles_format(tiny, tmp_path):
    for kind in (None, "sequence"):
        with pytest.raises(ConfigError, match="cannot express causal True"):
            google.write(made("bert", kind), tiny, tmp_path / "google")
    assert not (tmp_path / "google" / "bert_config.json").exists()


def test_the_tokenizer_of_a_causal_model_is_its_familys(tmp_path):
    (tmp_path / "config.json").write_text('{"model_type": "filbert_causal_roberta"}')
    found = convention_of(tmp_path)
    assert found is not None and found.class_name == "RobertaTokenizer"


def test_two_models_that_differ_in_this_alone_do_not_answer_alike(tmp_path):
    for name, causal in (("one", False), ("other", True)):
        huggingface.write(made("bert", causal=causal), tmp_path / name)
    found = differences(("one", "other"), (tmp_path / "one", tmp_path / "other"))
    assert found["same_weights"] and not found["same_answers"]
    assert found["values"]["config causal"] == (False, True)


def test_a_model_with_local_layers_cannot_be_made_causal():
    checkpoint = fresh_checkpoint("modernbert", vocab_size=30, head="masked_lm", **SIZES)
    with pytest.raises(ConfigError, match="causal with local_window 128"):
        as_causal(checkpoint)


@pytest.mark.parametrize("layers", [(0,), (0, 1), (0, 2), (1, 2), (2,)])
def test_kept_layers_are_the_old_ones_in_their_order(layers, tmp_path):
    whole = made("bert", "sequence", causal=False)
    cut = with_layers(whole, layers)
    assert cut.config == whole.config.changed(num_hidden_layers=len(layers))
    for new, old in enumerate(layers):
        for part in ("qkv.weight", "norm.bias", "down.weight"):
            found = cut.tensors[f"encoder.layers.{new}.{part}"]
            assert torch.equal(found, whole.tensors[f"encoder.layers.{old}.{part}"])
    assert cut.notes[-1] == f"layers kept: {', '.join(map(str, layers))} of 0 to 2."
    huggingface.write(cut, tmp_path)
    assert huggingface.read(tmp_path).config == cut.config
    cut.check()


def test_layers_that_cannot_be_kept_are_refused():
    with pytest.raises(ConfigError, match="3 layers of this model share"):
        with_layers(made("albert"), (0,))
    for layers in ((), (3,), (1, 0), (0, 0), (-1,)):
        with pytest.raises(ConfigError, match="this model has layers 0 to 2"):
            with_layers(made("bert"), layers)
    # Layers 0 and 3 see everything, the others a window; and the first lacks a LayerNorm.
    modern = fresh_checkpoint(
        "modernbert", vocab_size=30, head="masked_lm", **SIZES | {"num_hidden_layers": 5}
    )
    assert with_layers(modern, (0, 1)).check()
    assert with_layers(modern, (0, 2, 4)).check()
    for layers in ((1, 2), (0, 3), (3, 4)):
        with pytest.raises(ConfigError, match="Give a number to keep the first layers"):
            with_layers(modern, layers)
