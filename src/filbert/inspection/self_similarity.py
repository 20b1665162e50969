"""How much of a vector is the word and how much its context, layer by layer (Ethayarajh 2019).

N vectors, H width. Float64 inside, since sums of unit vectors cancel.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

# A word of fewer contexts says nothing of its self-similarity; Ethayarajh 2019, section 3.2.
LEAST_CONTEXTS = 5
# Draws of as many words as the word has places.
DRAWS = 20


@dataclass(frozen=True, slots=True)
class LayerFigures:
    """The figures of one layer; None where the texts are too few for it.

    Attributes:
        layer: 0 for the embeddings, 1 to L.
        self_similarity: mean cosine between the places of the word.
        explained: share of its vectors' squared length along one direction, the best there is
            (maximum explainable variance): the most that one static vector could say.
        intra: mean cosine between the words of a sentence and the sentence's mean vector.
        random: mean cosine between different other words of different texts: how narrow the cone is
            in which all vectors lie. What the first and third figure would be if nothing but the
            cone were there.
        random_explained: the second figure for as many words drawn at random.
        words_self_similarity: mean self-similarity of all other words with 5 or more contexts.
        num_words: how many such words there are.
        nearest_same: share of places whose nearest other place has the same known sense.
    """

    layer: int
    self_similarity: float
    explained: float
    intra: float | None
    random: float | None
    random_explained: float | None
    words_self_similarity: float | None
    num_words: int
    nearest_same: float | None

    @property
    def adjusted(self) -> dict[str, float | None]:
        """The figures less what the cone alone gives; section 3.4."""
        return {
            "self_similarity": _less(self.self_similarity, self.random),
            "explained": _less(self.explained, self.random_explained),
            "intra": _less(self.intra, self.random),
            "words_self_similarity": _less(self.words_self_similarity, self.random),
        }


def _less(figure: float | None, base: float | None) -> float | None:
    return None if figure is None or base is None else figure - base


def unit(vectors_NH: np.ndarray) -> np.ndarray:
    """The vectors at length one, float64; a zero vector stays."""
    wide = np.asarray(vectors_NH, dtype=np.float64)
    units: np.ndarray = wide / np.maximum(np.linalg.norm(wide, axis=1, keepdims=True), 1e-12)
    return units


def cosines(vectors_NH: np.ndarray) -> np.ndarray:
    """The cosine of every pair, float64 (N, N); the diagonal is one."""
    units = unit(vectors_NH)
    found: np.ndarray = np.clip(units @ units.T, -1, 1)
    np.fill_diagonal(found, 1.0)
    return found


def mean_cosine(vectors_NH: np.ndarray) -> float:
    """Mean cosine over all pairs of different vectors, two or more; definition 1."""
    count = len(vectors_NH)
    total = np.square(unit(vectors_NH).sum(0)).sum()
    return float((total - count) / (count * (count - 1)))


def mean_cosine_across(
    vectors_NH: np.ndarray, texts: np.ndarray, forms: Sequence[str]
) -> float | None:
    """Mean cosine over all pairs of different words in different texts; None where there is none.

    A word with itself is no random pair: in short texts half of them would be commas and articles.

    Args:
        vectors_NH: float (N, H).
        texts: of each vector, integers (N,).
        forms: of each vector.
    """
    units = unit(vectors_NH)
    by_form = np.unique(np.asarray(forms), return_inverse=True)[1]
    by_text = np.unique(texts, return_inverse=True)[1]
    both = by_form * (by_text.max(initial=0) + 1) + by_text
    # All pairs without those of one text and of one form; pairs of both went twice.
    parts = [(1, np.zeros_like(both)), (-1, by_text), (-1, by_form), (1, both)]
    pairs = total = 0.0
    for sign, groups in parts:
        within, count = _within(units, groups)
        total += sign * within
        pairs += sign * count
    return total / pairs if pairs else None


def _within(units_NH: np.ndarray, groups: np.ndarray) -> tuple[float, float]:
    """Sum of the cosines of all pairs within groups, vectors with themselves too; their number."""
    inverse = np.unique(groups, return_inverse=True)[1]
    sizes = np.bincount(inverse)
    sums = np.zeros((len(sizes), units_NH.shape[1]))
    np.add.at(sums, inverse, units_NH)
    return float(np.square(sums).sum()), float(np.square(sizes).sum())


def intra_similarity(vectors_NH: np.ndarray, sentences: np.ndarray) -> float | None:
    """Mean over sentences of the mean cosine between a sentence's words and their mean vector.

    Sentences of one word do not count. Source: definition 2.
    """
    found = []
    for number in np.unique(sentences):
        own = np.asarray(vectors_NH[sentences == number], dtype=np.float64)
        if len(own) > 1:
            found.append(float((unit(own) @ unit(own.mean(0, keepdims=True))[0]).mean()))
    return float(np.mean(found)) if found else None


def explainable_variance(vectors_NH: np.ndarray) -> float:
    """The largest squared singular value, as a share of all; definition 3."""
    values = np.square(np.linalg.svd(np.asarray(vectors_NH, np.float64), compute_uv=False))
    return float(values[0] / max(values.sum(), 1e-300))


def nearest_same(cosines_NN: np.ndarray, senses: Sequence[str]) -> float:
    """Share of vectors whose nearest other vector has the same sense."""
    others = cosines_NN - 4.0 * np.eye(len(cosines_NN))
    names = np.array(senses)
    return float((names[others.argmax(1)] == names).mean())


def layer_figures(
    layer: int,
    places_NH: np.ndarray,
    words_MH: np.ndarray,
    forms: Sequence[str],
    sentences: np.ndarray,
    whole_MH: np.ndarray,
    whole_sentences: np.ndarray,
    senses: Sequence[str] | None,
    *,
    seed: int = 0,
) -> LayerFigures:
    """All figures of a layer.

    Args:
        layer: its number.
        places_NH: the word's vectors.
        words_MH: the vectors of all other words.
        forms: of these, in lower case.
        sentences: the numbers of their texts, integers (M,).
        whole_MH: the vectors of all words of whole sentences, the word itself among them.
        whole_sentences: the numbers of their texts.
        senses: of each place, where they are known.
        seed: of the draws.
    """
    repeated = repeated_forms(forms, sentences)
    known = [mean_cosine(words_MH[rows]) for rows in repeated]
    draw = np.random.default_rng(seed)
    drawn = None
    if len(words_MH) >= len(places_NH):
        picks = [draw.choice(len(words_MH), len(places_NH), replace=False) for _ in range(DRAWS)]
        drawn = float(np.mean([explainable_variance(words_MH[pick]) for pick in picks]))
    return LayerFigures(
        layer=layer,
        self_similarity=mean_cosine(places_NH),
        explained=explainable_variance(places_NH),
        intra=intra_similarity(whole_MH, whole_sentences),
        random=mean_cosine_across(words_MH, sentences, forms) if len(words_MH) else None,
        random_explained=drawn,
        words_self_similarity=float(np.mean(known)) if known else None,
        num_words=len(known),
        nearest_same=nearest_same(cosines(places_NH), senses) if senses else None,
    )


def repeated_forms(forms: Sequence[str], sentences: np.ndarray) -> list[np.ndarray]:
    """The rows of every word with letters that stands in LEAST_CONTEXTS texts or more."""
    rows: dict[str, list[int]] = {}
    for row, form in enumerate(forms):
        if any(map(str.isalnum, form)):
            rows.setdefault(form, []).append(row)
    return [
        np.array(own) for own in rows.values() if len(np.unique(sentences[own])) >= LEAST_CONTEXTS
    ]
