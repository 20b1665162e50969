"""Identity terms: does a classifier's score move when only who is spoken of changes?

K templates, G terms of a group.

Sources: Dixon et al. 2018, section 4; Kiritchenko and Mohammad 2018.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from filbert.errors import ConfigError
from filbert.inspection.bias.sentences import cleaning_of, known_words, placed
from filbert.inspection.bias.statistics import gap_between, term_intervals
from filbert.inspection.bias.words import Group
from filbert.metrics.paired import holm
from filbert.predict import Predictor
from filbert.tasks.base import Task


@dataclass(frozen=True, slots=True)
class Term:
    """What a model makes of sentences about one term.

    Attributes:
        term: as it stands in the sentences.
        score: mean over the templates.
        difference: `score` minus the mean of the group.
        low, high: ends of its interval, with other templates.
        by_tone: mean score over the templates of each tone.
    """

    term: str
    score: float
    difference: float
    low: float | None
    high: float | None
    by_tone: Mapping[str, float]


@dataclass(frozen=True, slots=True)
class Compared:
    """One group of terms.

    Attributes:
        group: with its terms.
        terms: one answer for each, in the order of the group.
        gap: highest mean score minus the lowest.
        by_chance: 95 of 100 gaps are not larger where the terms change places by chance.
        p: of that.
        p_holm: corrected for the number of groups that are no control.
        changed: share of templates whose answer is not the same for all terms; None for scores.
        unknown: terms that the vocabulary cannot write; the model cannot tell these apart.
    """

    group: Group
    terms: tuple[Term, ...]
    gap: float
    by_chance: float
    p: float
    p_holm: float | None
    changed: float | None
    unknown: tuple[str, ...]


def compared(
    predictor: Predictor,
    groups: Sequence[Group],
    templates: Mapping[str, Sequence[str]],
    *,
    label: str | None = None,
    resamples: int = 2000,
    level: float = 0.95,
    seed: int = 0,
) -> list[Compared]:
    """How a model's scores differ between the terms of each group.

    Args:
        predictor: a model for classification or regression.
        groups: of terms.
        templates: sentences with a gap, by tone.
        label: whose probability is the score; see `score_label`.
        resamples: for the intervals.
        level: of the intervals.
        seed: of all draws.

    Raises:
        ConfigError: the model gives no score, or `label` is none of its labels.
    """
    task = scoring_task(predictor.task)
    wanted = score_label(task, label)
    sentences = [text for texts in templates.values() for text in texts]
    tones = np.repeat(np.arange(len(templates)), [len(texts) for texts in templates.values()])
    every = [term for one in groups for term in one.terms]
    known = known_words(every, predictor.tokenizer, cleaning_of(predictor))
    found = []
    for group in groups:
        texts = [placed(text, term).text for text in sentences for term in group.terms]
        predictions = predictor.predict(texts)
        shape = (len(sentences), len(group.terms))
        scores = np.array([_score(one, wanted) for one in predictions]).reshape(shape)
        intervals = term_intervals(scores, tones, resamples=resamples, level=level, seed=seed)
        gap = gap_between(scores, seed=seed)
        means = scores.mean(0)
        terms = tuple(
            Term(
                term,
                float(means[i]),
                float(means[i] - means.mean()),
                *intervals[i],
                {tone: float(scores[tones == t, i].mean()) for t, tone in enumerate(templates)},
            )
            for i, term in enumerate(group.terms)
        )
        unknown = tuple(term for term in group.terms if not known[term])
        changed = _changed(predictions, shape, wanted)
        found.append(Compared(group, terms, gap.gap, gap.by_chance, gap.p, None, changed, unknown))
    asked = [i for i, one in enumerate(found) if not one.group.is_control]
    corrected = holm([found[i].p for i in asked])
    for i, p in zip(asked, corrected, strict=True):
        found[i] = replace(found[i], p_holm=p)
    return found


def scoring_task(task: Task | None) -> Task:
    """The task, if it gives a text a score.

    Raises:
        ConfigError: it does not.
    """
    if task is None or task.name not in ("classification", "regression"):
        has = "no task head" if task is None else f"a {task.name} head"
        raise ConfigError(
            f"This model has {has}; identity terms need one for classification or regression."
        )
    return task


def score_label(task: Task, label: str | None) -> str | None:
    """The label whose probability is the score; None for regression, whose value is.

    Of two labels it is the positive one when none is named.

    Raises:
        ConfigError: there are several labels and none is named, or it is none of them.
    """
    if task.name == "regression":
        if label is not None:
            raise ConfigError("--label is for classification; this model gives a number.")
        return None
    labels = task.labels or ()
    if label is None and getattr(task, "is_binary", False):
        return str(labels[getattr(task, "positive_id", 1)])
    if label not in labels:
        problem = "is not given" if label is None else f"is {label!r}"
        raise ConfigError(f"--label {problem}; choose whose score to compare: {', '.join(labels)}.")
    return label


def _score(prediction: Mapping[str, Any], label: str | None) -> float:
    return float(prediction["value"] if label is None else prediction["scores"][label])


def _changed(
    predictions: Sequence[Mapping[str, Any]], shape: tuple[int, int], label: str | None
) -> float | None:
    """The share of templates in which not all terms get the same answer about the label."""
    if label is None:
        return None
    chosen = [label in one["labels"] if "labels" in one else one["label"] for one in predictions]
    answers = np.array(chosen).reshape(shape)
    return float((answers != answers[:, :1]).any(1).mean())
