"""Texts, training blocks and the held-out masks of pretrain_mlm.py.

n blocks, S the length of a block, K masked tokens.
"""

from __future__ import annotations

import hashlib
import lzma
from collections.abc import Iterator, Sequence
from itertools import chain
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

# transformers' run_mlm.py groups so many texts at a time and drops what is left of each group.
TEXTS_AT_ONCE = 1000
MASK_RATE = 0.15
KEPT, RANDOM = 0.1, 0.1


class HeldOut(NamedTuple):
    """Masked blocks whose masks never change, so that every model answers the same questions.

    Attributes:
        input_ids: int32 (n, S), with the masks in place.
        rows, columns: int64 (K,), where in `input_ids` the masked tokens stand.
        labels: int64 (K,), the tokens that stood there.
    """

    input_ids: np.ndarray
    rows: np.ndarray
    columns: np.ndarray
    labels: np.ndarray

    @property
    def digest(self) -> str:
        """Equal for equal questions."""
        content = b"".join(np.ascontiguousarray(part).tobytes() for part in self)
        return hashlib.sha256(content).hexdigest()[:16]

    def first(self, num_blocks: int) -> HeldOut:
        """The questions of the first blocks only."""
        asked = self.rows < num_blocks
        return HeldOut(
            self.input_ids[:num_blocks], self.rows[asked], self.columns[asked], self.labels[asked]
        )

    def save(self, path: Path) -> None:
        np.savez_compressed(path, **self._asdict())

    @classmethod
    def load(cls, path: Path) -> HeldOut:
        with np.load(path) as found:
            return cls(*(found[name] for name in cls._fields))


def read_lines(path: Path) -> list[str]:
    """The lines of a text that are not empty; `.xz` is unpacked."""
    opened = lzma.open if path.suffix == ".xz" else open
    with opened(path, "rt", encoding="utf-8") as file:
        return [line for line in (line.strip() for line in file) if line]


def bert_tokenizer(folder: Path) -> Any:
    """The uncased BERT tokenizer of transformers over `folder`/vocab.txt."""
    from transformers import BertTokenizer

    return BertTokenizer(str(folder / "vocab.txt"))


def grouped(tokenizer: Any, lines: Sequence[str], length: int) -> np.ndarray:
    """Blocks as run_mlm.py makes them: int32 (n, `length`).

    Every line is tokenised with its [CLS] and [SEP]; the lines of a thousand are laid end to end
    and cut, whatever stands at the cuts; the remainder is dropped.
    """
    blocks: list[np.ndarray] = []
    for begin in range(0, len(lines), TEXTS_AT_ONCE):
        found = tokenizer(list(lines[begin : begin + TEXTS_AT_ONCE]))["input_ids"]
        ids = np.fromiter(chain.from_iterable(found), dtype=np.int32)
        blocks.append(ids[: len(ids) // length * length].reshape(-1, length))
    return np.concatenate(blocks) if blocks else np.zeros((0, length), np.int32)


def framed(tokenizer: Any, lines: Sequence[str], length: int) -> np.ndarray:
    """Blocks as BERT is used: [CLS], `length` - 2 tokens of running text, [SEP]; int32 (n, S)."""
    found = tokenizer(list(lines), add_special_tokens=False)["input_ids"]
    ids = np.fromiter(chain.from_iterable(found), dtype=np.int32)
    inner = length - 2
    text = ids[: len(ids) // inner * inner].reshape(-1, inner)
    column = np.ones((len(text), 1), np.int32)
    return np.hstack([tokenizer.cls_token_id * column, text, tokenizer.sep_token_id * column])


def mask(blocks: np.ndarray, tokenizer: Any, seed: int) -> HeldOut:
    """Mask 15 % of the tokens of every block, special ones excepted: 80 % [MASK], 10/10.

    The number of masked tokens is exact: 0.15 of the tokens that are not special, rounded.
    """
    draw = np.random.default_rng(seed)
    special = np.isin(blocks, tokenizer.all_special_ids)
    masked, rows, columns = blocks.copy(), [], []
    for row, is_special in enumerate(special):
        candidates = np.flatnonzero(~is_special)
        chosen = draw.choice(candidates, round(MASK_RATE * len(candidates)), replace=False)
        rows.append(np.full(len(chosen), row))
        columns.append(np.sort(chosen))
    at = np.concatenate(rows), np.concatenate(columns)
    labels = blocks[at].astype(np.int64)
    kind = draw.random(len(labels))
    random_words = draw.integers(0, tokenizer.vocab_size, len(labels))
    new = np.where(kind < KEPT, labels, tokenizer.mask_token_id)
    masked[at] = np.where((kind >= KEPT) & (kind < KEPT + RANDOM), random_words, new)
    return HeldOut(masked, *at, labels)


def held_out_sets(
    tokenizer: Any, lines: Sequence[str], length: int, num_blocks: int | None = None
) -> dict[str, HeldOut]:
    """The same text in both shapes, each side's own: "framed" is filbert's, "grouped" the peer's.

    Args:
        tokenizer: as `bert_tokenizer` gives it.
        lines: of the held-out text.
        length: of a block.
        num_blocks: how many blocks of each; None for all.
    """
    shapes = {"framed": framed, "grouped": grouped}
    return {
        name: mask(shape(tokenizer, lines, length)[:num_blocks], tokenizer, seed=0)
        for name, shape in shapes.items()
    }


def chunks(count: int, size: int) -> Iterator[slice]:
    """[0, count) in slices of at most `size`."""
    for begin in range(0, count, size):
        yield slice(begin, min(begin + size, count))
