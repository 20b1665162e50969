"""Rerankers against sentence-transformers' CrossEncoder: classifiers, and lists of modules."""

from __future__ import annotations

import json
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from filbert.checkpoints import huggingface
from filbert.checkpoints.checkpoint import with_new_head
from filbert.cli.verbs.models import convert
from filbert.errors import FormatError
from filbert.inference.predictor import Predictor
from filbert.text.tokenizer import Tokenizer

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    from sentence_transformers import CrossEncoder
    from sentence_transformers.base.modules import Dense, Transformer
    from sentence_transformers.sentence_transformer.modules import LayerNorm, Pooling

QUERY = "was the film good ?"
TEXTS = ["the film was very good", "a bad play", "", "he plays a great play , and not badly !"]
PAIRS = [(QUERY, text) for text in TEXTS]
TOLERANCE = 1e-6  # two layers in float32, summed in another order; logits are about 1


def scores(folder: Path) -> np.ndarray:
    return np.asarray(CrossEncoder(str(folder), device="cpu").predict(PAIRS))


def values(folder: Path) -> np.ndarray:
    return np.array([answer["value"] for answer in Predictor.load(folder).predict(PAIRS)])


def classifier(tiny_model: Path, folder: Path, outputs: int = 1) -> Path:
    """A folder of transformers with a head of so many outputs."""
    torch.manual_seed(1)
    labels = [f"LABEL_{i}" for i in range(outputs)]
    checkpoint = with_new_head(huggingface.read(tiny_model), "sequence", labels=labels)
    checkpoint.tensors["head.out.weight"] *= 50
    huggingface.write(checkpoint, folder)
    Tokenizer.load(tiny_model).save(folder)
    return folder


def modular(tiny_model: Path, folder: Path, activation: Any) -> Path:
    """A reranker as the ettin-rerankers are."""
    torch.manual_seed(2)
    norm = LayerNorm(24)
    torch.nn.init.normal_(norm.norm.weight)
    modules = [
        Transformer(str(tiny_model)),
        Pooling(32, "cls"),
        Dense(32, 24, bias=False, activation_function=torch.nn.GELU()),
        norm,
        Dense(24, 1, activation_function=None, module_output_name="scores"),
    ]
    model = CrossEncoder(modules=modules, device="cpu", activation_fn=activation)
    model.save(str(folder), create_model_card=False)
    return folder


@pytest.mark.parametrize("activation", [torch.nn.Sigmoid(), torch.nn.Identity()])
@pytest.mark.parametrize("layout", ["of version 3", "of version 4", "now", "modules"])
def test_pairs_get_the_scores_of_the_cross_encoder_also_once_converted(
    tiny_model, tmp_path, layout, activation
):
    folder = tmp_path / "in"
    if layout == "modules":
        modular(tiny_model, folder, activation)
    else:
        classifier(tiny_model, folder)
    if layout == "now":
        old, folder = folder, tmp_path / "now"
        model = CrossEncoder(str(old), device="cpu", activation_fn=activation)
        model.save(str(folder), create_model_card=False)
    if layout.startswith("of"):
        name = f"torch.nn.modules.{'linear' if 'Id' in str(activation) else 'activation'}."
        name += str(activation).removesuffix("()")
        keys: dict[str, Any] = {"sentence_transformers": {"activation_fn": name, "version": "4"}}
        if layout == "of version 3":
            keys = {"sbert_ce_default_activation_function": name}
        config = json.loads((folder / "config.json").read_text())
        (folder / "config.json").write_text(json.dumps(config | keys))
    wanted = scores(folder)
    assert (((wanted > 0) & (wanted < 1)).all()) == isinstance(activation, torch.nn.Sigmoid)
    assert np.abs(values(folder) - wanted).max() < TOLERANCE
    convert(str(folder), tmp_path / "out", to="huggingface")
    assert np.array_equal(values(tmp_path / "out"), values(folder))
    assert np.abs(scores(tmp_path / "out") - wanted).max() < TOLERANCE


def test_a_cross_encoder_of_three_classes_gives_their_probabilities(tiny_model, tmp_path):
    model = CrossEncoder(str(classifier(tiny_model, tmp_path / "in", 3)), device="cpu")
    model.save(str(tmp_path / "saved"), create_model_card=False)
    wanted = model.predict(PAIRS, apply_softmax=True)
    answers = Predictor.load(tmp_path / "saved").predict(PAIRS)
    found = np.array([list(answer["scores"].values()) for answer in answers])
    assert np.abs(found - wanted).max() < TOLERANCE


def test_the_vectors_of_a_reranker_of_modules_are_pooled_tokens(tiny_model, tmp_path):
    predictor = Predictor.load(modular(tiny_model, tmp_path / "in", torch.nn.Sigmoid()))
    wanted = Predictor.load(tiny_model).embed(TEXTS, pooling="cls")
    assert np.array_equal(predictor.embed(TEXTS), wanted)


def test_a_reranker_of_several_scores_or_of_the_next_token_is_refused(tiny_model, tmp_path):
    folder = modular(tiny_model, tmp_path / "in", torch.nn.Sigmoid())
    modules = json.loads((folder / "modules.json").read_text())
    (folder / "modules.json").write_text(json.dumps(modules[:3]))
    config = folder / modules[2]["path"] / "config.json"
    content = json.loads(config.read_text()) | {"module_output_name": "scores"}
    config.write_text(json.dumps(content))
    with pytest.raises(FormatError, match="only rerankers with one score"):
        Predictor.load(folder)
    kind = "sentence_transformers.cross_encoder.modules.logit_score.LogitScore"
    (folder / "modules.json").write_text(json.dumps([modules[0], {**modules[1], "type": kind}]))
    with pytest.raises(FormatError, match="next token.*ettin-reranker"):
        Predictor.load(folder)
