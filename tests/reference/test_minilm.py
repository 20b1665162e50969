"""MiniLM's real weights against transformers and sentence-transformers."""

from __future__ import annotations

import warnings
from pathlib import Path

import numpy as np
import pytest
import torch

import filbert
from filbert.batch import pack, split
from filbert.checkpoints import huggingface

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    import sentence_transformers
    import transformers

transformers.utils.logging.disable_progress_bar()

TEXTS = [
    "A man is eating food.",
    "No.",
    "The encoder reads packed sequences, and nothing is padded anywhere but inside attention.",
    "Überraschung! 今日は 1,234.5 ...",
    "word " * 200,
]
# Twelve products of 384 and 1,536 terms deep, float32 rounding reaches a few 1e-6.
TOLERANCE = 1e-5


@pytest.fixture(scope="module")
def folder(published_minilm: Path) -> Path:
    return published_minilm


def test_the_built_in_vectors_are_near_the_published_ones(folder):
    stored, published = (np.asarray(filbert.load(m).embed(TEXTS)) for m in ("minilm", folder))
    # 8 bits with a scale a row: 0.947 to 0.988 here, and 0.967 or more in STS-B.
    assert ((stored * published).sum(1) > 0.94).all()


@pytest.fixture(scope="module")
def ids(folder: Path) -> list[list[int]]:
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    return tokenizer(TEXTS, truncation=True, max_length=256)["input_ids"]


@pytest.fixture(scope="module")
def hidden(folder: Path, ids: list[list[int]]) -> tuple[torch.Tensor, ...]:
    model, batch = huggingface.read(folder).build(), pack(ids)
    with torch.no_grad():
        return split(model(batch), batch)


def test_the_last_hidden_state_equals_transformers(folder, ids, hidden):
    judge = transformers.AutoModel.from_pretrained(folder, attn_implementation="eager").eval()
    for row, found in zip(ids, hidden, strict=True):
        with torch.no_grad():
            wanted = judge(input_ids=torch.tensor([row])).last_hidden_state[0]
        assert float((found - wanted).abs().max()) < TOLERANCE


def test_sentence_vectors_equal_sentence_transformers(folder, hidden):
    judge = sentence_transformers.SentenceTransformer(str(folder), device="cpu")
    wanted = judge.encode(TEXTS, batch_size=2, show_progress_bar=False)
    means = torch.stack([rows.mean(0) for rows in hidden])
    found = torch.nn.functional.normalize(means, dim=1).numpy()
    assert float(np.abs(found - wanted).max()) < TOLERANCE


def test_what_filbert_writes_of_it_transformers_loads_whole(folder, tmp_path):
    huggingface.write(huggingface.read(folder), tmp_path)
    judges = [
        transformers.AutoModel.from_pretrained(place, output_loading_info=True)
        for place in (folder, tmp_path)
    ]
    assert not any(judges[1][1].values())
    old, new = (model.state_dict() for model, _ in judges)
    assert old.keys() == new.keys()
    assert all(torch.equal(new[name], value) for name, value in old.items())
