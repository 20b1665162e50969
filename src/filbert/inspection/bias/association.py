"""Association tests on vectors: WEAT on the word table, SEAT on sentences.

Sources: Caliskan et al. 2017 (WEAT); May et al. 2019 (SEAT); Tan and Celis 2019 for words in
context. One change: sentences around one word are no independent observations, so a word counts
once, by the mean over its sentences; SEAT permutes sentences, whose p-values are far too small.
Another: the vector of a sentence is the one that `embed` gives, the mean of its tokens where the
model says nothing else; May et al. take BERT's first token.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from filbert.inspection.bias.sentences import VECTORS, cleaning_of, known_words, vectors_of
from filbert.inspection.bias.statistics import association_interval, effect_size, permuted
from filbert.inspection.bias.words import Association, WordSet
from filbert.inspection.self_similarity import unit
from filbert.metrics.paired import holm
from filbert.predict import Predictor


@dataclass(frozen=True, slots=True)
class Associated:
    """The answer to one question for one kind of vector.

    Attributes:
        test: the question, with the words that the vocabulary knows.
        vectors: a key of `sentences.VECTORS`.
        unknown: words that were left out.
        effect: standard deviations by which x leans more to a than y does; None where a set has
            less than two words left, or all lean alike.
        low, high: ends of its interval.
        p_one_sided, p_two_sided: of the permutation test over words.
        p_holm: the two-sided p, corrected for the number of questions that are no control.
        is_exact: all permutations were counted.
        effect_over_sentences: counted as SEAT counts, every sentence an observation of its own.
        nearer: by target word, the mean cosine with a minus that with b.
    """

    test: Association
    vectors: str
    unknown: tuple[str, ...]
    effect: float | None = None
    low: float | None = None
    high: float | None = None
    p_one_sided: float | None = None
    p_two_sided: float | None = None
    p_holm: float | None = None
    is_exact: bool = True
    effect_over_sentences: float | None = None
    nearer: Mapping[str, float] | None = None


def associations(
    predictor: Predictor,
    tests: Sequence[Association],
    sentences: Sequence[str],
    *,
    kinds: Sequence[str] = tuple(VECTORS),
    resamples: int = 2000,
    level: float = 0.95,
    seed: int = 0,
) -> list[Associated]:
    """Every question with every kind of vector, kind after kind.

    Args:
        predictor: a loaded model.
        tests: the questions.
        sentences: that say nothing, with a gap.
        kinds: keys of `sentences.VECTORS`.
        resamples: for the intervals.
        level: of the intervals.
        seed: of all draws.
    """
    words = list(dict.fromkeys(word for test in tests for one in _sets(test) for word in one.words))
    known = known_words(words, predictor.tokenizer, cleaning_of(predictor))
    writable = [word for word in words if known[word]]
    found = []
    for kind in kinds:
        vectors = {
            word: unit(rows)
            for word, rows in vectors_of(predictor, writable, sentences, kind).items()
        }
        for test in tests:
            kept, unknown = _kept(test, known)
            answer = Associated(kept, kind, unknown)
            if min(len(one.words) for one in _sets(kept)) >= 2:
                answer = _judged(answer, vectors, resamples=resamples, level=level, seed=seed)
            found.append(answer)
    return _corrected(found)


def _judged(
    answer: Associated,
    vectors: Mapping[str, np.ndarray],
    *,
    resamples: int,
    level: float,
    seed: int,
) -> Associated:
    test = answer.test
    sets = [[vectors[word] for word in one.words] for one in _sets(test)]
    x, y, a, b = sets
    # The mean of a word's unit vectors: its product with another's is the mean of their cosines.
    means = [np.stack([rows.mean(0) for rows in one]) for one in sets]
    targets, attributes = np.concatenate(means[:2]), np.concatenate(means[2:])
    cosines = targets @ attributes.T
    nearer = cosines[:, : len(a)].mean(1) - cosines[:, len(a) :].mean(1)
    first, second = nearer[: len(x)], nearer[len(x) :]
    effect = effect_size(first, second)
    if effect is None:
        return answer
    low, high = association_interval(
        cosines, (len(x), len(y), len(a), len(b)), resamples=resamples, level=level, seed=seed
    )
    chance = permuted(first, second, seed=seed)
    pull = means[2].mean(0) - means[3].mean(0)
    return replace(
        answer,
        effect=effect,
        low=low,
        high=high,
        p_one_sided=chance.one_sided,
        p_two_sided=chance.two_sided,
        is_exact=chance.is_exact,
        effect_over_sentences=None
        if answer.vectors == "table"
        else effect_size(np.concatenate(x) @ pull, np.concatenate(y) @ pull),
        nearer=dict(zip((*test.x.words, *test.y.words), map(float, nearer), strict=True)),
    )


def _corrected(answers: Sequence[Associated]) -> list[Associated]:
    """With `p_holm`, over all questions whose answer is not known beforehand."""
    open_questions = [
        i
        for i, one in enumerate(answers)
        if one.p_two_sided is not None and not one.test.is_control
    ]
    corrected = holm([answers[i].p_two_sided or 0.0 for i in open_questions])
    found = list(answers)
    for i, p in zip(open_questions, corrected, strict=True):
        found[i] = replace(found[i], p_holm=p)
    return found


def _sets(test: Association) -> tuple[WordSet, WordSet, WordSet, WordSet]:
    return test.x, test.y, test.a, test.b


def _kept(test: Association, known: Mapping[str, bool]) -> tuple[Association, tuple[str, ...]]:
    """The question with the known words alone, and the others."""
    x, y, a, b = (
        replace(one, words=tuple(word for word in one.words if known[word])) for one in _sets(test)
    )
    words = dict.fromkeys(word for one in _sets(test) for word in one.words)
    return replace(test, x=x, y=y, a=a, b=b), tuple(w for w in words if not known[w])
