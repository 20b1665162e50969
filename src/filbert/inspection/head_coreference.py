"""Which head finds who is meant: from a mention back to an earlier mention of the same.

L layers, A heads, w words of one document. Source: Clark et al. 2019, section 4.3.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from torch import Tensor

from filbert.errors import InputError
from filbert.inspection.heads import lost_heads
from filbert.inspection.maps import merged
from filbert.inspection.treebank import Tree, words_of
from filbert.model.heads import Model
from filbert.text.encoding import Encoding

# "(e1-person" opens a mention of e1, "e1)" closes it, "(e1)" is one word.
_MARK = re.compile(r"\((?P<open>[^()]+)(?P<whole>\))?|(?P<close>[^()]+)\)")


@dataclass(frozen=True)
class Mention:
    """A mention in a document.

    Attributes:
        entity: who is meant.
        head: its topmost word, as the word's number within the document.
    """

    entity: str
    head: int


@dataclass(frozen=True)
class Coreference:
    """How often an earlier mention of the same is found, among all earlier mentions.

    Attributes:
        documents: how many were read.
        truncated: of these were longer than the model reads, so their ends were cut.
        left_out: mentions that were cut, or whose head word has no token of its own.
        mentions: how many there are that have an earlier one, among those left.
        head: the best, "layer-head" from 0.
        accuracy: of it, on the mentions that it was chosen on.
        nearest: always the nearest mention.
        same_word: the nearest with the same head word, else the nearest.
        accuracies: float64 (L, A); NaN where pruned.
    """

    documents: int
    truncated: int
    left_out: int
    mentions: int
    head: str
    accuracy: float
    nearest: float
    same_word: float
    accuracies: np.ndarray


def documents_of(trees: Sequence[Tree]) -> list[Tree]:
    """The sentences of each document as one: `# newdoc` begins one. Roots stay roots."""
    groups: list[list[Tree]] = []
    for tree in trees:
        if tree.is_new_document or not groups:
            groups.append([])
        groups[-1].append(tree)
    return [_joined(group) for group in groups]


def _joined(trees: Sequence[Tree]) -> Tree:
    starts, ends, heads = [], [], []
    characters = words = 0
    for tree in trees:
        starts.append(tree.starts + characters)
        ends.append(tree.ends + characters)
        heads.append(np.where(tree.heads < 0, -1, tree.heads + words))
        characters += len(tree.text) + 1
        words += len(tree.words)
    return replace(
        trees[0],
        text=" ".join(tree.text for tree in trees),
        words=tuple(word for tree in trees for word in tree.words),
        starts=np.concatenate(starts),
        ends=np.concatenate(ends),
        heads=np.concatenate(heads),
        relations=tuple(name for tree in trees for name in tree.relations),
        entities=tuple(mark for tree in trees for mark in tree.entities),
    )


def mentions_of(document: Tree) -> list[Mention]:
    """The mentions in the order of their heads. Those in several parts (e1[1/2]) are left out.

    Raises:
        InputError: one is closed that was not opened, or the other way round.
    """
    opened: dict[str, list[int]] = {}
    found = []
    for word, marks in enumerate(document.entities):
        for mark in _MARK.finditer(marks):
            name = re.split(r"-", mark["open"] or mark["close"], maxsplit=1)[0]
            if "[" in name:
                continue
            if mark["open"]:
                opened.setdefault(name, []).append(word)
            if mark["whole"] or mark["close"]:
                if not opened.get(name):
                    raise InputError(
                        f"The document at {document.where}: the mention of {name} that ends with "
                        f"{document.words[word]!r} has no beginning."
                    )
                found.append(Mention(name, _top(document.heads, opened[name].pop(), word)))
    left = [name for name, places in opened.items() if places]
    if left:
        raise InputError(f"The document at {document.where}: a mention of {left[0]} has no end.")
    return sorted(found, key=lambda mention: mention.head)


def _top(heads: np.ndarray, first: int, last: int) -> int:
    """The first word of a span whose head lies outside."""
    return next(w for w in range(first, last + 1) if not first <= heads[w] <= last)


class CoreferenceStudy:
    """Counts, document by document, how often the strongest look back is right."""

    def __init__(self, model: Model) -> None:
        self.is_lost = lost_heads(model)
        self._right = np.zeros(self.is_lost.shape, dtype=np.int64)
        self._nearest = self._same_word = self._count = 0
        self._documents = self._truncated = self._left_out = 0

    def add(self, maps: Tensor, encoding: Encoding, document: Tree) -> None:
        """Count one document; `maps` float32 (L, A, n, n). Mentions that were cut are left out."""
        self._truncated += encoding.truncated
        belongs = words_of(encoding, document)
        self.add_words(
            merged(maps.numpy(), belongs, len(document.words)), document, set(belongs.tolist())
        )

    def add_words(self, attention: np.ndarray, document: Tree, has_token: set[int]) -> None:
        """The same from attention between words, (L, A, w, w)."""
        everything = mentions_of(document)
        mentions = [m for m in everything if m.head in has_token]
        self._documents += 1
        self._left_out += len(everything) - len(mentions)
        for mention in mentions:
            before = [m for m in mentions if m.head < mention.head]
            right = np.array([m.entity == mention.entity for m in before], dtype=bool)
            if not right.any():
                continue
            looks = attention[..., mention.head, [m.head for m in before]]  # (L, A, mentions)
            self._right += right[looks.argmax(-1)]
            word = document.words[mention.head].lower()
            same = [i for i, m in enumerate(before) if document.words[m.head].lower() == word]
            self._nearest += int(right[-1])
            self._same_word += int(right[same[-1] if same else -1])
            self._count += 1

    def result(self) -> Coreference | None:
        """What was counted; None where no mention had an earlier one."""
        if not self._count:
            return None
        right = np.where(self.is_lost, -1, self._right)
        layer, head = np.unravel_index(right.argmax(), right.shape)
        return Coreference(
            self._documents,
            self._truncated,
            self._left_out,
            self._count,
            f"{layer}-{head}",
            float(right.max() / self._count),
            self._nearest / self._count,
            self._same_word / self._count,
            np.where(self.is_lost, np.nan, right / self._count),
        )
