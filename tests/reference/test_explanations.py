"""Shares of words against gradients that go through transformers' own models.

Their `inputs_embeds` stand where our hook puts word vectors. Random weights, float32, CPU; the
integral is the plain midpoint rule.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from tests.conftest import sizes
from tests.reference.theirs import shaken, transformers
from torch import Tensor

from filbert.checkpoints import huggingface
from filbert.errors import ConfigError
from filbert.inference.predictor import Predictor
from filbert.inspect.explain import attribute, explain, find_target
from filbert.tasks.base import Task
from filbert.tasks.classification import Classification
from filbert.tasks.tagging import Tagging
from filbert.text.tokenizer import Tokenizer

TEXT = "the film was not very good, and he played badly!"
# A few roundings of float32, in gradients of numbers around 1.
TOLERANCE = 1e-5

_SIZES: dict[str, Any] = sizes(
    vocab_size=34, layers=3, width=48, heads=4, inner=80, positions=41, pad_token_id=0, num_labels=3
)
_BYTES = {"vocab_size": 300, "pad_token_id": 1}
_DISTIL = {"dim": 48, "n_layers": 3, "n_heads": 4, "hidden_dim": 80}
JUDGES: dict[str, tuple[Any, Any, dict[str, Any]]] = {
    "bert": (transformers.BertConfig, transformers.BertForSequenceClassification, {}),
    "albert": (
        transformers.AlbertConfig,
        transformers.AlbertForSequenceClassification,
        {"embedding_size": 24, "vocab_size": 60},
    ),
    "electra": (
        transformers.ElectraConfig,
        transformers.ElectraForSequenceClassification,
        {"embedding_size": 24},
    ),
    "distilbert": (
        transformers.DistilBertConfig,
        transformers.DistilBertForSequenceClassification,
        _DISTIL,
    ),
    "roberta": (
        transformers.RobertaConfig,
        transformers.RobertaForSequenceClassification,
        _BYTES | {"type_vocab_size": 1},
    ),
    "modernbert": (
        transformers.ModernBertConfig,
        transformers.ModernBertForSequenceClassification,
        _BYTES
        | {
            "local_attention": 8,
            "global_attn_every_n_layers": 2,
            "global_rope_theta": 900.0,
            "local_rope_theta": 20.0,
        }
        | dict.fromkeys(("bos_token_id", "cls_token_id"), 0)
        | dict.fromkeys(("eos_token_id", "sep_token_id"), 2),
    ),
}
JUDGES["eurobert"] = (
    transformers.EuroBertConfig,
    transformers.EuroBertForSequenceClassification,
    {"num_key_value_heads": 2},
)
# The vocabulary of a family; WordPiece where none is named.
_KINDS = {
    "albert": "unigram_pieces",
    "roberta": "byte_pieces",
    "modernbert": "byte_pieces",
}


def ours(judge: Any, task: Task, folder: Path, tokenizer: Tokenizer) -> Predictor:
    judge.save_pretrained(folder)
    return Predictor(huggingface.read(folder).build(), tokenizer, task)


def their_shares(judge: Any, target: Any, start: Tensor, number: Any, steps: int) -> np.ndarray:
    """The integral from `start` to the text, by token; with no step the gradient times input."""
    ids = torch.from_numpy(target.encoding.input_ids).long()[None]
    types = torch.from_numpy(target.encoding.token_type_ids).long()[None]
    has_types = judge.config.model_type not in ("distilbert", "modernbert", "eurobert")
    kinds = {"token_type_ids": types} if has_types else {}
    end = judge.get_input_embeddings()(ids).detach()
    places = (torch.arange(steps) + 0.5) / steps if steps else torch.ones(1)
    points = (start + places[:, None, None] * (end - start)).requires_grad_()
    kinds = {name: value.expand(len(places), -1) for name, value in kinds.items()}
    found = judge(inputs_embeds=points, **kinds)
    (gradient,) = torch.autograd.grad(number(found).sum(), points)
    return ((end[0] - start) * gradient.mean(0)).sum(-1).squeeze(0).numpy()


def odds(logits: Tensor, index: int) -> Tensor:
    shares = torch.softmax(logits.double(), -1)[:, index]
    return torch.log(shares) - torch.log1p(-shares)


@pytest.fixture
def pieces(family: str, request: pytest.FixtureRequest) -> Tokenizer:
    """A vocabulary of the kind that the family comes with."""
    made: Tokenizer = request.getfixturevalue(_KINDS.get(family, "tiny"))
    return made


@pytest.mark.parametrize("family", JUDGES)
def test_words_are_whole_their_shares_add_up_and_gradients_are_those_of_transformers(
    family, tmp_path, pieces
):
    config, kind, sizes = JUDGES[family]
    judge = shaken(kind(config(**{**_SIZES, **sizes})), noise=0.25, scale=0.5)
    predictor = ours(judge, Classification(labels=("a", "b", "c")), tmp_path, pieces)
    target = find_target(predictor, TEXT, target="b")
    usual = attribute(predictor, target, steps=256)
    assert abs(usual.error) <= 0.01 * abs(usual.value - usual.baseline_value)
    assert [word.text for word in target.words] == re.findall(r"\w+|[^\w\s]", TEXT)
    assert family == "albert" or any(len(word.rows) > 1 for word in target.words)
    wanted = their_shares(judge, target, torch.zeros(()), lambda found: odds(found.logits, 1), 0)
    if family == "modernbert":
        # LayerNorm of a word vector alone ignores its length; only its epsilon is left.
        assert np.abs(wanted).max() < 1e-3
        with pytest.raises(ConfigError, match="normalises every word vector"):
            attribute(predictor, target, method="gradient")
        return
    one = attribute(predictor, target, method="gradient")
    assert np.abs(one.pieces - wanted).max() < TOLERANCE
    assert np.abs(wanted).max() > 100 * TOLERANCE


@pytest.mark.parametrize("task", ["classification", "tagging"])
def test_integrated_gradients_are_those_of_transformers(task, tmp_path, tiny):
    tasks: dict[str, tuple[str, Task, Any, dict[str, Any]]] = {
        "classification": ("Sequence", Classification(labels=("a", "b", "c")), TEXT, {}),
        "tagging": ("Token", Tagging(labels=("O", "B-x", "I-x")), TEXT, {"word": "good"}),
    }
    name, own, item, options = tasks[task]
    kind = getattr(transformers, f"BertFor{name}Classification")
    judge = shaken(kind(transformers.BertConfig(**_SIZES)), noise=0.25, scale=0.5)
    predictor = ours(judge, own, tmp_path, tiny)
    one = explain(predictor, item, steps=64, **options)
    ids = torch.from_numpy(one.target.encoding.input_ids).long()
    masked = torch.where(torch.isin(ids, torch.tensor([2, 3])), ids, 4)
    table = judge.get_input_embeddings().weight.detach()
    at = own.labels.index(one.target.label) if own.labels else 0

    def number(found: Any) -> Tensor:
        if task == "classification":
            return odds(found.logits, at)
        return odds(found.logits[:, 6], at)

    wanted = their_shares(judge, one.target, table[masked], number, 200)
    # What the midpoint rule misses with 200 points.
    assert np.abs(one.pieces - wanted).max() < 1e-3 * np.abs(wanted).max()
    assert np.abs(wanted).max() > 0.01
