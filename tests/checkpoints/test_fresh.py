"""New models: sizes against the published counts, refusals, and what config.json will say."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest
import torch
from tests.conftest import sizes

from filbert.checkpoints import huggingface
from filbert.checkpoints.checkpoint import meta_model
from filbert.checkpoints.fresh import fresh_checkpoint, fresh_config
from filbert.errors import ConfigError

SMALL: dict[str, Any] = sizes(layers=2, width=16, heads=2, positions=20)
CASES = [
    ("bert", "masked_lm"),
    ("bert", "pretraining"),
    ("roberta", "masked_lm"),
    ("distilbert", "masked_lm"),
    ("albert", "masked_lm"),
    ("albert", "pretraining"),
    ("electra", "masked_lm"),
    ("electra", "discriminator"),
    ("nomic_bert", "masked_lm"),
    ("gte", "masked_lm"),
    ("neobert", "masked_lm"),
    ("eurobert", "masked_lm"),
    ("mpnet", "masked_lm"),
    ("deberta-v2", "masked_lm"),
]


def count(family: str, head: str, vocab_size: int, **sizes: Any) -> int:
    """Parameters of the encoder."""
    config = fresh_config(family, vocab_size=vocab_size, head=head, **sizes)
    encoder = meta_model(config, head).encoder
    return sum(parameter.numel() for parameter in encoder.parameters())


# RECIPES, section 7, from the published checkpoints; RoBERTa and ALBERT from theirs.
@pytest.mark.parametrize(
    ("family", "head", "vocab_size", "sizes", "parameters"),
    [
        ("bert", "pretraining", 30_522, {}, 109_482_240),
        (
            "bert",
            "pretraining",
            30_522,
            {"num_hidden_layers": 24, "hidden_size": 1024},
            335_141_888,
        ),
        ("distilbert", "masked_lm", 30_522, {}, 66_362_880),
        ("roberta", "masked_lm", 50_265, {}, 124_055_040),
        ("albert", "pretraining", 30_000, {}, 11_683_584),
        ("electra", "discriminator", 30_522, {}, 13_483_008),
        # transformers' count of its default configuration.
        ("nomic_bert", "masked_lm", 30_528, {}, 136_731_648),
        ("eurobert", "masked_lm", 128_256, {}, 211_766_016),
        ("mpnet", "masked_lm", 30_527, {}, 108_895_872),
        ("deberta-v2", "masked_lm", 128_100, {}, 183_831_552),
    ],
)
def test_a_base_model_has_as_many_parameters_as_the_published_one(
    family, head, vocab_size, sizes, parameters
):
    assert count(family, head, vocab_size, **sizes) == parameters


@pytest.mark.parametrize(("family", "head"), CASES)
def test_a_new_model_comes_back_from_its_folder(family, head, tmp_path):
    new = fresh_checkpoint(family, vocab_size=40, head=head, **SMALL)
    huggingface.write(new, tmp_path)
    back = huggingface.read(tmp_path)
    assert (back.config, back.family, back.head) == (new.config, family, head)
    assert all(torch.equal(back.tensors[name], new.tensors[name]) for name in new.tensors)
    assert (new.notes, back.notes) == ((), ())


def test_weights_are_drawn_as_bert_draws_them_and_from_the_default_generator():
    torch.manual_seed(5)
    first = fresh_checkpoint("bert", vocab_size=400, head="masked_lm", **SMALL)
    torch.manual_seed(5)
    again = fresh_checkpoint("bert", vocab_size=400, head="masked_lm", **SMALL)
    for name, tensor in first.tensors.items():
        assert torch.equal(tensor, again.tensors[name])
        if tensor.ndim == 1:
            assert torch.all(tensor == float("norm.weight" in name)), name
        else:
            assert tensor.abs().max() <= 0.04, name
    words = first.tensors["encoder.embeddings.word.weight"]
    # A normal cut at two deviations keeps 0.880 of its deviation; 6400 numbers tell it to 1 %.
    assert math.isclose(float(words.std()), 0.02 * 0.880, rel_tol=0.04)


def raw(folder: Path, family: str, **arguments: Any) -> dict[str, Any]:
    new = fresh_checkpoint(family, vocab_size=40, head="masked_lm", **{**SMALL, **arguments})
    huggingface.write(new, folder)
    content: dict[str, Any] = json.loads((folder / "config.json").read_text())
    return content


def test_config_json_names_the_tokenizers_own_marks(tmp_path):
    content = raw(tmp_path, "roberta", pad_id=7, cls_id=8, sep_id=9)
    assert (content["pad_token_id"], content["bos_token_id"], content["eos_token_id"]) == (7, 8, 9)
    assert huggingface.read(tmp_path).config.positions.offset == 8
    content = raw(tmp_path, "bert", pad_id=3, cls_id=8, sep_id=9)
    assert content["pad_token_id"] == 3
    assert "bos_token_id" not in content


@pytest.mark.parametrize(("family", "pad", "rows"), [("bert", 0, 512), ("roberta", 1, 514)])
def test_the_usual_padding_id_and_positions_stand_in(family, pad, rows, tmp_path):
    content = raw(tmp_path, family, max_position_embeddings=None)
    assert (content["pad_token_id"], content["max_position_embeddings"]) == (pad, rows)


@pytest.mark.parametrize(
    ("family", "head", "sizes", "says"),
    [
        ("bart", "masked_lm", {}, "family 'bart'"),
        ("camembert", "masked_lm", {}, "choose bert"),
        ("bert", "discriminator", {}, "no 'discriminator' head"),
        ("roberta", "pretraining", {}, "no 'pretraining' head"),
        ("bert", "masked_lm", {"hidden_size": 100}, "Give num_attention_heads"),
        ("bert", "masked_lm", {"num_attention_heads": 7}, "not a multiple of"),
        ("bert", "masked_lm", {"num_hidden_layers": 0}, "num_hidden_layers is 0"),
        ("bert", "masked_lm", {"embedding_size": 64}, "cannot express embedding_size 64"),
        ("bert", "masked_lm", {"hidden_act": "swish"}, "hidden_act 'swish'"),
        ("bert", "masked_lm", {"dropout": 1.0}, r"must be in \[0, 1\)"),
        ("mpnet", "masked_lm", {"pad_id": 0}, "padding id is 0, and MPNet's is always 1"),
        ("roberta", "masked_lm", {"hidden_act": "relu"}, "has gelu in its head"),
        ("roberta", "masked_lm", {"max_position_embeddings": 2}, "no row for a token"),
    ],
)
def test_a_model_that_cannot_be_is_refused(family, head, sizes, says):
    with pytest.raises(ConfigError, match=says):
        fresh_checkpoint(family, vocab_size=40, head=head, **sizes)
