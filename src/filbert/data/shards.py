"""A tokenised corpus on disk: shards of token ids with sentence and document marks.

    manifest.json               what it was made from and how, counts, SHA-256 of every shard file
    tokenizer/                  a copy of the tokenizer
    shard-00000/tokens.npy      uint16 or int32 (T,): token ids, without special tokens
    shard-00000/sentences.npy   int32 (S+1,): where each sentence begins in `tokens`; last = T
    shard-00000/documents.npy   int32 (D+1,): which sentence each document begins with; last = S

No document spans two shards, and no document or sentence is empty.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from reprlib import repr as short
from typing import Any, NamedTuple

import numpy as np
from numpy.lib.format import open_memmap

from filbert.errors import ConfigError, FormatError, printable, unreadable_as
from filbert.files import flush, read_json, sha256_of

MANIFEST = "manifest.json"
PROGRESS = "progress.json"
TOKENIZER = "tokenizer"
FORMAT_VERSION = 1
SHARD_FILES = ("tokens.npy", "sentences.npy", "documents.npy")
_COUNTS = ("tokens", "sentences", "documents")

# Each open shard holds three file descriptors, of which a process often has 1,024.
_OPEN_SHARDS = 64


@dataclass(frozen=True, kw_only=True)
class CorpusOptions:
    """The options that decide the bytes of a corpus.

    Attributes:
        sentences: rules (cut running text) or lines (one sentence a line, as Google's tool
            expects); symbols are always read by lines.
        text_column: name of the column with the text.
        text_pair_column: name of the column with a second text of the same document.
    """

    sentences: str = "rules"
    text_column: str = "text"
    text_pair_column: str | None = None

    def __post_init__(self) -> None:
        if self.sentences not in ("rules", "lines"):
            raise ConfigError(f"--sentences {self.sentences} is not one of rules, lines.")


class Shard(NamedTuple):
    """The three arrays of a shard or of a part of one; see the head of this file."""

    tokens: np.ndarray
    sentences: np.ndarray
    documents: np.ndarray


class Sentences(NamedTuple):
    """Where every sentence and document of a corpus begins: 8 bytes for each.

    Attributes:
        borders: int64 (sentences + 1,): sentence i is the tokens [borders[i], borders[i + 1]).
        firsts: int64 (documents + 1,): number of each document's first sentence.
    """

    borders: np.ndarray
    firsts: np.ndarray


class Corpus:
    """A memory-mapped corpus, created by `open`.

    Attributes:
        folder: The folder; a copy of the tokenizer is in `folder/"tokenizer"`.
        manifest: Content of manifest.json; `manifest["tokenizer"]` is `Tokenizer.fingerprint`.
        num_documents, num_sentences, num_tokens: Of all shards.
        digest: SHA-256 of the hashes of all shard files, in hexadecimal.
    """

    def __init__(self, folder: Path, manifest: dict[str, Any]) -> None:
        self.folder = folder
        self.manifest = manifest
        shards = manifest["shards"]
        self._token_base, self._sentence_base, documents = (
            np.cumsum([0, *(int(shard[name]) for shard in shards)], dtype=np.int64)
            for name in _COUNTS
        )
        self.num_tokens = int(self._token_base[-1])
        self.num_sentences = int(self._sentence_base[-1])
        self.num_documents = int(documents[-1])
        digest = hashlib.sha256()
        for shard in shards:
            for name in SHARD_FILES:
                digest.update(bytes.fromhex(shard["files"][name]["sha256"]))
        self.digest = digest.hexdigest()
        self._shard = lru_cache(_OPEN_SHARDS)(self._map)

    @classmethod
    def open(cls, folder: str | Path) -> Corpus:
        """Open a folder, or raise a FormatError; sizes are checked, contents are not."""
        folder = Path(folder)
        manifest = read_manifest(folder)
        try:
            for shard in manifest["shards"]:
                for name in SHARD_FILES:
                    path = folder / shard["name"] / name
                    wanted = shard["files"][name]["bytes"]
                    size = path.stat().st_size if path.is_file() else 0
                    if size != wanted:
                        raise FormatError(
                            f"{path} is missing or cut off: {size:,} bytes; the manifest says "
                            f"{wanted:,}. Build the corpus again, or copy the folder again."
                        )
                for name in _COUNTS:
                    if type(shard[name]) is not int or not 0 <= shard[name] < 2**48:
                        raise ValueError(f"{name} {short(shard[name])}")
            return cls(folder, manifest)
        except (KeyError, TypeError, ValueError) as error:
            raise FormatError(
                f"{folder / MANIFEST} is damaged: {printable(repr(error), 200)}. "
                "Build the corpus again."
            ) from error

    def marks(self) -> Sentences:
        """Return where all sentences and all documents begin."""
        borders, firsts = [], []
        for index in range(len(self.manifest["shards"])):
            shard = self._shard(index)
            borders.append(shard.sentences[:-1].astype(np.int64) + self._token_base[index])
            firsts.append(shard.documents[:-1].astype(np.int64) + self._sentence_base[index])
        ends = self._token_base[-1:], self._sentence_base[-1:]
        return Sentences(np.concatenate([*borders, ends[0]]), np.concatenate([*firsts, ends[1]]))

    def tokens(self, begin: int, end: int) -> np.ndarray:
        """Return the token ids at the global offsets [begin, end), a copy, int32.

        The range may cross documents and shards.
        """
        if not 0 <= begin <= end <= self.num_tokens:
            raise IndexError(f"tokens [{begin}, {end}) of {self.num_tokens}")
        ids = np.empty(end - begin, np.int32)
        index = int(np.searchsorted(self._token_base, begin, "right")) - 1
        at = begin
        while at < end:
            base, stop = (int(base) for base in self._token_base[index : index + 2])
            upto = min(end, stop)
            ids[at - begin : upto - begin] = self._shard(index).tokens[at - base : upto - base]
            at, index = upto, index + 1
        return ids

    def _map(self, index: int) -> Shard:
        entry = self.manifest["shards"][index]
        path = self.folder / entry["name"]
        try:
            shard = Shard(*(open_memmap(path / name, mode="r") for name in SHARD_FILES))
            sizes = (entry["tokens"], entry["sentences"] + 1, entry["documents"] + 1)
            if [array.shape for array in shard] != [(size,) for size in sizes]:
                raise ValueError("other sizes than in the manifest")
            return shard
        except Exception as error:  # numpy evaluates the header, which may raise anything
            problem = printable(str(error), 200)
            raise FormatError(
                f"{path} cannot be read: {problem}. Build the corpus again."
            ) from error


@unreadable_as(FormatError)
def read_manifest(folder: Path) -> dict[str, Any]:
    """Return the content of a corpus folder's manifest.json, or raise a FormatError."""
    path = folder / MANIFEST
    if not path.is_file():
        if (folder / PROGRESS).is_file():
            raise FormatError(
                f"{folder}: this corpus is not finished. Run the same `filbert corpus` command "
                "again; it continues where it stopped."
            )
        raise FormatError(f"{folder}: no {MANIFEST} in it, so no folder of `filbert corpus`.")
    manifest = read_json(path)
    if (manifest.get("format"), manifest.get("version")) != ("filbert corpus", FORMAT_VERSION):
        raise FormatError(f"{path}: not of this version of filbert. Build the corpus again.")
    return manifest


