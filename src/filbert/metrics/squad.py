"""SQuAD metrics: exact match and token F1, in percent, equal to those of the official scripts.

Source: Rajpurkar et al. 2016, section 6.1 (v1.1) and 2018, section 5 (v2.0); evaluate-v1.1.py and
evaluate-v2.0.py for the rules that the papers leave out.
"""

from __future__ import annotations

import math
import re
import string
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from filbert.errors import InputError

# evaluate-v2.0.py's default: a prediction with a higher no-answer score counts as "".
SCRIPT_LIMIT = 1.0

_PUNCTUATION = str.maketrans("", "", string.punctuation)
# A pattern, because "the" before a dash outside ASCII counts as an article too.
_ARTICLES = re.compile(r"\b(?:a|an|the)\b")


def normalize(text: str) -> str:
    """Lower-case a text, remove ASCII punctuation and articles, and collapse white space."""
    return " ".join(_ARTICLES.sub(" ", text.lower().translate(_PUNCTUATION)).split())


def token_f1(predicted: str, gold: str, *, empty_can_match: bool) -> float:
    """Compute the F1 of two normalised texts as bags of words.

    `empty_can_match`: Two texts without words are equal (v2.0) or not (v1.1).
    """
    ours, theirs = predicted.split(), gold.split()
    if not ours or not theirs:
        return float(empty_can_match and ours == theirs)
    same = sum((Counter(ours) & Counter(theirs)).values())
    return 2 * same / (len(ours) + len(theirs)) if same else 0.0


def answer_scores(
    answers: Sequence[str], prediction: str | None, *, empty_can_match: bool
) -> tuple[float, float]:
    """Return exact match and F1 of one question, each the best over the gold answers; in [0, 1].

    Args:
        answers: Gold texts. In v2.0 a list without a word means that there is no answer.
        prediction: None, for a question without a prediction, scores 0.
        empty_can_match: See `token_f1`.
    """
    if prediction is None:
        return 0.0, 0.0
    ours = normalize(prediction)
    gold = {normalize(text) for text in answers}
    if empty_can_match:
        gold = {text for text in gold if text} or {""}
    exact = float(ours in gold)
    if exact and ours:
        return 1.0, 1.0
    f1 = max((token_f1(ours, text, empty_can_match=empty_can_match) for text in gold), default=0.0)
    return exact, f1


def best_threshold(
    scores: np.ndarray, has_answer: np.ndarray, answered: np.ndarray, no_answer: np.ndarray
) -> tuple[float, float | None]:
    """Find the best sum of scores if questions with a no-answer score above a threshold get "".

    As find_best_thresh of evaluate-v2.0.py: questions are answered in the order of their no-answer
    score, equal ones in the order given.

    Args:
        scores: Of the predictions, float64 (Q,).
        has_answer: bool (Q,).
        answered: bool (Q,), True for a prediction that is not empty.
        no_answer: float64 (Q,), larger where "" is more likely.

    Returns:
        The sum, and the no-answer score of the last question that is answered; None if no question
        should be answered.
    """
    nothing = float(np.count_nonzero(~has_answer))
    order = np.argsort(no_answer, kind="stable")
    gain = np.where(has_answer, scores, -1.0 * answered)[order]
    sums = np.cumsum(np.concatenate([[nothing], gain]))[1:]
    if not len(sums) or sums.max() <= nothing:
        return nothing, None
    last = int(sums.argmax())
    return float(sums[last]), float(no_answer[order[last]])


def fit_threshold(
    gold: Sequence[Sequence[str]], answers: Sequence[str], no_answer: Sequence[float]
) -> float:
    """Return the threshold on no-answer scores with the best F1: above it the answer is "".

    `answers` are the best ones that are not empty; else as for `squad_metrics`.
    """
    f1 = [answer_scores(t, a, empty_can_match=True)[1] for t, a in zip(gold, answers, strict=True)]
    odds = np.asarray(no_answer, dtype=np.float64)
    _, threshold = best_threshold(
        np.array(f1),
        np.array([len(texts) > 0 for texts in gold], dtype=bool),
        np.array([bool(answer) for answer in answers], dtype=bool),
        odds,
    )
    # The official script returns 0.0 if no question should be answered, which suits probabilities.
    return float(odds.min(initial=0.0)) - 1.0 if threshold is None else threshold


