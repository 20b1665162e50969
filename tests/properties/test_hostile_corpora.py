"""Corpora from strangers; those damaged at random are in test_hostile_files.py."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest

from filbert.data.shards import Corpus


@pytest.mark.parametrize(
    "changes", [{"tokens": 1e999}, {"documents": -1}, {"sentences": 10**30}, {"tokens": True}]
)
def test_a_corpus_that_miscounts_is_refused(tmp_path, changes, refused):
    shard = {"name": "x", "files": {}, "tokens": 1, "sentences": 1, "documents": 1, **changes}
    shard["files"] = {f"{name}.npy": {"bytes": 0} for name in ("tokens", "sentences", "documents")}
    (tmp_path / "x").mkdir()
    for name in shard["files"]:
        (tmp_path / "x" / name).touch()
    manifest = {"format": "filbert corpus", "version": 1, "shards": [shard]}
    (tmp_path / "manifest.json").write_text(json.dumps(manifest))
    refused(lambda: Corpus.open(tmp_path), "damaged", next(iter(changes)))


@pytest.mark.parametrize("damage", [b"{'descr': '<u2', (\n", b"PK\x05\x06" + bytes(18)])
def test_a_corpus_with_a_damaged_array_is_refused(tmp_path, damage, refused):
    sizes = {"tokens": 4, "sentences": 1, "documents": 1}
    shard: dict[str, Any] = {"name": "shard-00000", **sizes, "files": {}}
    (tmp_path / "shard-00000").mkdir()
    for name in ("tokens", "sentences", "documents"):
        path = tmp_path / "shard-00000" / f"{name}.npy"
        np.save(path, np.zeros(4, np.int32))
        data = path.read_bytes()
        path.write_bytes(damage if damage[:2] == b"PK" else data[:10] + damage + data[10:])
        shard["files"][f"{name}.npy"] = {"bytes": path.stat().st_size, "sha256": "0" * 64}
    manifest = {"format": "filbert corpus", "version": 1, "shards": [shard]}
    (tmp_path / "manifest.json").write_text(json.dumps(manifest))
    refused(lambda: Corpus.open(tmp_path).tokens(0, 1), "cannot be read")
