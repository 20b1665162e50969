"""Which head finds which relation: the word that a head looks at most, against a treebank.

L layers, A heads, w words of one sentence. Source: Clark et al. 2019, section 4.2.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from torch import Tensor

from filbert.inspection.heads import lost_heads
from filbert.inspection.maps import merged
from filbert.inspection.treebank import ROOT, Tree, words_of
from filbert.model.heads import Model
from filbert.text.encoding import Encoding

# The relation of a punctuation mark says nothing about grammar: it counts nowhere.
PUNCTUATION = "punct"
EVERYTHING = "all"
DIRECTIONS = ("dependent looks at head", "head looks at dependent")
MAX_OFFSET = 10


@dataclass(frozen=True)
class Guess:
    """The best way to find the heads of one relation's words, and how good it is.

    Attributes:
        name: "layer-head" from 0, or an offset such as "+1".
        direction: of DIRECTIONS; None for an offset.
        accuracy: on all words of the relation, on which it was chosen too: optimistic.
        held_out: on each half of the sentences with what was best on the other half.
    """

    name: str
    direction: str | None
    accuracy: float
    held_out: float | None


@dataclass(frozen=True)
class Relation:
    """One relation.

    Attributes:
        name: as in the treebank; EVERYTHING for all of them.
        count: words with it.
        head, offset: the best head, and the best fixed distance to the head's place.
        accuracies: float64 (2, L, A), of every head in both DIRECTIONS; NaN where pruned.
    """

    name: str
    count: int
    head: Guess
    offset: Guess
    accuracies: np.ndarray


class RelationStudy:
    """Counts, sentence by sentence, for which words a head's strongest look is right."""

    def __init__(self, model: Model, *, subtypes: bool = False) -> None:
        config = model.config
        self.subtypes = subtypes
        self.is_lost = lost_heads(model)
        self.shape = (2, config.num_hidden_layers, config.num_attention_heads)
        # By relation: words, right looks and right offsets in even and odd sentences.
        self._words: dict[str, np.ndarray] = {}
        self._right: dict[str, np.ndarray] = {}
        self._offsets: dict[str, np.ndarray] = {}
        self.num_sentences = 0

    def add(self, maps: Tensor, encoding: Encoding, tree: Tree) -> None:
        """Count one sentence; `maps` float32 (L, A, n, n) of its encoding."""
        belongs = words_of(encoding, tree)
        attention = merged(maps.numpy(), belongs, len(tree.words))
        self.add_words(attention, tree, np.isin(np.arange(len(tree.words)), belongs))

    def add_words(self, attention: np.ndarray, tree: Tree, has_token: np.ndarray) -> None:
        """The same from attention between words, (L, A, w, w)."""
        half = self.num_sentences % 2
        self.num_sentences += 1
        attention = attention.copy()
        # No word is its own head.
        attention[..., range(len(tree.words)), range(len(tree.words))] = -1.0
        looked = np.stack([attention.argmax(-1), attention.argmax(-2)])  # (2, L, A, w)
        for word, name in _counted(tree, has_token, subtypes=self.subtypes):
            head = tree.heads[word]
            right = looked[..., word] == head
            offset = int(head - word)
            for key in (name, EVERYTHING):
                if key not in self._words:
                    self._words[key] = np.zeros(2, dtype=np.int64)
                    self._right[key] = np.zeros((2, *self.shape), dtype=np.int64)
                    self._offsets[key] = np.zeros((2, 2 * MAX_OFFSET + 1), dtype=np.int64)
                self._words[key][half] += 1
                self._right[key][half] += right
                if abs(offset) <= MAX_OFFSET:
                    self._offsets[key][half, MAX_OFFSET + offset] += 1

    def result(self, min_count: int = 1) -> list[Relation]:
        """The relations of at least `min_count` words: EVERYTHING, then the most frequent."""
        names = [name for name in self._words if self._words[name].sum() >= min_count]
        names.sort(key=lambda name: (name != EVERYTHING, -self._words[name].sum(), name))
        return [self._relation(name) for name in names]

    def _relation(self, name: str) -> Relation:
        words, right, offsets = self._words[name], self._right[name], self._offsets[name]
        right = np.where(self.is_lost, -1, right)
        best, found = _chosen(right.reshape(2, -1), words)
        direction, layer, head = np.unravel_index(best, self.shape)
        place, by_offset = _chosen(offsets, words)
        total = int(words.sum())
        accuracies = np.where(self.is_lost, np.nan, right.sum(0) / total)
        return Relation(
            name,
            total,
            Guess(f"{layer}-{head}", DIRECTIONS[direction], *found),
            Guess(f"{place - MAX_OFFSET:+d}", None, *by_offset),
            accuracies,
        )


def _counted(tree: Tree, has_token: np.ndarray, *, subtypes: bool) -> Iterator[tuple[int, str]]:
    """The words that count, with the names of their relations."""
    for word, (head, relation) in enumerate(zip(tree.heads, tree.relations, strict=True)):
        name = relation if subtypes else relation.split(":")[0]
        counts = head >= 0 and name != ROOT and name.split(":")[0] != PUNCTUATION
        if counts and has_token[word] and has_token[head]:
            yield word, name


def relation_counts(
    trees: Iterable[Tree], encodings: Iterable[Encoding], *, subtypes: bool = False
) -> Counter[str]:
    """How many words of each relation `study_relations` will count; EVERYTHING is all of them."""
    found: Counter[str] = Counter()
    for tree, encoding in zip(trees, encodings, strict=True):
        has_token = np.isin(np.arange(len(tree.words)), words_of(encoding, tree))
        names = [name for _, name in _counted(tree, has_token, subtypes=subtypes)]
        found.update(names)
        found[EVERYTHING] += len(names)
    return found


def _chosen(right: np.ndarray, words: np.ndarray) -> tuple[int, tuple[float, float | None]]:
    """The best of all ways, (2, ways) right by half: accuracy, and accuracy on the other half."""
    best = int(right.sum(0).argmax())
    accuracy = float(right[:, best].sum() / words.sum())
    if not words.all():
        return best, (accuracy, None)
    crossed = sum(int(right[1 - half, right[half].argmax()]) for half in (0, 1))
    return best, (accuracy, float(crossed / words.sum()))


def study_relations(
    model: Model,
    trees: Sequence[Tree],
    encodings: Sequence[Encoding],
    maps: Iterable[Tensor],
    *,
    subtypes: bool = False,
    min_count: int = 1,
) -> list[Relation]:
    """The best head of every relation.

    Args:
        model: whose maps these are.
        trees: of the sentences.
        encodings: of `tree.text`, with offsets, none of them cut.
        maps: float32 (L, A, n, n) of each.
        subtypes: tell nsubj:pass from nsubj.
        min_count: relations of fewer words are left out.
    """
    found = RelationStudy(model, subtypes=subtypes)
    for tree, encoding, some in zip(trees, encodings, maps, strict=True):
        found.add(some, encoding, tree)
    return found.result(min_count)
