"""A tokenised corpus on the disk: shards of token ids with sentence and document marks.

    manifest.json               what it was made from and how, counts, sha256 of every shard file
    tokenizer/                  a copy of the tokenizer
    shard-00000/tokens.npy      uint16 or int32 (T,): token ids, without special tokens
    shard-00000/sentences.npy   int32 (S+1,): where each sentence begins in `tokens`; last = T
    shard-00000/documents.npy   int32 (D+1,): which sentence each document begins with; last = S

No document spans two shards, and no document or sentence is without a token.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from reprlib import repr as short
from typing import Any, NamedTuple

import numpy as np
from numpy.lib.format import open_memmap

from filbert.errors import FormatError, printable, unreadable_as

MANIFEST = "manifest.json"
PROGRESS = "progress.json"
TOKENIZER = "tokenizer"
FORMAT_VERSION = 1
SHARD_FILES = ("tokens.npy", "sentences.npy", "documents.npy")

# Each open shard holds three file descriptors, of which a process often has 1,024.
_OPEN_SHARDS = 64


class Shard(NamedTuple):
    """The three arrays of a shard, or of a piece of one; see the head of this file."""

    tokens: np.ndarray
    sentences: np.ndarray
    documents: np.ndarray


class Corpus:
    """What `filbert corpus` wrote, memory-mapped. `open` makes one; it can be pickled.

    Attributes:
        folder: where it lies; a copy of its tokenizer is in `folder/"tokenizer"`.
        manifest: the content of manifest.json; `manifest["tokenizer"]` is `Tokenizer.fingerprint`.
        num_documents, num_sentences, num_tokens: of all shards; no special tokens are stored.
        digest: sha256 over the manifest's shard hashes, in hexadecimal.
    """

    def __init__(self, folder: Path, manifest: dict[str, Any]) -> None:
        self.folder = folder
        self.manifest = manifest
        shards = manifest["shards"]
        self._document_base = _bases(shards, "documents")
        self._token_base = _bases(shards, "tokens")
        self.num_documents = int(self._document_base[-1])
        self.num_sentences = sum(shard["sentences"] for shard in shards)
        self.num_tokens = int(self._token_base[-1])
        self.digest = digest_of(shards)
        self._shard = lru_cache(_OPEN_SHARDS)(self._map)

    def __reduce__(self) -> tuple[Any, ...]:
        return Corpus.open, (self.folder,)

    @classmethod
    def open(cls, folder: str | Path) -> Corpus:
        """Map a folder; sizes are checked, contents are not (`verify` does).

        Raises:
            FormatError: no corpus, an unfinished or a damaged one.
        """
        folder = Path(folder)
        manifest = read_manifest(folder)
        try:
            for shard in manifest["shards"]:
                for name in SHARD_FILES:
                    path = folder / shard["name"] / name
                    wanted = shard["files"][name]["bytes"]
                    found = path.stat().st_size if path.is_file() else None
                    if found != wanted:
                        state = "is missing" if found is None else f"has {found:,} bytes"
                        raise FormatError(
                            f"{path} {state}; the manifest says {wanted:,} bytes. "
                            "Build the corpus again, or copy the folder again."
                        )
                for name in ("tokens", "sentences", "documents"):
                    if type(shard[name]) is not int or not 0 <= shard[name] < 2**48:
                        raise ValueError(f"{name} {short(shard[name])}")
            return cls(folder, manifest)
        except (KeyError, TypeError, ValueError) as error:
            raise FormatError(
                f"{folder / MANIFEST} is damaged: {printable(repr(error), 200)} where something "
                "else was expected. Build the corpus again."
            ) from error

    def borders(self, document: int) -> np.ndarray:
        """Where the sentences of a document begin and end, as global token offsets.

        Returns:
            int64 (n+1,): sentence i of the document is [borders[i], borders[i+1]).
        """
        if not 0 <= document < self.num_documents:
            raise IndexError(f"document {document} of {self.num_documents}")
        index = int(np.searchsorted(self._document_base, document, "right")) - 1
        shard = self._shard(index)
        local = document - int(self._document_base[index])
        first, last = (int(mark) for mark in shard.documents[local : local + 2])
        marks: np.ndarray = shard.sentences[first : last + 1].astype(np.int64)
        return marks + int(self._token_base[index])

    def tokens(self, begin: int, end: int) -> np.ndarray:
        """Token ids at the global offsets [begin, end); may cross documents and shards.

        Returns:
            int32 (end - begin,), a copy.
        """
        if not 0 <= begin <= end <= self.num_tokens:
            raise IndexError(f"tokens [{begin}, {end}) of {self.num_tokens}")
        found = np.empty(end - begin, np.int32)
        index = int(np.searchsorted(self._token_base, begin, "right")) - 1
        at = begin
        while at < end:
            base, stop = (int(base) for base in self._token_base[index : index + 2])
            upto = min(end, stop)
            found[at - begin : upto - begin] = self._shard(index).tokens[at - base : upto - base]
            at, index = upto, index + 1
        return found

    def verify(self) -> None:
        """Read every shard file and compare its sha256 with the manifest.

        Raises:
            FormatError: the first file that differs.
        """
        for shard in self.manifest["shards"]:
            verify_shard(self.folder, shard)

    def _map(self, index: int) -> Shard:
        entry = self.manifest["shards"][index]
        path = self.folder / entry["name"]
        try:
            shard = Shard(*(open_memmap(path / name, mode="r") for name in SHARD_FILES))
        except Exception as error:  # a damaged header is Python's to parse, and fails as that does
            reason = printable(str(error), 200)
            raise FormatError(
                f"{path} cannot be read: {reason}. Build the corpus again."
            ) from error
        sizes = (entry["tokens"], entry["sentences"] + 1, entry["documents"] + 1)
        if tuple(array.shape for array in shard) != tuple((size,) for size in sizes):
            raise FormatError(
                f"{path} does not hold what the manifest counts. Build the corpus again."
            )
        return shard


@unreadable_as(FormatError)
def read_manifest(folder: Path) -> dict[str, Any]:
    """The content of a corpus folder's manifest.json.

    Raises:
        FormatError: there is none, it is damaged, or of another version.
    """
    path = folder / MANIFEST
    if not path.is_file():
        if (folder / PROGRESS).is_file():
            raise FormatError(
                f"{folder}: this corpus is not finished. Run the same `filbert corpus` command "
                "again; it goes on where it stopped."
            )
        raise FormatError(f"{folder}: no {MANIFEST} in it, so no folder of `filbert corpus`.")
    try:
        manifest = json.loads(path.read_text(encoding="utf-8"))
    except (ValueError, RecursionError) as error:
        raise FormatError(f"{path} is damaged: {error}. Build the corpus again.") from error
    if not isinstance(manifest, dict) or manifest.get("format") != "filbert corpus":
        raise FormatError(f"{path} was not written by `filbert corpus`.")
    if manifest.get("version") != FORMAT_VERSION:
        raise FormatError(
            f"{path}: version {short(manifest.get('version'))} of the format; this filbert reads "
            f"{FORMAT_VERSION}. Build the corpus again."
        )
    return manifest


def verify_shard(folder: Path, shard: Mapping[str, Any]) -> None:
    """Compare the files of a shard with their sha256 in its entry of the manifest.

    Raises:
        FormatError: a file that is missing or differs.
    """
    for name, facts in shard["files"].items():
        path = folder / shard["name"] / name
        digest = hashlib.sha256()
        try:
            with path.open("rb") as file:
                while block := file.read(2**20):
                    digest.update(block)
        except OSError as error:
            raise FormatError(f"{path} cannot be read: {error.strerror}.") from error
        if digest.hexdigest() != facts["sha256"]:
            raise FormatError(f"{path} has changed since it was written. Build the corpus again.")


def digest_of(shards: Sequence[Mapping[str, Any]]) -> str:
    """sha256 over the hashes of the shards' files, in order, in hexadecimal."""
    digest = hashlib.sha256()
    for shard in shards:
        for name in SHARD_FILES:
            digest.update(bytes.fromhex(shard["files"][name]["sha256"]))
    return digest.hexdigest()


