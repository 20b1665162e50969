"""fill against transformers' fill-mask pipeline: tiny random models over real vocabularies."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import torch
from tests.conftest import sizes
from tests.reference.theirs import transformers

from filbert.inference.predictor import Predictor

# The bound that was asked for; both compute in float32.
TOLERANCE = 1e-5

_SIZES: dict[str, Any] = sizes(layers=2, width=32, heads=4, inner=48, positions=66)
_DISTIL = {
    "dim": 32,
    "n_layers": 2,
    "n_heads": 4,
    "hidden_dim": 48,
    "max_position_embeddings": 66,
}
# name: (class of the model, sizes, shared tokenizer, its class)
CASES: dict[str, tuple[str, dict[str, Any], str, str]] = {
    "bert": ("BertForMaskedLM", _SIZES, "bert-base-uncased", "BertTokenizer"),
    "bert-pretraining": ("BertForPreTraining", _SIZES, "bert-base-cased", "BertTokenizer"),
    "bert-chinese": ("BertForMaskedLM", _SIZES, "bert-base-chinese", "BertTokenizer"),
    "distilbert": ("DistilBertForMaskedLM", _DISTIL, "bert-base-uncased", "BertTokenizer"),
    "electra": (
        "ElectraForMaskedLM",
        {**_SIZES, "embedding_size": 16},
        "bert-base-uncased",
        "BertTokenizer",
    ),
    "roberta": (
        "RobertaForMaskedLM",
        {**_SIZES, "type_vocab_size": 1, "pad_token_id": 1},
        "roberta-base",
        "RobertaTokenizer",
    ),
    "albert": (
        "AlbertForMaskedLM",
        {**_SIZES, "embedding_size": 16},
        "albert-base-v2",
        "AlbertTokenizer",
    ),
    "albert-pretraining": (
        "AlbertForPreTraining",
        {**_SIZES, "embedding_size": 16},
        "albert-base-v2",
        "AlbertTokenizer",
    ),
}
TEXTS = [
    "Paris is the [MASK] of France.",
    "[MASK] went to see the play, and it was very [MASK]!",
    "Not the [MASK]",
    "un[MASK] happy ([MASK]) words",
]


@cache
def judge_and_ours(name: str, tokenizers: Path, root: Path) -> tuple[Any, Predictor]:
    kind, sizes, tokenizer_name, tokenizer_kind = CASES[name]
    tokenizer = getattr(transformers, tokenizer_kind).from_pretrained(
        str(tokenizers / tokenizer_name)
    )
    made = getattr(transformers, kind)
    torch.manual_seed(len(name))
    model = made(made.config_class(**{**sizes, "vocab_size": len(tokenizer)})).eval()
    generator = torch.Generator().manual_seed(5)
    with torch.no_grad():
        for parameter in model.parameters():
            # Far from uniform, so that scores differ well beyond the tolerance.
            parameter += 0.3 * torch.randn(parameter.shape, generator=generator)
    folder = root / name
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    judge = transformers.pipeline("fill-mask", model=str(folder), device="cpu")
    return judge, Predictor.load(folder, device="cpu")


@pytest.fixture(scope="session")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("fill")


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", CASES)
def test_ids_and_scores_equal_the_fill_mask_pipeline(name, shared_data, root):
    judge, ours = judge_and_ours(name, shared_data / "tokenizers", root)
    answers = ours.fill(TEXTS, top=7)
    for text, answer in zip(TEXTS, answers, strict=True):
        wanted = judge(text.replace("[MASK]", judge.tokenizer.mask_token), top_k=7)
        wanted = wanted if isinstance(wanted[0], list) else [wanted]
        assert len(answer["candidates"]) == len(wanted) == text.count("[MASK]")
        for found, expected in zip(answer["candidates"], wanted, strict=True):
            assert [c["id"] for c in found] == [c["token"] for c in expected]
            assert [c["score"] for c in found] == pytest.approx(
                [c["score"] for c in expected], abs=TOLERANCE
            )
        assert answer["num_tokens"] == len(
            judge.tokenizer(text.replace("[MASK]", judge.tokenizer.mask_token))["input_ids"]
        )


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", ["bert", "roberta", "albert"])
def test_a_candidate_reads_as_the_pipeline_writes_it_but_for_the_marks(name, shared_data, root):
    judge, ours = judge_and_ours(name, shared_data / "tokenizers", root)
    text = "the [MASK] was"
    (found,) = ours.fill(text, top=40)["candidates"]
    expected = judge(text.replace("[MASK]", judge.tokenizer.mask_token), top_k=40)
    for ours_one, theirs in zip(found, expected, strict=True):
        assert ours_one["token"].strip() == theirs["token_str"].removeprefix("##").strip()
    assert not any(c["token"].startswith(("##", "Ġ", "▁")) for c in found)


def test_a_judge_with_one_weight_changed_disagrees(shared_data, root):
    """The control: the comparison above sees a wrong bias of the head."""
    _, ours = judge_and_ours("bert", shared_data / "tokenizers", root)
    before = json.dumps(ours.fill(TEXTS[0])["candidates"])
    head = ours.model.head
    with torch.no_grad():
        head.bias[7] += 20
        changed = ours.fill(TEXTS[0])["candidates"][0]
        head.bias[7] -= 20
    assert changed[0]["id"] == 7
    assert json.dumps(changed) != before
