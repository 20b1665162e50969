"""Every family and head against transformers' own classes: tiny random weights, float32, CPU."""

from __future__ import annotations

import dataclasses
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file
from tests.reference.theirs import judged, packed, padded, shaken, transformers

from filbert.batch import PackedBatch
from filbert.checkpoints import huggingface
from filbert.checkpoints.checkpoint import Checkpoint, with_new_head
from filbert.model.heads import Model

VOCAB = 97
LENGTHS = (9, 3, 17, 1, 12)

# The order of the sums differs between implementations and between instruction sets. Allowed is one
# unit in the last place, of each implementation, for each of at most 6 stages: the embeddings, 4
# layers and the head. A wrong configuration is off by 2e-3 and more.
TOLERANCE = 2 * 6 * torch.finfo(torch.float32).eps

# Odd sizes and numbers that are nobody's default, so that a swapped or ignored field shows.
_SHARED: dict[str, Any] = {
    "vocab_size": VOCAB,
    "max_position_embeddings": 41,
    "attn_implementation": "eager",
    "pad_token_id": 1,
}
_BERT: dict[str, Any] = {
    **_SHARED,
    "hidden_size": 48,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "intermediate_size": 80,
    "hidden_dropout_prob": 0.15,
    "attention_probs_dropout_prob": 0.05,
    "layer_norm_eps": 1e-5,
}
_DISTILBERT = {
    **_SHARED,
    "dim": 48,
    "n_layers": 3,
    "n_heads": 4,
    "hidden_dim": 80,
    "seq_classif_dropout": 0.25,
}
_ALBERT = {
    **_BERT,
    "embedding_size": 24,
    "num_hidden_layers": 4,
    "num_hidden_groups": 2,
    "classifier_dropout_prob": 0.2,
}
CONFIGS: dict[str, tuple[Any, dict[str, Any]]] = {
    "bert": (transformers.BertConfig, {**_BERT, "classifier_dropout": 0.3}),
    "roberta": (transformers.RobertaConfig, {**_BERT, "type_vocab_size": 1}),
    "xlm-roberta": (transformers.XLMRobertaConfig, {**_BERT, "type_vocab_size": 1}),
    "camembert": (transformers.CamembertConfig, {**_BERT, "type_vocab_size": 1}),
    "distilbert": (transformers.DistilBertConfig, _DISTILBERT),
    "albert": (transformers.AlbertConfig, _ALBERT),
    "electra": (transformers.ElectraConfig, {**_BERT, "embedding_size": 24}),
}
_SUFFIX = {
    None: "Model",
    "masked_lm": "ForMaskedLM",
    "pair": "ForNextSentencePrediction",
    "pretraining": "ForPreTraining",
    "discriminator": "ForPreTraining",
    "sequence": "ForSequenceClassification",
    "tokens": "ForTokenClassification",
    "spans": "ForQuestionAnswering",
    "choices": "ForMultipleChoice",
}
_TASKS = ("masked_lm", "sequence", "tokens", "spans", "choices")
_KINDS: dict[str, tuple[str | None, ...]] = {
    "bert": (None, *_TASKS, "pair", "pretraining"),
    "roberta": (None, *_TASKS),
    "xlm-roberta": (None, *_TASKS),
    "camembert": (None, *_TASKS),
    "distilbert": (None, *_TASKS),
    "albert": (None, *_TASKS, "pretraining"),
    "electra": (None, *_TASKS, "discriminator"),
}
CASES = [(family, kind) for family, kinds in _KINDS.items() for kind in kinds]
every_case = pytest.mark.parametrize(("family", "kind"), CASES)


def judge_class(family: str, kind: str | None) -> Any:
    name = CONFIGS[family][0].__name__.removesuffix("Config") + _SUFFIX[kind]
    return getattr(transformers, name)


