"""Sides that turn the sample's texts into token ids."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

from sides.job import Job

Once = Callable[[], dict[str, Any]]

_LONGEST = 256


def sample_texts(path: Path, count: int | None = None) -> list[str]:
    """The first texts of a sample file."""
    from filbert.data.columns import ColumnNames
    from filbert.data.texts import read_texts

    texts = [str(row.values["text"]) for row in read_texts(str(path), ColumnNames())]
    return texts[:count]


def _timed(texts: Sequence[str], ids: Callable[[list[str]], int]) -> Once:
    """A turn: all texts once; `ids` gives the number of tokens."""
    listed = list(texts)
    size = sum(len(text.encode()) for text in listed)

    def once() -> dict[str, Any]:
        started = time.perf_counter()
        tokens = ids(listed)
        seconds = time.perf_counter() - started
        return {"seconds": seconds, "texts": len(listed), "bytes": size, "tokens": tokens}

    return once


def filbert(job: Job, precision: str) -> Once:
    """`Tokenizer.encode`: ids, cut and counted."""
    from filbert.checkpoints.opening import read_tokenizer

    _threads(job)
    tokenizer = read_tokenizer(Path(job.model))

    def ids(texts: list[str]) -> int:
        found = tokenizer.encode(texts, max_length=_LONGEST)
        return sum(len(encoding.input_ids) for encoding in found)

    return _timed(sample_texts(Path(job.data)), ids)


def tokenizers(job: Job, precision: str) -> Once:
    """The library that the other two stand on, alone: ids and offsets, cut."""
    _threads(job)
    library: Any = import_module("tokenizers")
    tokenizer = library.Tokenizer.from_file(str(Path(job.model) / "tokenizer.json"))
    tokenizer.enable_truncation(_LONGEST)
    tokenizer.no_padding()

    def ids(texts: list[str]) -> int:
        return sum(len(encoding.ids) for encoding in tokenizer.encode_batch(texts))

    return _timed(sample_texts(Path(job.data)), ids)


def transformers(job: Job, precision: str) -> Once:
    """AutoTokenizer, called as its documentation does."""
    _threads(job)
    library: Any = import_module("transformers")
    tokenizer = library.AutoTokenizer.from_pretrained(job.model)

    def ids(texts: list[str]) -> int:
        found = tokenizer(texts, truncation=True, max_length=_LONGEST)
        return sum(map(len, found["input_ids"]))

    return _timed(sample_texts(Path(job.data)), ids)


def _threads(job: Job) -> None:
    os.environ["RAYON_NUM_THREADS"] = str(job.threads)
    os.environ["TOKENIZERS_PARALLELISM"] = "true"