def join_pieces(pieces: Sequence[Shard]) -> Shard:
    """Several pieces end to end as one; marks are moved, token ids are joined."""
    sentences, documents = [np.zeros(1, np.int32)], [np.zeros(1, np.int32)]
    num_tokens = num_sentences = 0
    for piece in pieces:
        sentences.append(piece.sentences[1:] + np.int32(num_tokens))
        documents.append(piece.documents[1:] + np.int32(num_sentences))
        num_tokens += int(piece.sentences[-1])
        num_sentences += int(piece.documents[-1])
    tokens = np.concatenate([piece.tokens for piece in pieces]) if pieces else np.empty(0, np.int32)
    return Shard(tokens, np.concatenate(sentences), np.concatenate(documents))


def write_shard(folder: Path, shard: Shard) -> dict[str, Any]:
    """Write a shard's files into a folder, which is made, and flush them onto the disk.

    Returns:
        Its entry of the manifest: counts, and size and sha256 of each file.
    """
    folder.mkdir(parents=True)
    files = {}
    for name, array in zip(SHARD_FILES, shard, strict=True):
        with (folder / name).open("w+b") as file:
            np.save(file, array)
            file.flush()
            os.fsync(file.fileno())
            size = file.tell()
            file.seek(0)
            digest = hashlib.sha256()
            while block := file.read(2**20):
                digest.update(block)
        files[name] = {"bytes": size, "sha256": digest.hexdigest()}
    return {
        "name": folder.name,
        "documents": len(shard.documents) - 1,
        "sentences": len(shard.sentences) - 1,
        "tokens": len(shard.tokens),
        "files": files,
    }