def make_judge(family: str, kind: str | None, **changes: Any) -> Any:
    """A model in eval mode whose every parameter is random, biases and LayerNorms too."""
    make, values = CONFIGS[family]
    labels = {"num_labels": 3} if kind in ("sequence", "tokens") else {}
    return shaken(judge_class(family, kind)(make(**{**values, **labels, **changes})))


def batch_of(family: str) -> dict[str, torch.Tensor]:
    """A right-padded batch without the pad id inside, as RoBERTa counts positions by it."""
    types = 0 if family == "distilbert" else CONFIGS[family][1].get("type_vocab_size", 2)
    return padded(LENGTHS, VOCAB, types=types)


@cache
def judge_and_folder(family: str, kind: str | None, root: Path) -> tuple[Any, Path]:
    model = make_judge(family, kind)
    folder = root / f"{family}-{kind}"
    model.save_pretrained(folder)
    return model, folder


@pytest.fixture(scope="session")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("families")


def given(model: Model, batch: PackedBatch) -> list[torch.Tensor]:
    """What filbert gives, in the same order."""
    with torch.no_grad():
        out = model(batch)
        pooled = model.head is None and model.encoder.pooler is not None
        more = [model.encoder.pool(out, batch)] if pooled else []
    return [*(out if isinstance(out, tuple) else (out,)), *more]


def difference(found: list[torch.Tensor], wanted: list[torch.Tensor]) -> float:
    """The largest difference, relative to the largest wanted value where that is above 1.

    Hidden states are about 1, so that smaller outputs are sums of values of that size.
    """
    assert [part.shape for part in found] == [part.shape for part in wanted]
    return max(
        float((a - b).abs().max() / b.abs().max().clamp(min=1))
        for a, b in zip(found, wanted, strict=True)
    )


@every_case
def test_hidden_states_pooled_vectors_and_logits_equal_transformers(
    family: str, kind: str | None, root: Path
) -> None:
    model, folder = judge_and_folder(family, kind, root)
    checkpoint = huggingface.read(folder)
    batch = batch_of(family)
    assert (checkpoint.family, checkpoint.head, checkpoint.notes) == (family, kind, ())
    assert (
        difference(given(checkpoint.build(), packed(batch)), judged(model, kind, batch)) < TOLERANCE
    )


@pytest.mark.parametrize("family", ["bert", "roberta", "distilbert", "albert", "electra"])
@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("layer_norm_eps", 1e-1),
        ("hidden_act", "relu"),
        ("position_offset", 5),
        ("num_attention_heads", 6),
        ("num_hidden_layers", "one fewer"),
    ],
)
def test_a_wrong_config_field_shows(family: str, field: str, value: Any, root: Path) -> None:
    """The heads read the same encoder, so one class of a family is enough."""
    kind = None
    model, folder = judge_and_folder(family, kind, root)
    checkpoint = huggingface.read(folder)
    tensors = dict(checkpoint.tensors)
    if field == "num_hidden_layers":
        value = checkpoint.config.num_hidden_layers - 1
        if checkpoint.config.layer_groups is None:
            tensors = {
                name: v for name, v in tensors.items() if f"encoder.layers.{value}." not in name
            }
    config = checkpoint.config.changed(**{field: value})
    wrong = dataclasses.replace(checkpoint, config=config, tensors=tensors).build()
    batch = batch_of(family)
    assert difference(given(wrong, packed(batch)), judged(model, kind, batch)) > 1e-4


@pytest.mark.parametrize(
    ("family", "act"),
    [("bert", "gelu_new"), ("bert", "relu"), ("albert", "gelu"), ("distilbert", "relu")],
)
def test_other_activations_equal_transformers(family: str, act: str, tmp_path: Path) -> None:
    model = make_judge(
        family, "masked_lm", **{"activation" if family == "distilbert" else "hidden_act": act}
    )
    model.save_pretrained(tmp_path)
    batch = batch_of(family)
    found = given(huggingface.read(tmp_path).build(), packed(batch))
    assert difference(found, judged(model, "masked_lm", batch)) < TOLERANCE


