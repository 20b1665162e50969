"""Small corpora of token ids for tests."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path

import numpy as np

from filbert.data.shards import (
    FORMAT_VERSION,
    MANIFEST,
    Corpus,
    Shard,
    join_pieces,
    token_type,
    write_shard,
)
from filbert.files import write_json


def write_corpus(
    folder: Path,
    documents: Iterable[Sequence[Sequence[int]]],
    *,
    vocab_size: int = 2**16,
    shard_documents: int = 1000,
) -> Corpus:
    """Write a small corpus of token ids.

    Args:
        folder: Created.
        documents: Lists of sentences, which are lists of ids; none of them empty.
        vocab_size: Decides the type on disk.
        shard_documents: Documents in each shard.
    """
    parts = [
        Shard(
            np.array([token for one in document for token in one], token_type(vocab_size)),
            np.cumsum([0, *(len(one) for one in document)], dtype=np.int32),
            np.array([0, len(document)], np.int32),
        )
        for document in documents
    ]
    shards = [
        write_shard(folder / f"shard-{number:05}", join_pieces(parts[at : at + shard_documents]))
        for number, at in enumerate(range(0, len(parts), shard_documents))
    ]
    manifest = {"format": "filbert corpus", "version": FORMAT_VERSION, "shards": shards}
    write_json(folder / MANIFEST, manifest | {"tokenizer": ""})
    return Corpus.open(folder)


def documents_of(corpus: Corpus) -> list[list[list[int]]]:
    """The ids of every sentence of every document."""
    borders, firsts = (marks.tolist() for marks in corpus.marks())
    pairs = zip(borders, borders[1:], strict=False)
    sentences = [corpus.tokens(begin, end).tolist() for begin, end in pairs]
    return [sentences[begin:end] for begin, end in zip(firsts, firsts[1:], strict=False)]
