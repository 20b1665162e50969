"""ModernBERT against transformers' own classes: tiny random weights, float32, CPU.

Differences are relative to the largest value that a model gives out (one to three here); 1e-6 of it
is a few units in its last place.
"""

from __future__ import annotations

import dataclasses
import json
import warnings
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file
from tests.reference.theirs import outputs, packed, padded, shaken, transformers

from filbert.checkpoints import huggingface
from filbert.checkpoints.checkpoint import Checkpoint, meta_model, with_new_head
from filbert.checkpoints.families import FAMILIES
from filbert.checkpoints.fresh import fresh_checkpoint, fresh_config
from filbert.model.encoder import hidden_states
from filbert.model.heads import Model

VOCAB = 97
# Within the window and far beyond it, alone in a group and in groups with and without padding.
LENGTHS = (9, 3, 17, 17, 1, 12, 40, 41, 40)
TOLERANCE = 1e-6
KINDS = (None, "masked_lm", "sequence", "tokens", "spans", "choices")
LABELS = ("no", "yes", "perhaps")
BATCH = padded(LENGTHS, VOCAB)
every_kind = pytest.mark.parametrize("kind", KINDS)

# Nobody's defaults, so that a swapped or ignored field shows.
SIZES: dict[str, Any] = {
    "vocab_size": VOCAB,
    "hidden_size": 48,
    "num_hidden_layers": 5,
    "num_attention_heads": 4,
    "intermediate_size": 80,
    "max_position_embeddings": 50,
    "norm_eps": 1e-3,
    "local_attention": 10,
    "global_attn_every_n_layers": 2,
    "global_rope_theta": 900.0,
    "local_rope_theta": 20.0,
    "classifier_dropout": 0.25,
    "classifier_pooling": "mean",
    "pad_token_id": 1,
    "bos_token_id": 2,
    "cls_token_id": 2,
    "eos_token_id": 3,
    "sep_token_id": 3,
    "attn_implementation": "eager",
}


def judge_class(kind: str | None) -> Any:
    return getattr(transformers, FAMILIES["modernbert"].class_name(kind))


def make_judge(kind: str | None, **changes: Any) -> Any:
    """A model in eval mode whose every parameter is random, LayerNorms too."""
    labels = {"num_labels": 3} if kind in ("sequence", "tokens") else {}
    config = transformers.ModernBertConfig(**{**SIZES, **labels, **changes})
    return shaken(judge_class(kind)(config), noise=0.15, scale=0.5)


@pytest.fixture(scope="session")
def judges(tmp_path_factory: pytest.TempPathFactory) -> dict[str | None, tuple[Any, Path]]:
    root = tmp_path_factory.mktemp("modernbert")
    made = {kind: (make_judge(kind), root / str(kind)) for kind in KINDS}
    for model, folder in made.values():
        model.save_pretrained(folder)
    return made


def difference(ours: Model, theirs: Any, kind: str | None) -> float:
    with torch.no_grad():
        found, wanted = ours(packed(BATCH)), outputs(theirs, kind, BATCH)[0]
    assert found.shape == wanted.shape
    return float((found - wanted).abs().max() / wanted.abs().max())


@every_kind
def test_hidden_states_and_logits_equal_transformers(kind, judges):
    model, folder = judges[kind]
    checkpoint = huggingface.read(folder)
    assert (checkpoint.family, checkpoint.head, checkpoint.notes) == ("modernbert", kind, ())
    assert difference(checkpoint.build(), model, kind) < TOLERANCE


@pytest.mark.parametrize("kind", ["sequence", "choices"])
def test_a_classifier_on_the_first_token_equals_transformers(kind, tmp_path):
    model = make_judge(kind, classifier_pooling="cls")
    model.save_pretrained(tmp_path)
    assert difference(huggingface.read(tmp_path).build(), model, kind) < TOLERANCE


@pytest.mark.parametrize(
    "changes",
    [
        {"global_attn_every_n_layers": 1},
        {"global_attn_every_n_layers": 5},
        {"local_attention": 0},
        {"local_attention": 11},
        {"local_attention": 1000},
        {"num_attention_heads": 1},
        {"num_hidden_layers": 1},
    ],
)
def test_other_layouts_equal_transformers(changes, tmp_path):
    model = make_judge("masked_lm", **changes)
    model.save_pretrained(tmp_path)
    assert difference(huggingface.read(tmp_path).build(), model, "masked_lm") < TOLERANCE


@pytest.mark.parametrize("kind", ["masked_lm", "sequence", "tokens"])
def test_gradients_equal_those_of_transformers(kind, judges):
    model, folder = judges[kind]
    ours = huggingface.read(folder).build()
    model.zero_grad()
    outputs(model, kind, BATCH)[0].square().mean().backward()
    ours(packed(BATCH)).square().mean().backward()
    theirs = dict(model.named_parameters())
    for name, parameter in ours.named_parameters():
        (alias,) = FAMILIES["modernbert"].theirs(name, kind)
        wanted = theirs[alias].grad
        # transformers' table leaves the padding row out; it is in no batch.
        torch.testing.assert_close(
            parameter.grad, wanted, atol=1e-6 * float(wanted.abs().max()) + 1e-9, rtol=1e-4
        )
    model.zero_grad()


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("rotary_base", 890.0),
        ("local_rotary_base", 21.0),
        ("local_window", 12),
        ("local_window", None),
        ("global_every", 3),
        ("layer_norm_eps", 1e-2),
        ("hidden_act", "gelu_tanh"),
        ("num_attention_heads", 6),
    ],
)
def test_a_wrong_config_field_shows(field, value, judges):
    model, folder = judges[None]
    checkpoint = huggingface.read(folder)
    config = checkpoint.config.changed(**{field: value})
    wrong = dataclasses.replace(checkpoint, config=config).build()
    assert difference(wrong, model, None) > 2e-5


