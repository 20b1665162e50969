"""Causal and cut encoders against transformers and sentence-transformers: tiny random weights."""

from __future__ import annotations

import dataclasses
import json
import warnings
from typing import Any

import numpy as np
import pytest
import torch
from tests.conftest import sizes
from tests.reference.theirs import packed, padded, shaken

from filbert.checkpoints import huggingface
from filbert.checkpoints.checkpoint import Checkpoint, as_causal, with_layers, with_new_head
from filbert.checkpoints.sentence_transformers import SentenceVectors, write_sentence_vectors
from filbert.inference.predictor import Predictor
from filbert.model.encoder import initialize
from filbert.text.tokenizer import Tokenizer

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    import sentence_transformers
    import transformers

transformers.utils.logging.disable_progress_bar()

LENGTHS = (9, 3, 17, 1, 12)
# float32, of numbers of about one, in another order of sums.
TOLERANCE = 1e-5
_SIZES: dict[str, Any] = sizes(
    vocab_size=97, layers=3, width=48, heads=4, inner=80, positions=41, pad_token_id=1
)
CONFIGS: dict[str, Any] = {
    "bert": transformers.BertConfig,
    "roberta": transformers.RobertaConfig,
    "electra": transformers.ElectraConfig,
}
CLASSES = {
    None: "Model",
    "masked_lm": "ForMaskedLM",
    "tokens": "ForTokenClassification",
    "spans": "ForQuestionAnswering",
}
CASES = [(family, kind) for family in CONFIGS for kind in CLASSES]


def judged(model: Any) -> torch.Tensor:
    batch = padded(LENGTHS, 97)
    with torch.no_grad():
        out = model(**batch)
    if "start_logits" in out:
        rows = torch.stack([out.start_logits, out.end_logits], -1)
    else:
        rows = out.logits if "logits" in out else out.last_hidden_state
    return rows[batch["attention_mask"].bool()]


def given(checkpoint: Checkpoint) -> torch.Tensor:
    batch = padded(LENGTHS, 97)
    with torch.no_grad():
        return checkpoint.build()(packed(batch))


def bare(family: str = "bert", **changes: Any) -> Any:
    model = transformers.AutoModel.from_config(CONFIGS[family](**_SIZES, **changes)).eval()
    shaken(model)
    return model


@pytest.fixture(scope="module")
def encoder(tmp_path_factory: pytest.TempPathFactory) -> Checkpoint:
    folder = tmp_path_factory.mktemp("causal") / "bert"
    bare().save_pretrained(folder)
    return huggingface.read(folder)


@pytest.mark.parametrize(("family", "kind"), CASES)
def test_a_decoder_of_transformers_is_read_and_gives_the_same(family, kind, tmp_path):
    name = CONFIGS[family].__name__.removesuffix("Config") + CLASSES[kind]
    changes = {"num_labels": 3} if kind == "tokens" else {}
    config = CONFIGS[family](**_SIZES, is_decoder=True, **changes)
    model = getattr(transformers, name)(config).eval()
    shaken(model)
    model.save_pretrained(tmp_path)
    checkpoint = huggingface.read(tmp_path)
    assert checkpoint.config.attention.causal and checkpoint.head == kind
    both_ways = checkpoint.config.changed(causal=False)
    wanted = judged(model)
    assert float((given(checkpoint) - wanted).abs().max()) < TOLERANCE
    control = given(dataclasses.replace(checkpoint, config=both_ways))
    assert float((control - wanted).abs().max()) > 100 * TOLERANCE


@pytest.mark.parametrize("kind", CLASSES)
def test_what_is_written_by_their_names_is_what_they_compute(kind, encoder, tmp_path):
    labels = ("a", "b", "c") if kind == "tokens" else None
    checkpoint = with_new_head(as_causal(encoder), kind, labels=labels)
    huggingface.write(checkpoint, tmp_path)
    judge = getattr(transformers, "Bert" + CLASSES[kind])
    extra = {"add_pooling_layer": False} if kind is None else {}
    model = judge.from_pretrained(tmp_path, **extra).eval()
    assert float((judged(model) - given(checkpoint)).abs().max()) < TOLERANCE


@pytest.mark.parametrize(
    ("kind", "auto"),
    [
        ("sequence", transformers.AutoModelForSequenceClassification),
        ("sequence", transformers.AutoModel),
        ("choices", transformers.AutoModelForMultipleChoice),
    ],
)
def test_a_causal_classifier_is_refused_by_transformers(kind, auto, encoder, tmp_path):
    """It would read the first token."""
    labels = ("no", "yes") if kind == "sequence" else None
    checkpoint = with_new_head(as_causal(encoder), kind, labels=labels)
    huggingface.write(checkpoint, tmp_path)
    with pytest.raises(ValueError, match="filbert_causal_bert"):
        auto.from_pretrained(tmp_path)
    with pytest.raises(ValueError, match="filbert_causal_bert"):
        transformers.AutoConfig.from_pretrained(tmp_path)
    assert torch.equal(given(huggingface.read(tmp_path)), given(checkpoint))


@pytest.mark.parametrize("layers", [(0,), (0, 1), (0, 2)])
def test_a_cut_encoder_is_the_same_cut_of_transformers_and_any_tool_reads_it(
    layers, encoder, tmp_path
):
    cut = with_layers(encoder, layers)
    model = bare()
    model.encoder.layer = torch.nn.ModuleList(model.encoder.layer[i] for i in layers)
    assert float((given(cut) - judged(model)).abs().max()) < TOLERANCE
    huggingface.write(cut, tmp_path)
    assert json.loads((tmp_path / "config.json").read_text())["num_hidden_layers"] == len(layers)
    loaded = transformers.AutoModel.from_pretrained(tmp_path).eval()
    assert float((judged(loaded) - given(cut)).abs().max()) < TOLERANCE


@pytest.mark.parametrize("pooling", ["last", "mean"])
def test_sentence_vectors_of_a_causal_encoder_equal_sentence_transformers(
    pooling, tiny_model, tmp_path
):
    checkpoint = with_new_head(as_causal(huggingface.read(tiny_model)), None)
    model = checkpoint.build()
    initialize(model, 0.3)
    huggingface.write(dataclasses.replace(checkpoint, tensors=model.state_dict()), tmp_path)
    Tokenizer.load(tiny_model).save(tmp_path)
    write_sentence_vectors(tmp_path, SentenceVectors(pooling, max_length=16), 32)
    texts = ["The film was good", "a bad play , not very great and not good to see !", "run"]
    judge = sentence_transformers.SentenceTransformer(str(tmp_path), device="cpu")
    wanted = np.asarray(judge.encode(texts, show_progress_bar=False))
    predictor = Predictor.load(str(tmp_path), device="cpu")
    assert predictor.sentence_vectors.pooling == pooling
    assert np.abs(predictor.embed(texts) - wanted).max() < TOLERANCE
    if pooling == "last":
        assert np.array_equal(predictor.embed(texts), predictor.embed(texts, pooling="cls"))