@unreadable_as(FormatError)
def verify_shard(folder: Path, shard: Mapping[str, Any]) -> None:
    """Raise a FormatError unless the files of a shard have the SHA-256 of the manifest."""
    for name, entry in shard["files"].items():
        path = folder / shard["name"] / name
        if sha256_of(path) != entry["sha256"]:
            raise FormatError(f"{path} has changed since it was written. Build the corpus again.")


def join_pieces(pieces: Sequence[Shard]) -> Shard:
    """Return several parts end to end as one shard, with shifted marks."""
    tokens, *marks = zip(*pieces, strict=True)
    sizes = ([np.zeros(1, np.int32), *map(np.diff, own)] for own in marks)
    sentences, documents = (np.cumsum(np.concatenate(own), dtype=np.int32) for own in sizes)
    return Shard(np.concatenate(tokens), sentences, documents)


def write_shard(folder: Path, shard: Shard) -> dict[str, Any]:
    """Write and flush the files of a shard into a new folder; return its entry of the manifest."""
    folder.mkdir(parents=True)
    files = {}
    for name, array in zip(SHARD_FILES, shard, strict=True):
        path = folder / name
        np.save(path, array)
        flush(path)
        files[name] = {"bytes": path.stat().st_size, "sha256": sha256_of(path)}
    return {
        "name": folder.name,
        "documents": len(shard.documents) - 1,
        "sentences": len(shard.sentences) - 1,
        "tokens": len(shard.tokens),
        "files": files,
    }


def token_type(vocab_size: int) -> np.dtype[Any]:
    """Return the smallest type for all ids of a vocabulary: uint16 or int32."""
    return np.dtype(np.uint16 if vocab_size <= 2**16 else np.int32)
