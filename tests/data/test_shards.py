"""The corpus on the disk, as its readers see it."""

from __future__ import annotations

import json

import numpy as np
import pytest
from tests.corpora import documents_of, write_corpus

from filbert.data.shards import Corpus, verify_shard
from filbert.errors import FormatError

DOCUMENTS = [[[1, 2], [3]], [[4, 5, 6]], [[7], [8], [9, 10]], [[11]], [[12], [13, 14]]]
FLAT = [token for document in DOCUMENTS for sentence in document for token in sentence]


@pytest.fixture(params=[1, 2, 5])
def corpus(request, tmp_path) -> Corpus:
    return write_corpus(tmp_path / "c", DOCUMENTS, shard_documents=request.param)


def test_every_sentence_comes_back_from_its_place(corpus):
    assert all(marks.dtype == np.int64 for marks in corpus.marks())
    assert documents_of(corpus) == DOCUMENTS
    assert (corpus.num_documents, corpus.num_sentences, corpus.num_tokens) == (5, 9, 14)


def test_any_range_of_tokens_is_a_copy_across_shards(corpus):
    for begin in range(15):
        for end in range(begin, 15):
            found = corpus.tokens(begin, end)
            assert found.dtype == np.int32 and found.tolist() == FLAT[begin:end]
    corpus.tokens(0, 14)[:] = 0
    assert corpus.tokens(0, 14).tolist() == FLAT


def test_what_is_not_there_is_an_index_error(corpus):
    with pytest.raises(IndexError):
        corpus.tokens(3, 15)


def test_a_large_vocabulary_takes_four_bytes_a_token(tmp_path):
    corpus = write_corpus(tmp_path / "c", [[[70000, 1]]], vocab_size=70001)
    assert corpus.tokens(0, 2).tolist() == [70000, 1]
    small = write_corpus(tmp_path / "d", [[[65535]]], vocab_size=2**16)
    assert small.tokens(0, 1).tolist() == [65535]
    assert np.load(tmp_path / "d/shard-00000/tokens.npy").dtype == np.uint16


def test_a_damaged_folder_is_named(tmp_path):
    corpus = write_corpus(tmp_path / "c", DOCUMENTS)
    tokens = corpus.folder / "shard-00000/tokens.npy"
    content = tokens.read_bytes()
    (shard,) = corpus.manifest["shards"]
    verify_shard(corpus.folder, shard)
    tokens.write_bytes(content[:-1] + b"\xff")
    with pytest.raises(FormatError, match="tokens.npy has changed"):
        verify_shard(corpus.folder, shard)
    tokens.write_bytes(content[:-2])
    with pytest.raises(FormatError, match="missing or cut off"):
        Corpus.open(corpus.folder)
    tokens.unlink()
    with pytest.raises(FormatError, match="tokens.npy is missing or cut off"):
        Corpus.open(corpus.folder)


def test_what_is_no_corpus_says_why(tmp_path):
    with pytest.raises(FormatError, match="no manifest.json"):
        Corpus.open(tmp_path)
    (tmp_path / "progress.json").write_text("{}")
    with pytest.raises(FormatError, match="not finished"):
        Corpus.open(tmp_path)
    manifest = tmp_path / "manifest.json"
    for content, message in {
        "{": "manifest.json",
        "[]": "not an object",
        json.dumps({"format": "filbert corpus", "version": 99}): "not of this version",
        json.dumps({"format": "filbert corpus", "version": 1}): "damaged: KeyError",
    }.items():
        manifest.write_text(content)
        with pytest.raises(FormatError, match=message):
            Corpus.open(tmp_path)