def token_type(vocab_size: int) -> np.dtype[Any]:
    """The smallest type that holds every id of a vocabulary: uint16 or int32."""
    return np.dtype(np.uint16 if vocab_size <= 2**16 else np.int32)


def write_corpus(
    folder: Path,
    documents: Iterable[Sequence[Sequence[int]]],
    *,
    tokenizer: str = "",
    vocab_size: int = 2**16,
    shard_documents: int = 1000,
) -> Corpus:
    """A corpus of token ids that are at hand; small ones, all in memory. For tests and scripts.

    Args:
        folder: is made.
        documents: each a list of sentences, each a list of ids; none of them empty.
        tokenizer: the fingerprint to note.
        vocab_size: decides the type on the disk.
        shard_documents: documents in each shard.
    """
    everything = [
        Shard(
            np.array([token for one in document for token in one], token_type(vocab_size)),
            np.cumsum([0, *(len(one) for one in document)], dtype=np.int32),
            np.array([0, len(document)], np.int32),
        )
        for document in documents
    ]
    shards = [
        write_shard(
            folder / f"shard-{number:05}", join_pieces(everything[begin : begin + shard_documents])
        )
        for number, begin in enumerate(range(0, len(everything), shard_documents))
    ]
    manifest = {
        "format": "filbert corpus",
        "version": FORMAT_VERSION,
        "tokenizer": tokenizer,
        "shards": shards,
    }
    (folder / MANIFEST).write_text(json.dumps(manifest, indent=2) + "\n", encoding="utf-8")
    return Corpus.open(folder)


def _bases(shards: Sequence[Mapping[str, Any]], key: str) -> np.ndarray:
    return np.cumsum([0, *(int(shard[key]) for shard in shards)], dtype=np.int64)
