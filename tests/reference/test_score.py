"""score against transformers: a padded batch of masked copies, one for each token."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from tests.conftest import sizes
from tests.reference.theirs import transformers

from filbert.inference.predictor import Predictor
from filbert.inference.score import score_texts

SIZES: dict[str, Any] = sizes(layers=2, width=32, heads=4, inner=48, positions=66)
ONE_TYPE = {"type_vocab_size": 1, "pad_token_id": 1}
# name: (what the classes are called after, more of the configuration, shared tokenizer)
CASES: dict[str, tuple[str, dict[str, Any], str]] = {
    "wordpiece": ("Bert", {}, "bert-base-uncased"),
    "byte-level": ("Roberta", ONE_TYPE, "roberta-base"),
}
TEXTS = ["Paris is the capital of France.", "Unbelievably, café owners\tagree!", "no"]


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", CASES)
def test_scores_equal_those_of_a_batch_of_masked_copies(name, shared_data, tmp_path):
    kind, more, vocabulary = CASES[name]
    place = shared_data / "tokenizers" / vocabulary
    tokenizer = getattr(transformers, f"{kind}Tokenizer").from_pretrained(place)
    made = getattr(transformers, f"{kind}ForMaskedLM")
    torch.manual_seed(0)
    judge = made(made.config_class(**SIZES, **more, vocab_size=len(tokenizer))).eval()
    with torch.no_grad():
        for parameter in judge.parameters():
            # Far from uniform, so that scores differ well beyond the tolerance.
            parameter += 0.3 * torch.randn(parameter.shape)
    judge.save_pretrained(tmp_path)
    tokenizer.save_pretrained(tmp_path)
    found = score_texts(Predictor.load(tmp_path, device="cpu"), TEXTS, with_tokens=True)
    for text, answer in zip(TEXTS, found, strict=True):
        ids = tokenizer(text, return_tensors="pt")["input_ids"][0]
        places = torch.arange(1, len(ids) - 1)
        copies = ids.repeat(len(places), 1)
        copies[range(len(places)), places] = tokenizer.mask_token_id
        with torch.no_grad():
            logs = judge(copies).logits.log_softmax(-1)
        wanted = logs[range(len(places)), places, ids[places]]
        # Logits of some tens, in float32 on both sides.
        assert [t["log_probability"] for t in answer["tokens"]] == pytest.approx(
            wanted.tolist(), abs=1e-4
        )
        assert answer["pll"] == pytest.approx(float(wanted.sum()), abs=1e-3)
        assert answer["num_tokens"] == len(ids)
