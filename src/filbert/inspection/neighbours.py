"""One word in many sentences: its vectors in context, beside the one vector of the word table.

N places of the word, H width, L layers.
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from filbert.errors import ConfigError, InputError
from filbert.inspection.context_vectors import static_vectors, vectors_of
from filbert.inspection.occurrences import (
    Gathered,
    Occurrence,
    Shown,
    Source,
    gather,
    pattern_of,
    shown,
)
from filbert.inspection.self_similarity import LayerFigures, cosines, layer_figures, unit
from filbert.inspection.senses import Groups, check_count, check_projection, grouped, plane, turned
from filbert.model.heads import Model
from filbert.predict import Predictor

# Words whose vectors of all layers are held: 160 MB for 12 layers of 768.
MOST_WORDS = 4_000
NEAREST_WORDS = 6


@dataclass(frozen=True, eq=False)
class WordInContext:
    """What `word_in_context` finds.

    Attributes:
        model: its name.
        words: what was looked for.
        layer: the chosen one, 0 for the embeddings, 1 to `num_layers`.
        num_layers: L.
        occurrences: the N places shown.
        found: how many there were.
        texts: how many texts were read.
        others: further texts that the figures of all words rest on.
        pieces: the tokens of each place.
        cut: of each place, whether the model saw a part of its text only.
        similarity: cosines of the vectors in context, (N, N).
        static_similarity: the same of the word table's vectors: the mean of a word's pieces.
        num_static: how many different vectors the word table has for the N places.
        asked: groups asked for; None where the number was chosen.
        groups: of the places, on the chosen layer; fewer than were asked for where places are
            equal.
        nearest_words: for each group, other words of the texts whose vectors are nearest to its
            mean; means are taken off first: of all places, and of all words.
        agreement: adjusted Rand index between groups and known senses, where those are known.
        planes: (N, 2) for every layer from 0 to L: a map of the places; those of the other layers
            are turned towards the chosen one's.
        static_plane: the same for the word table's vectors.
        shares: of the variance of the chosen layer on its two axes; None for UMAP.
        projection: "pca" or "umap".
        layers: the figures of every layer from 0 to L.
    """

    model: str
    words: tuple[str, ...]
    layer: int
    num_layers: int
    occurrences: tuple[Occurrence, ...]
    found: int
    texts: int
    others: int
    pieces: tuple[tuple[str, ...], ...]
    cut: tuple[bool, ...]
    similarity: np.ndarray
    static_similarity: np.ndarray
    num_static: int
    asked: int | None
    groups: Groups
    nearest_words: tuple[tuple[str, ...], ...]
    agreement: float | None
    planes: tuple[np.ndarray, ...]
    static_plane: np.ndarray
    shares: tuple[float, float] | None
    projection: str
    layers: tuple[LayerFigures, ...]

    @property
    def senses(self) -> tuple[str, ...] | None:
        """The known sense of each place, if all have one."""
        found = tuple(one.source.sense for one in self.occurrences)
        return None if None in found else found  # type: ignore[return-value]

    def nearest(self, place: int) -> int:
        """The other place whose vector is nearest."""
        others = self.similarity[place].copy()
        others[place] = -2.0
        return int(others.argmax())

    def to_dict(self) -> dict[str, Any]:
        """All of it as plain values, for JSON."""
        points = self.planes[self.layer]
        return {
            "model": self.model,
            "words": list(self.words),
            "layer": self.layer,
            "num_layers": self.num_layers,
            "texts": self.texts,
            "found": self.found,
            "occurrences": [
                {
                    "text": one.source.text,
                    "where": one.source.where,
                    "start": one.start,
                    "end": one.end,
                    "pieces": list(self.pieces[i]),
                    "truncated": self.cut[i],
                    "group": int(self.groups.numbers[i]),
                    "nearest": self.nearest(i),
                    "x": round(float(points[i, 0]), 6),
                    "y": round(float(points[i, 1]), 6),
                    **({"sense": one.source.sense} if one.source.sense is not None else {}),
                }
                for i, one in enumerate(self.occurrences)
            ],
            "similarity": np.round(self.similarity, 6).tolist(),
            "static_similarity": np.round(self.static_similarity, 6).tolist(),
            "num_static_vectors": self.num_static,
            "groups": {
                "count": self.groups.count,
                "silhouette": self.groups.silhouette,
                "stability": self.groups.stability,
                "agreement": self.agreement,
                "nearest_words": [list(words) for words in self.nearest_words],
            },
            "projection": {"kind": self.projection, "shares": self.shares},
            "other_texts": self.others,
            "layers": [
                {**{name: getattr(one, name) for name in one.__slots__}, "adjusted": one.adjusted}
                for one in self.layers
            ],
        }


def word_in_context(
    predictor: Predictor,
    words: str | Sequence[str],
    texts: Iterable[str | Source],
    *,
    name: str = "",
    layer: int = -1,
    senses: int | None = None,
    projection: str = "pca",
    match_case: bool = False,
    most: int = 100,
    others: int = 200,
    seed: int = 0,
) -> WordInContext:
    """The vectors of a word in different sentences, compared with each other and across layers.

    A word of several tokens is their mean. Texts too long for the model are cut around the word.

    Args:
        predictor: the model; its head plays no part.
        words: the word, or several forms of it, found as whole words.
        texts: at least two with the word between them; those without it serve the figures about all
            words.
        name: of the model, for the result.
        layer: 0 is the embedding layer, 1 to L the layers, -1 the last.
        senses: groups to make; None chooses, see `grouped`.
        projection: "pca", or "umap" where the package is installed.
        match_case: tell Bank from bank.
        most: places of the word to show; a uniform sample when there are more.
        others: further texts to read for the figures about all words.
        seed: of the samples.

    Raises:
        InputError: an empty text, or the word is in less than two places.
        ConfigError: no such layer or number of groups, or the model is an exported graph.
    """
    model = predictor.model
    if not isinstance(model, Model):
        raise ConfigError("An exported model gives its last layer alone. Use the original model.")
    chosen = layer_number(predictor, layer)
    check_projection(projection)
    if seed < 0:
        raise ConfigError(f"seed is {seed}; it must not be negative.")
    if most < 2 or others < 0:
        raise ConfigError(f"--limit {most} and --others {others}: at least 2 and 0 are possible.")
    forms = (words,) if isinstance(words, str) else tuple(words)
    pattern = pattern_of(forms, match_case=match_case)
    gathered = gather(_sources(texts, predictor), pattern, most=most, others=others, seed=seed)
    check_count(senses, len(gathered.occurrences))
    sequences = shown(gathered, predictor.tokenizer, predictor.max_length)
    places, by_layer, words_of = _vectors(predictor, model, gathered, sequences, seed)
    known = _senses(gathered.occurrences)
    figures = tuple(
        layer_figures(
            number,
            places[number],
            by_layer[number][words_of.is_other],
            [form for form, other in zip(words_of.forms, words_of.is_other, strict=True) if other],
            words_of.texts[words_of.is_other],
            by_layer[number],
            words_of.texts,
            known,
            seed=seed,
        )
        for number in range(len(places))
    )
    table, ids = static_vectors(model, sequences, len(gathered.occurrences))
    groups = grouped(places[chosen], senses, seed=seed)
    maps = [plane(vectors, projection, seed=seed) for vectors in places]
    return WordInContext(
        model=name,
        words=forms,
        layer=chosen,
        num_layers=model.config.num_hidden_layers,
        occurrences=tuple(gathered.occurrences),
        found=gathered.found,
        texts=gathered.texts,
        others=words_of.num_others,
        pieces=tuple(tuple(predictor.tokenizer.tokens(own)) for own in ids),
        cut=_cut(sequences, len(ids)),
        similarity=cosines(places[chosen]),
        static_similarity=cosines(table),
        num_static=len(set(ids)),
        asked=senses,
        groups=groups,
        nearest_words=_nearest_words(places[chosen], groups, by_layer[chosen], words_of),
        agreement=_agreement(groups, known),
        planes=tuple(turned(points, maps[chosen][0]) for points, _ in maps),
        static_plane=plane(table)[0],
        shares=maps[chosen][1],
        projection=projection,
        layers=figures,
    )


def layer_number(predictor: Predictor, layer: int) -> int:
    """A layer as it is counted from the embeddings on, from one that may be counted from the end.

    Raises:
        ConfigError: there is no such layer.
    """
    count = predictor.model.config.num_hidden_layers
    if not -count - 1 <= layer <= count:
        raise ConfigError(f"--layer {layer} is not in {-count - 1}..{count}.")
    return layer % (count + 1)


def _sources(texts: Iterable[str | Source], predictor: Predictor) -> Iterator[Source]:
    if isinstance(texts, str):
        raise InputError(
            "A list of texts is wanted, and this is one text. Put it in a list: [text]."
        )
    clean = getattr(predictor.task, "clean", None)
    for number, item in enumerate(texts, start=1):
        if isinstance(item, str):
            if not item.strip():
                raise InputError(f"Text {number} is empty. Leave it out.")
            item = Source(item, f"text {number}")
        yield item if clean is None else item._replace(text=clean(item.text))


def _senses(occurrences: Sequence[Occurrence]) -> list[str] | None:
    known = [one.source.sense for one in occurrences]
    return None if None in known else [str(sense) for sense in known]


def _agreement(groups: Groups, known: list[str] | None) -> float | None:
    if known is None:
        return None
    from sklearn.metrics import adjusted_rand_score

    return float(adjusted_rand_score(known, groups.numbers))


# Vectors


@dataclass(frozen=True, eq=False)
class _Words:
    """Of M words of whole sequences: forms, texts int (M,), whether it is another word; and how
    many of the sequences are without the word.
    """

    forms: list[str]
    texts: np.ndarray
    is_other: np.ndarray
    num_others: int


def _vectors(
    predictor: Predictor, model: Model, gathered: Gathered, sequences: list[Shown], seed: int
) -> tuple[list[np.ndarray], list[np.ndarray], _Words]:
    """Of every layer the places (N, H), and the words (M, H) of as many texts as can be held."""
    own = {one.form.casefold() for one in gathered.occurrences}
    order = list(range(len(sequences)))
    random.Random(seed).shuffle(order)
    room, is_whole = MOST_WORDS, [False] * len(sequences)
    for index in order:
        size = len(sequences[index].words) + len(sequences[index].places)
        if size <= room:
            is_whole[index] = True
            room -= size
    read: list[Shown] = []
    asked: list[list[np.ndarray]] = []
    at_place: list[tuple[int, int]] = []  # number of the occurrence, row of the vectors
    at_word: list[int] = []
    forms: list[str] = []
    texts: list[int] = []
    row = 0
    for sequence, whole in zip(sequences, is_whole, strict=True):
        if not whole and not sequence.places:
            continue
        read.append(sequence)
        words = sequence.words if whole else []
        asked.append([*sequence.places, *(rows for _, rows in words)])
        at_place += [(which, row + i) for i, which in enumerate(sequence.which)]
        names = [gathered.occurrences[i].form.casefold() for i in sequence.which]
        if whole:
            at_word += range(row, row + len(asked[-1]))
            forms += [*names, *(form for form, _ in words)]
            texts += [sequence.example.row] * len(asked[-1])
        row += len(asked[-1])
    examples = [sequence.example for sequence in read]
    layers = vectors_of(predictor, model, examples, asked)
    rows = [row for _, row in sorted(at_place)]
    is_other = np.array([form not in own for form in forms], dtype=bool)
    num_others = sum(not sequence.places for sequence in read)
    words_of = _Words(forms, np.array(texts, dtype=np.int64), is_other, num_others)
    return [one[rows] for one in layers], [one[at_word] for one in layers], words_of


def _cut(sequences: list[Shown], count: int) -> tuple[bool, ...]:
    found = [False] * count
    for sequence in sequences:
        for which in sequence.which:
            found[which] = sequence.example.truncated
    return tuple(found)


def _nearest_words(
    places_NH: np.ndarray, groups: Groups, words_MH: np.ndarray, words_of: _Words
) -> tuple[tuple[str, ...], ...]:
    """For each group the forms of the nearest other words; see `WordInContext.nearest_words`."""
    other = words_of.is_other
    names = [form for form, yes in zip(words_of.forms, other, strict=True) if yes]
    if not names:
        return ((),) * groups.count
    candidates = unit(words_MH[other] - words_MH[other].mean(0))
    # With several groups: what tells one from the others, not what they share.
    middle = (places_NH if groups.count > 1 else words_MH[other]).mean(0)
    found = []
    for number in range(groups.count):
        centre = unit((places_NH[groups.numbers == number].mean(0) - middle)[None])[0]
        nearest: list[str] = []
        for row in np.argsort(-(candidates @ centre), kind="stable"):
            form = names[row]
            if any(map(str.isalnum, form)) and form not in nearest:
                nearest.append(form)
            if len(nearest) == NEAREST_WORDS:
                break
        found.append(tuple(nearest))
    return tuple(found)