def test_all_layers_states_are_those_of_transformers(judges):
    model, folder = judges[None]
    batch = BATCH
    ours = huggingface.read(folder).build()
    with torch.no_grad():
        found = hidden_states(ours.encoder, packed(BATCH), (0, 2, 5)).chunk(3, -1)
        wanted = model(**batch, output_hidden_states=True).hidden_states
    for state, layer in zip(found, (0, 2, 5), strict=True):
        real = wanted[layer][batch["attention_mask"].bool()]
        torch.testing.assert_close(state, real, atol=TOLERANCE, rtol=0)


def load_back(kind: str | None, folder: Path) -> Any:
    model, report = judge_class(kind).from_pretrained(
        folder, output_loading_info=True, attn_implementation="eager"
    )
    assert {name: found for name, found in report.items() if found} == {}
    return model.eval()


def written(checkpoint: Checkpoint, folder: Path) -> dict[str, Any]:
    huggingface.write(checkpoint, folder)
    return json.loads((folder / "config.json").read_text())


@every_kind
def test_what_filbert_writes_transformers_loads_whole_with_the_same_output(kind, judges, tmp_path):
    model, folder = judges[kind]
    checkpoint = huggingface.read(folder)
    written(checkpoint, tmp_path)
    back = load_back(kind, tmp_path)
    with torch.no_grad():
        found, wanted = outputs(back, kind, BATCH)[0], outputs(model, kind, BATCH)[0]
    torch.testing.assert_close(found, wanted, atol=TOLERANCE, rtol=0)
    ours, theirs = (load_file(place / "model.safetensors").keys() for place in (tmp_path, folder))
    assert ours == theirs
    again = huggingface.read(tmp_path)
    assert again.config == checkpoint.config
    assert all(
        torch.equal(again.tensors[name], value) for name, value in checkpoint.tensors.items()
    )


@every_kind
@pytest.mark.parametrize("old", [None, "masked_lm", "sequence"])
def test_a_new_head_loads_whole_in_transformers_with_the_same_output(kind, old, judges, tmp_path):
    torch.manual_seed(5)
    labels = LABELS if kind in ("sequence", "tokens") else None
    checkpoint = with_new_head(huggingface.read(judges[old][1]), kind, labels=labels)
    written(checkpoint, tmp_path)
    assert difference(checkpoint.build(), load_back(kind, tmp_path), kind) < TOLERANCE


def test_a_classifier_begins_with_the_masked_lm_heads_layers_as_in_transformers(judges):
    folder = judges["masked_lm"][1]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        theirs = transformers.ModernBertForSequenceClassification.from_pretrained(folder)
    ours = with_new_head(huggingface.read(folder), "sequence", labels=LABELS)
    assert torch.equal(ours.tensors["head.transform.weight"], theirs.head.dense.weight)
    assert torch.equal(ours.tensors["head.norm.weight"], theirs.head.norm.weight)
    assert any("kept" in note for note in ours.notes)


def test_dropout_rates_are_those_of_transformers(tmp_path):
    make_judge(
        "sequence", mlp_dropout=0.1, embedding_dropout=0.2, attention_dropout=0.3
    ).save_pretrained(tmp_path)
    checkpoint = huggingface.read(tmp_path)
    config = checkpoint.config
    assert (config.dropout.hidden, config.dropout.attention, config.dropout.head) == (
        0.1,
        0.3,
        0.25,
    )
    # Ours has one rate for all hidden states, and says what it does not take over.
    assert checkpoint.notes == ("embedding_dropout 0.2 left out: mlp_dropout 0.1 serves for both.",)
    raw = written(checkpoint, tmp_path / "again")
    assert (raw["mlp_dropout"], raw["embedding_dropout"]) == (0.1, 0.1)


def test_the_new_form_of_config_json_and_the_old_one_say_the_same(judges, tmp_path):
    folder = judges["masked_lm"][1]
    new = json.loads((folder / "config.json").read_text())
    assert "layer_types" in new
    checkpoint = huggingface.read(folder)
    old = written(checkpoint, tmp_path)
    assert not {"layer_types", "rope_parameters"} & old.keys()
    assert old["global_rope_theta"] == 900.0
    del old["local_rope_theta"]
    (tmp_path / "config.json").write_text(json.dumps({**old, "local_rope_theta": None}))
    # Version 4 took a missing local base for the global one.
    assert huggingface.read(tmp_path).config.settings()["local_rotary_base"] == 900.0


def test_a_new_model_has_the_published_size_and_loads_whole_in_transformers(tmp_path):
    config = fresh_config("modernbert", vocab_size=50_368, head="masked_lm")
    with torch.device("meta"):
        wanted = transformers.ModernBertForMaskedLM(transformers.ModernBertConfig())
    found = sum(p.numel() for p in meta_model(config, "masked_lm").parameters())
    assert found == wanted.num_parameters() == 149_655_232
    torch.manual_seed(0)
    checkpoint = fresh_checkpoint(
        "modernbert",
        vocab_size=VOCAB,
        head="masked_lm",
        hidden_size=48,
        num_attention_heads=4,
        num_hidden_layers=4,
        cls_id=2,
        sep_id=3,
    )
    raw = written(checkpoint, tmp_path)
    assert (raw["pad_token_id"], raw["cls_token_id"], raw["intermediate_size"]) == (0, 2, 72)
    assert difference(checkpoint.build(), load_back("masked_lm", tmp_path), "masked_lm") < TOLERANCE
