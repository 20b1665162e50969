"""Blocks of documents for the tokenizer, without those that were there before."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from filbert.data.documents import Document
from filbert.data.duplicates import SeenHashes, hash_of

# Characters. A block ends with the document that reaches this size. The borders decide where shards
# end, so they depend on the input alone.
BLOCK_CHARACTERS = 2**19

_DOCUMENT, _LINE = b"document", b"line"


class CleanBlocks:
    """Documents in blocks, each different text once; to be iterated once.

    Args:
        documents: in the order that decides which one of equal ones stays: the first.
        drop_lines: also drop each line that was in an earlier kept document or further up.

    Attributes:
        num_documents, num_lines, num_bytes: read so far; bytes of UTF-8 with a newline a line.
        num_cuts: continuations of documents that were too long.
        duplicate_documents: dropped as equal to an earlier one.
        duplicate_lines: dropped as equal to an earlier one.
        emptied_documents: left without any line by that.
        seen: the hashes of all that was kept.
    """

    def __init__(self, documents: Iterable[Document], *, drop_lines: bool) -> None:
        self.num_documents = self.num_lines = self.num_bytes = self.num_cuts = 0
        self.duplicate_documents = self.duplicate_lines = self.emptied_documents = 0
        self.seen = SeenHashes()
        self._documents = documents
        self._drop_lines = drop_lines

    def __iter__(self) -> Iterator[list[tuple[str, ...]]]:
        held: list[tuple[str, ...]] = []
        size = 0
        for document in self._documents:
            held.append(document.lines)
            size += sum(map(len, document.lines))
            self.num_cuts += document.is_continuation
            if size >= BLOCK_CHARACTERS:
                yield self._clean(held)
                held, size = [], 0
        if held:
            yield self._clean(held)

    def _clean(self, block: list[tuple[str, ...]]) -> list[tuple[str, ...]]:
        hashes = []
        for lines in block:
            content = "\n".join(lines).encode("utf-8", "surrogatepass")
            hashes.append(hash_of(content, _DOCUMENT))
            self.num_bytes += len(content) + 1
            self.num_lines += len(lines)
        self.num_documents += len(block)
        fresh = self.seen.add(hashes)
        kept = [lines for lines, is_fresh in zip(block, fresh, strict=True) if is_fresh]
        self.duplicate_documents += len(block) - len(kept)
        return self._without_lines(kept) if self._drop_lines else kept

    def _without_lines(self, block: Sequence[tuple[str, ...]]) -> list[tuple[str, ...]]:
        hashes = [
            hash_of(line.encode("utf-8", "surrogatepass"), _LINE)
            for lines in block
            for line in lines
        ]
        fresh = iter(self.seen.add(hashes))
        kept = [tuple(line for line in lines if next(fresh)) for lines in block]
        self.duplicate_lines += len(hashes) - sum(map(len, kept))
        left = [lines for lines in kept if lines]
        self.emptied_documents += len(block) - len(left)
        return left