@pytest.mark.parametrize("family", ["albert", "electra"])
def test_tables_as_wide_as_the_layers_equal_transformers(family: str, tmp_path: Path) -> None:
    # ALBERT projects also then, ELECTRA does not.
    model = make_judge(family, "sequence", embedding_size=48)
    model.save_pretrained(tmp_path)
    checkpoint = huggingface.read(tmp_path)
    batch = batch_of(family)
    assert (
        difference(given(checkpoint.build(), packed(batch)), judged(model, "sequence", batch))
        < TOLERANCE
    )
    assert checkpoint.config.embeddings.width == {"albert": 48, "electra": None}[family]


@pytest.mark.parametrize("family", list(CONFIGS))
def test_dropout_rates_are_those_of_transformers(family: str, root: Path) -> None:
    rates = {}
    for kind in ("sequence", "tokens"):
        config = huggingface.read(judge_and_folder(family, kind, root)[1]).config
        rates[kind] = (config.dropout.hidden, config.dropout.attention, config.dropout.head)
        model = judge_and_folder(family, kind, root)[0]
        dropout = model.dropout if hasattr(model, "dropout") else model.classifier.dropout
        assert rates[kind][2] == dropout.p
    expected = (0.1, 0.1) if family == "distilbert" else (0.15, 0.05)
    assert rates["sequence"][:2] == expected


def load_back(family: str, kind: str | None, folder: Path) -> Any:
    model, report = judge_class(family, kind).from_pretrained(
        folder, output_loading_info=True, attn_implementation="eager"
    )
    assert {name: found for name, found in report.items() if found} == {}
    return model.eval()


@every_case
def test_what_filbert_writes_transformers_loads_whole_with_the_same_output(
    family: str, kind: str | None, root: Path, tmp_path: Path
) -> None:
    model, folder = judge_and_folder(family, kind, root)
    checkpoint = huggingface.read(folder)
    huggingface.write(checkpoint, tmp_path)
    back = load_back(family, kind, tmp_path)
    batch = batch_of(family)
    assert difference(judged(back, kind, batch), judged(model, kind, batch)) < TOLERANCE
    ours, theirs = (load_file(place / "model.safetensors").keys() for place in (tmp_path, folder))
    assert ours <= theirs
    again = huggingface.read(tmp_path)
    assert again.config == checkpoint.config
    assert again.tensors.keys() == checkpoint.tensors.keys()
    assert all(
        torch.equal(again.tensors[name], value) for name, value in checkpoint.tensors.items()
    )


def new_head(checkpoint: Checkpoint, kind: str | None) -> Checkpoint:
    labels = ("no", "yes", "perhaps", "né") if kind in ("sequence", "tokens") else None
    return with_new_head(checkpoint, kind, labels=labels)


@every_case
@pytest.mark.parametrize("old", [None, "sequence"])
def test_a_new_head_loads_whole_in_transformers_with_the_same_output(
    family: str, kind: str | None, old: str | None, root: Path, tmp_path: Path
) -> None:
    torch.manual_seed(5)
    checkpoint = new_head(huggingface.read(judge_and_folder(family, old, root)[1]), kind)
    always_has_pooler = kind is None and family not in ("distilbert", "electra")
    if always_has_pooler and checkpoint.config.pooling.activation is None:
        pytest.skip("transformers always draws a pooler for this family's bare encoder")
    huggingface.write(checkpoint, tmp_path)
    back, batch = load_back(family, kind, tmp_path), batch_of(family)
    assert (
        difference(judged(back, kind, batch), given(checkpoint.build(), packed(batch))) < TOLERANCE
    )
    if kind in ("sequence", "tokens"):
        assert back.config.id2label == {0: "no", 1: "yes", 2: "perhaps", 3: "né"}
