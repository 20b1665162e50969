"""Valid corpora and run states, small, and how they are read; people copy those from machine to
machine.
"""

from __future__ import annotations

import contextlib
import json
from pathlib import Path

import numpy as np
import torch

from filbert.data.shards import Corpus, verify_shard
from filbert.train.state import State, newest_state, save_state
from hostile.made import Files, folder_files
from hostile.vocabularies import write_wordpiece


def corpus_folders() -> list[Files]:
    """Two shards."""
    from filbert.files import sha256_of

    def fill(path: Path) -> None:
        (path / "tokenizer").mkdir()
        write_wordpiece(path / "tokenizer")
        shards = []
        for index in range(2):
            arrays = {
                "tokens.npy": np.arange(12, dtype=np.uint16),
                "sentences.npy": np.array([0, 3, 7, 12], np.int32),
                "documents.npy": np.array([0, 1, 3], np.int32),
            }
            folder = path / f"shard-{index:05d}"
            folder.mkdir()
            files = {}
            for name, array in arrays.items():
                np.save(folder / name, array)
                size = (folder / name).stat().st_size
                files[name] = {"bytes": size, "sha256": sha256_of(folder / name)}
            counts = {"documents": 2, "sentences": 3, "tokens": 12}
            shards.append({"name": folder.name, **counts, "files": files})
        manifest = {"format": "filbert corpus", "version": 1, "tokenizer": "x", "shards": shards}
        (path / "manifest.json").write_text(json.dumps(manifest))

    return [folder_files(fill)]


def read_corpus(folder: Path) -> None:
    """Open, look at the ends, check all hashes."""
    corpus = Corpus.open(folder)
    with contextlib.suppress(IndexError):
        borders, firsts = corpus.marks()
        for begin, end in (firsts[:2], firsts[-2:]):
            first, last = int(borders[begin]), int(borders[end])
            corpus.tokens(first, min(last, first + 10**6))
    for shard in corpus.manifest["shards"]:
        verify_shard(corpus.folder, shard)


def state_folders() -> list[Files]:
    """Two states of a run."""

    def fill(path: Path) -> None:
        for step in (1, 2):
            tensors = {"model.weight": torch.arange(6.0), "optimizer.count": torch.tensor(step)}
            save_state(path, State(step=step, tensors=tensors, facts={"step": step}))

    return [folder_files(fill)]


def read_state(folder: Path) -> None:
    """The newest state that is whole; damaged ones are passed over."""
    newest_state(folder)