def squad_metrics(
    gold: Sequence[Sequence[str]],
    predictions: Sequence[str | None],
    no_answer: Sequence[float] | None = None,
    *,
    order: Sequence[int] | None = None,
    limit: float = math.inf,
) -> dict[str, Any]:
    """Compute exact_match and f1 in percent; with unanswerable questions also those of v2.0.

    `best_*` are the results of the best threshold on the no-answer scores, fitted on these very
    predictions. Without such scores all count as 0, as in Hugging Face's libraries, and `best_*`
    depends on the order of the predictions: do not compare it between runs.

    Args:
        gold: Texts of the answers of each question.
        predictions: None where there is none; it scores 0 and is counted in "missing".
        no_answer: For each question, larger where "" is more likely. They change `best_*` only, as
            far as they are within `limit`.
        order: Indices of the questions in the order of the file of predictions, which decides
            between equal no-answer scores.
        limit: A prediction with a higher no-answer score counts as "" in all metrics but `best_*`;
            see SCRIPT_LIMIT.
    """
    has_answer = np.array([len(texts) > 0 for texts in gold], dtype=bool)
    version_2 = not has_answer.all()
    pairs = [
        answer_scores(texts, prediction, empty_can_match=version_2)
        for texts, prediction in zip(gold, predictions, strict=True)
    ]
    scores = np.array(pairs, dtype=np.float64).reshape(len(pairs), 2)
    odds = np.zeros(len(gold)) if no_answer is None else np.asarray(no_answer, dtype=np.float64)
    given = np.array([prediction is not None for prediction in predictions], dtype=bool)
    kept = np.where((given & (odds > limit))[:, None], ~has_answer[:, None], scores)
    exact, f1 = kept[:, 0], kept[:, 1]
    metrics: dict[str, Any] = {"exact_match": _percent(exact), "f1": _percent(f1)}
    if not given.all():
        metrics["missing"] = int(np.count_nonzero(~given))
    if not version_2:
        return metrics
    for name, chosen in (("HasAns", has_answer), ("NoAns", ~has_answer)):
        metrics[f"{name}_exact"] = _percent(exact[chosen])
        metrics[f"{name}_f1"] = _percent(f1[chosen])
        metrics[f"{name}_total"] = int(np.count_nonzero(chosen))
    answered = np.array([bool(prediction) for prediction in predictions], dtype=bool)
    places = np.array([i for i in order or range(len(gold)) if given[i]], dtype=np.int64)
    for name, values in zip(("exact", "f1"), scores.T, strict=True):
        total, threshold = best_threshold(
            values[places], has_answer[places], answered[places], odds[places]
        )
        # Questions without prediction count in the total, but not in the search.
        metrics[f"best_{name}"] = 100.0 * total / len(gold)
        metrics[f"best_{name}_thresh"] = 0.0 if threshold is None else threshold
    return metrics


def metrics_by_id(
    gold: Sequence[tuple[str, Sequence[str]]],
    answers: Mapping[str, str],
    no_answer: Mapping[str, float] | None = None,
) -> dict[str, Any]:
    """Compute the metrics of the official script from its own files.

    Args:
        gold: Id and texts of the answers of each question.
        answers: The answer by id; a question without one scores 0.
        no_answer: The no-answer score by id; above 1 the answer counts as "".

    Raises:
        InputError: no prediction is for any of the questions, or a no-answer score is missing.
    """
    index = {id: i for i, (id, _) in enumerate(gold)}
    if not any(id in index for id in answers):
        raise InputError(
            f"None of the {len(answers)} predictions is for one of the {len(gold)} questions: "
            "no id is in both files. Do they belong together?"
        )
    lacking = [id for id in answers if id in index and id not in (no_answer or answers)]
    if lacking:
        raise InputError(
            f"{len(lacking)} predictions have no no-answer score, first {lacking[0]!r}."
        )
    return squad_metrics(
        [texts for _, texts in gold],
        [answers.get(id) for id, _ in gold],
        None if no_answer is None else [no_answer.get(id, 0.0) for id, _ in gold],
        order=[index[id] for id in no_answer or answers if id in index],
        limit=SCRIPT_LIMIT,
    )


def _percent(values: np.ndarray) -> float | None:
    return 100.0 * float(values.sum()) / len(values) if len(values) else None
