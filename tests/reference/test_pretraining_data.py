"""Statistics of filbert's pre-training rows beside the published procedures, on a made-up corpus.

benchmarks/masking_statistics.py does the same with 100,000 examples of real text.
"""

from __future__ import annotations

import importlib
import sys
from dataclasses import replace
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest
from tests.corpora import write_corpus

from filbert.data.shards import Corpus

ROOT = Path(__file__).parents[2]
NAMES = ["BERT", "BERT, whole words", "ALBERT", "RoBERTa", "ELECTRA", "SpanBERT"]
EXAMPLES = 2500
# Differences in standard errors. 70 are looked at; by chance one in 16,000 is above 4.
TOLERANCE = 4.0


@pytest.fixture
def statistics(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    monkeypatch.syspath_prepend(str(ROOT / "tests" / "reference"))
    yield importlib.import_module("masking_statistics")
    for name in ("masking_statistics", "pretraining_procedures"):
        sys.modules.pop(name, None)


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Corpus:
    """120 documents of 1 to 40 sentences of 1 to 30 tokens of the tiny vocabulary."""
    draw = np.random.default_rng(0)
    documents = [
        [draw.integers(5, 34, draw.integers(1, 31)).tolist() for _ in range(draw.integers(1, 41))]
        for _ in range(120)
    ]
    return write_corpus(tmp_path_factory.mktemp("corpus"), documents)


def compared(statistics: ModuleType, corpus: Corpus, tiny, name: str, **changed) -> dict:
    """The lines of the table by name; `changed` options go to filbert's side only."""
    options = replace(statistics.OBJECTIVES[name], max_length=64)
    here = statistics.ours(corpus, tiny, replace(options, **changed), EXAMPLES)
    there = statistics.theirs(statistics.documents_of(corpus), tiny, options, EXAMPLES)
    assert len(here) == len(there) == EXAMPLES
    return {line.name: line for line in statistics.compare(options, here, there)}


@pytest.mark.parametrize("name", NAMES)
def test_the_rows_have_the_statistics_of_the_published_procedure(statistics, corpus, tiny, name):
    assert list(statistics.OBJECTIVES) == NAMES
    lines = compared(statistics, corpus, tiny, name)
    far = {name: line for name, line in lines.items() if abs(line.difference) > TOLERANCE}
    assert not far


@pytest.mark.parametrize(
    ("name", "changed", "line"),
    [
        ("BERT", {"mask_rate": 0.16}, "share of tokens chosen"),
        ("BERT", {"mask_style": "electra"}, "of these: mask"),
        ("BERT", {"short_rate": 0.4}, "rows shorter than 3/4"),
        ("BERT", {"short_rate": 0.4}, "tokens of A"),
        ("BERT, whole words", {"masking": "token"}, "masked runs of 2 words"),
        ("ALBERT", {"masking": "word"}, "masked runs of 3 words"),
        ("SpanBERT", {"masking": "ngram"}, "masked runs of 4+ words"),
    ],
)
def test_another_procedure_would_be_noticed(statistics, corpus, tiny, name, changed, line):
    assert abs(compared(statistics, corpus, tiny, name, **changed)[line].difference) > TOLERANCE


def test_fewer_than_half_of_the_pairs_follow_each_other(statistics, corpus, tiny):
    lines = compared(statistics, corpus, tiny, "BERT")
    assert lines["label 1 (random, swapped)"].filbert > 0.52, "single sentences get a stranger"
