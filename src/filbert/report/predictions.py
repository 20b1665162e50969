"""Sections of the run report that are made from predictions, for every task."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from filbert.metrics import calibration
from filbert.metrics.classification import label_metrics
from filbert.metrics.entities import entities_of, split
from filbert.metrics.squad import answer_scores, normalize
from filbert.report import numbers, plots
from filbert.report.folder import Prediction, RunFolder, gold_is, predicted_labels, scores_of
from filbert.report.plots import Ranking
from filbert.report.render import Section, Table, gallery, section
from filbert.report.table import heading_of, model_name

MOST_CURVES = 6
MOST_LABELS = 40
# Groups of answers by their length: the least words, and the name.
ANSWER_WORDS = {
    1: "1 word", 2: "2 words", 3: "3 words", 4: "4 to 5 words", 6: "6 to 10 words",
    11: "11 or more words",
}  # fmt: skip
DEPTHS = (1, 3, 5, 10, 50, 100)

OUTCOMES = {
    "right": "correct",
    "type": "correct words, wrong type",
    "borders": "correct type, wrong words",
    "both": "wrong type and words, but overlapping",
    "missed": "missed: no predicted entity overlaps",
    "invented": "spurious: no gold entity overlaps",
}
Entity = tuple[str, int, int]


def num_rows(folder: RunFolder, what: str = "rows") -> str:
    """Return a number of rows such as `400 test rows.`"""
    return f"{len(folder.rows):,} {folder.split} {what}."


# Classification


def ranking(folder: RunFolder) -> Section | None:
    """Return ROC and precision-recall curves, and precision, recall and F1 at other thresholds."""
    curves = rankings(folder)
    if not curves:
        remark = "All rows are of one class, so there are no curves."
        return section("Ranking", num_rows(folder), remark)
    is_binary, first = folder.problem == "binary", curves[0]
    charts: dict[str, Any] = {
        "roc": (plots.ranking_plot(curves, "roc"), "ROC curves. Dashed: a random ranking."),
        "pr": (
            plots.ranking_plot(curves, "pr", show_random=is_binary),
            "Precision-recall curves with their average precision.",
        ),
    }
    if is_binary:
        threshold = folder.metrics.get("threshold", folder.run.get("threshold"))
        plot = plots.threshold_plot(first.is_positive, first.scores, threshold)
        caption = "Precision, recall and F1 at other thresholds. The one in use was chosen on dev."
        charts["threshold"] = (plot, caption)
    return section("Ranking", num_rows(folder), gallery(folder.path, charts))


def rankings(folder: RunFolder) -> list[Ranking]:
    """Return the curves that can be drawn: model and baselines, or the most frequent labels."""
    if folder.problem == "multilabel":
        lines = [(label, label, folder.rows) for label in folder.labels]
    else:
        models = {model_name(folder.run): folder.rows, **folder.baseline_predictions}
        lines = [(name, folder.positive or "", rows) for name, rows in models.items() if rows]
    curves = [
        Ranking(name, gold_is(label, rows), scores_of(label, rows)) for name, label, rows in lines
    ]
    if folder.problem == "multilabel":
        curves.sort(key=lambda one: -int(one.is_positive.sum()))
    drawable = [one for one in curves if 0 < one.is_positive.sum() < len(one.is_positive)]
    if folder.problem == "binary" and len(drawable) < len(curves):
        return []
    return [replace(one, color=at) for at, one in enumerate(drawable[:MOST_CURVES])]


def decisions(folder: RunFolder) -> Section:
    """Return the confusion matrix and the metrics of every label."""
    table = per_label(folder)
    charts = {}
    if folder.problem != "multilabel":
        shown, only = most_frequent(table)
        caption = f"Confusion matrix: colour is the share of the gold label.{only}"
        gold, predicted = ([row[key] for row in folder.rows] for key in ("gold", "label"))
        counts = confusion(gold, predicted, shown)
        charts["confusion"] = (plots.Matrix(shown, counts), caption)
    return section(
        "Decisions",
        num_rows(folder),
        gallery(folder.path, charts, metrics_table(table, "label", "gold rows")),
    )


def metrics_table(table: dict[str, dict[str, Any]], kind: str, unit: str) -> Table:
    """Return precision, recall, F1 and more of every label or type."""
    order = ("precision", "recall", "f1", "support", "roc_auc", "pr_auc", "threshold")
    keys = [key for key in order if any(key in metrics for metrics in table.values())]
    rows = [[label, *(numbers.metric(table[label].get(key)) for key in keys)] for label in table]
    headings = [unit if key == "support" else heading_of(key) for key in keys]
    return Table([kind, *headings], rows, title=f"Metrics by {kind}")


def most_frequent(table: dict[str, dict[str, Any]]) -> tuple[list[str], str]:
    """Return the MOST_LABELS labels with the most gold rows, in their order, and a remark."""
    frequent = sorted(table, key=lambda label: -table[label]["support"])[:MOST_LABELS]
    shown = [label for label in table if label in frequent]
    return shown, f" Only the {MOST_LABELS} most frequent ones." * (len(shown) < len(table))


def per_label(folder: RunFolder) -> dict[str, dict[str, Any]]:
    """Return the metrics of every label, from run.json or else from the predictions."""
    measured = folder.metrics.get("per_label") or {}
    return {
        label: measured.get(label)
        or label_metrics(
            gold_is(label, folder.rows),
            np.array([label in predicted_labels(row) for row in folder.rows]),
        )
        for label in folder.labels
    }


def confusion(gold: ArrayLike, predicted: ArrayLike, labels: ArrayLike) -> np.ndarray:
    """Return the rows by gold label (down) and predicted label (across), int64 (C, C).

    Rows with another label than the C `labels` do not count.
    """
    from sklearn.metrics import confusion_matrix

    return np.asarray(confusion_matrix(gold, predicted, labels=labels))


def calibrated(folder: RunFolder) -> Section | None:
    """Return the observed frequency by score, for tasks with probabilities."""
    rows, positive = folder.rows, folder.positive
    if not all(row.get("scores") for row in rows):
        return None
    if folder.problem == "binary" and positive is not None:
        meaning = f"share of {positive}"
        is_true, scores = gold_is(positive, rows), scores_of(positive, rows)
    elif folder.problem == "multilabel":
        meaning = "share of gold labels"
        is_true = np.concatenate([gold_is(label, rows) for label in folder.labels])
        scores = np.concatenate([scores_of(label, rows) for label in folder.labels])
    else:
        meaning = "share of correct rows"
        is_true = np.array([row.get("label", row.get("choice")) == row["gold"] for row in rows])
        # A choice has a list of scores.
        every = [row["scores"] for row in rows]
        scores = np.array([max(s.values() if isinstance(s, dict) else s) for s in every])
    error = calibration.expected_calibration_error(is_true, scores)
    caption = (
        "Reliability diagram: on the dashed line the model is calibrated. Every point has equally "
        "many rows; vertical bars: 95\N{NO-BREAK SPACE}% intervals. Expected calibration error: "
        f"{numbers.metric(error)} (15 bins)."
    )
    observed = Ranking("observed", is_true, scores)
    plot = plots.reliability_plot([observed], xlabel="score", ylabel=meaning)
    charts = {"reliability": (plot, caption)}
    return section("Calibration", num_rows(folder), gallery(folder.path, charts))


# Regression and embeddings


def scores(folder: RunFolder) -> Section:
    """Return the predicted over the gold scores, and the residuals of a regression."""
    gold, values = gold_and_predicted(folder)
    caption = "Predicted over gold scores, one dot per row. Dashed: exact prediction."
    plot = plots.scatter(gold, values, xlabel="gold", ylabel="predicted", identity=True)
    errors = np.abs(values - gold)
    lines = {
        "mean of predicted minus gold": (values - gold).mean(),
        "mean absolute error": errors.mean(),
        "median absolute error": np.quantile(errors, 0.5),
        "90 % quantile of the absolute error": np.quantile(errors, 0.9),
        "MSE of always predicting the mean gold score": gold.var(),
    }
    rows = [[name, numbers.metric(float(value))] for name, value in lines.items()]
    charts = {"scores": (plot, caption)}
    return section(
        "Scores", num_rows(folder), gallery(folder.path, charts, Table(("", "score"), rows))
    )


def gold_and_predicted(folder: RunFolder) -> tuple[np.ndarray, np.ndarray]:
    """Return gold scores and predicted values of the rows that have both, float64 (N,) each."""
    known = [row for row in folder.rows if row.get("gold") is not None and "value" in row]
    gold = np.array([row["gold"] for row in known], dtype=float)
    return gold, np.array([row["value"] for row in known], dtype=float)


def similarity(folder: RunFolder) -> Section:
    """Return the cosines of pairs over their gold scores, and the rank of the own pair."""
    charts: dict[str, Any] = {}
    gold, values = gold_and_predicted(folder)
    if len(gold):
        axes = {"xlabel": "gold score of the pair", "ylabel": "cosine"}
        plot = plots.scatter(gold, values, **axes, identity=False)
        caption = "Cosine over gold score, one dot per pair. The scale of cosines is arbitrary."
        charts["cosines"] = (plot, caption)
    depths = []
    ranked = [row for row in folder.rows if "rank" in row]
    if ranked:
        ranks, pool = np.array([row["rank"] for row in ranked]), ranked[0]["pool_size"]
        depths = [
            [f"among the first {depth} of {pool:,}",
             numbers.percent(float((ranks <= depth).mean()))]
            for depth in DEPTHS if depth < pool
        ]  # fmt: skip
        depths.append(["median rank", f"{np.median(ranks):g}"])
    table = Table(["rank of the own pair", "rows"], depths)
    return section("Similarity", num_rows(folder), gallery(folder.path, charts, table))


# Tagging


def entities(folder: RunFolder) -> Section | None:
    """Return the metrics of every entity type, their confusion by word, and the kinds of errors."""
    types = folder.metrics.get("per_label")
    if not types:
        return None
    # Tags without B- and I-, such as parts of speech, are of single words.
    is_tags = any(not split(tag)[0] for row in folder.rows for tag in row["gold"] if tag != "O")
    kind, unit = ("tag", "words") if is_tags else ("type", "gold entities")
    shown, only = most_frequent(types)
    plot = plots.Matrix([*shown, "none or another"], confusion_by_word(folder, shown))
    caption = f"Words by {kind}; colour is the share of the gold {kind}.{only}"
    counts = Counter[str]() if is_tags else kinds_of_errors(folder)
    total = max(counts.total() - counts["invented"], 1)
    outcomes = [
        [text, numbers.count(counts[one]), numbers.percent(counts[one] / total)]
        for one, text in OUTCOMES.items()
        if counts
    ]
    head = ["outcome", "entities", "of the gold entities"]
    tables = (metrics_table(types, kind, unit), Table(head, outcomes, title="Kinds of errors"))
    return section(
        "Tags" if is_tags else "Entities",
        num_rows(folder, "sentences"),
        gallery(folder.path, {"confusion": (plot, caption)}, *tables),
    )


def confusion_by_word(folder: RunFolder, types: list[str]) -> np.ndarray:
    """Return the words by gold type (down) and predicted type (across), int64 (C + 1, C + 1).

    The last row and column are for words of no entity or of a type that is not in `types`.
    """
    number = {kind: c for c, kind in enumerate(types)}
    gold, predicted = (
        [
            len(types) if tag == "O" else number.get(split(tag)[1], len(types))
            for row in folder.rows
            for tag in row[key]
        ]
        for key in ("gold", "tags")
    )
    return confusion(gold, predicted, range(len(types) + 1))


def kinds_of_errors(folder: RunFolder) -> Counter[str]:
    """Number of entities by outcome, with the keys of OUTCOMES."""
    counts: Counter[str] = Counter()
    for row in folder.rows:
        gold, predicted = entities_of(row["gold"]), entities_of(row["tags"])
        counts.update(_outcome(entity, predicted) for entity in gold)
        counts["invented"] += sum(
            not any(_overlap(entity, other) for other in gold) for entity in predicted
        )
    return counts


def mistakes(row: Prediction) -> tuple[list[Entity], list[Entity]]:
    """Return gold entities that were not predicted, and predicted entities that are not gold."""
    gold, predicted = entities_of(row["gold"]), entities_of(row["tags"])
    correct = {*gold} & {*predicted}
    return [e for e in gold if e not in correct], [e for e in predicted if e not in correct]


def _outcome(entity: Entity, predicted: list[Entity]) -> str:
    if entity in predicted:
        return "right"
    near = [other for other in predicted if _overlap(entity, other)]
    if any(other[1:] == entity[1:] for other in near):
        return "type"
    if any(other[0] == entity[0] for other in near):
        return "borders"
    return "both" if near else "missed"


def _overlap(one: Entity, other: Entity) -> bool:
    return one[1] < other[2] and other[1] < one[2]


# Questions and choices


def answers(folder: RunFolder) -> Section:
    """Return F1 and exact match by the length of answer and context, and unanswerable questions."""
    rows = folder.rows
    lengths = [
        min(len(normalize(text).split()) for text in row["gold"]) if row["gold"] else 0
        for row in rows
    ]
    contexts = by_tokens(np.array([row["num_tokens"] for row in rows]))
    answered = []
    for name, wanted in (("answerable", True), ("unanswerable", False)):
        given = [bool(row["answer"]) for row in rows if bool(row["gold"]) == wanted]
        answered.append([name, numbers.count(sum(given)), numbers.count(len(given) - sum(given))])
    scores = question_scores(rows)
    head = ["questions", "answered", "left empty"]
    by_length = np.searchsorted([*ANSWER_WORDS], np.maximum(lengths, 1), "right")
    by_length[[not row["gold"] for row in rows]] = 0
    names = ("unanswerable", *ANSWER_WORDS.values())
    by_words = {name: by_length == number for number, name in enumerate(names)}
    return section(
        "Answers",
        num_rows(folder, "questions"),
        gallery(
            folder.path,
            {},
            _by_group("Shortest gold answer", by_words, scores),
            _by_group("Question and context", contexts, scores),
            Table(head, answered, title="Answerable and unanswerable questions"),
        ),
    )


def _by_group(title: str, parts: Mapping[str, np.ndarray], scores: np.ndarray) -> Table:
    """Return a table of F1 and exact match, of (N, 2), by part of the rows, bool (N,)."""
    rows = []
    for name, is_in in parts.items():
        part = scores[is_in]
        if len(part):
            exact, f1 = part.mean(0)
            rows.append([name, f"{len(part):,}", numbers.percent(f1), numbers.percent(exact)])
    return Table([title.lower(), "questions", "F1", "exact match"], rows, title=title)


def by_tokens(sizes: np.ndarray) -> dict[str, np.ndarray]:
    """Return the quarters of the rows by their number of tokens, int (N,): bool (N,) by name."""
    borders = sorted({int(border) for border in np.quantile(sizes, [0.25, 0.5, 0.75])})
    names = [*(f"to {border:,} tokens" for border in borders), f"over {borders[-1]:,} tokens"]
    groups = np.searchsorted(borders, sizes)
    return {name: groups == number for number, name in enumerate(names)}


def question_scores(rows: list[Prediction]) -> np.ndarray:
    """Return the exact match and F1 of every question, float64 (N, 2), in [0, 1]."""
    # With unanswerable questions the empty answer may be correct: the rules of SQuAD v2.0.
    empty = any(not row["gold"] for row in rows)
    scores = [answer_scores(row["gold"], row["answer"], empty_can_match=empty) for row in rows]
    return np.array(scores, dtype=float)


def choices(folder: RunFolder) -> Section:
    """Return gold and chosen positions, and the accuracy by gold position."""
    counts = positions(folder)
    names = [str(position) for position in range(len(counts))]
    charts: dict[str, Any] = {}
    if len(counts) <= MOST_LABELS:
        caption = "Rows by the position of the right and of the chosen answer."
        charts = {"confusion": (plots.Matrix(names, counts), caption)}
    gold, chosen = counts.sum(1).tolist(), counts.sum(0).tolist()
    lines = [
        [name, numbers.count(gold[at]), numbers.count(chosen[at]),
         numbers.fixed(counts[at, at] / gold[at] if gold[at] else None, 4)]
        for at, name in enumerate(names)
    ]  # fmt: skip
    table = Table(["position", "right", "chosen", "accuracy"], lines)
    remark = f"{num_rows(folder)} Positions are counted from 0, as in the data."
    return section("Choices", remark, gallery(folder.path, charts, table))


def positions(folder: RunFolder) -> np.ndarray:
    """Return the rows by gold position (down) and chosen position (across), int64 (C, C)."""
    gold, chosen = ([int(row[key]) for row in folder.rows] for key in ("gold", "choice"))
    num_choices = [len(row.get("scores") or ()) for row in folder.rows]
    return confusion(gold, chosen, range(max(1 + max(gold + chosen), *num_choices)))


# problem -> its sections
SECTIONS: dict[str, tuple[Callable[[RunFolder], Section | None], ...]] = {
    "binary": (ranking, decisions, calibrated),
    "multiclass": (decisions, calibrated),
    "multilabel": (ranking, decisions, calibrated),
    "regression": (scores,),
    "embedding": (similarity,),
    "tagging": (entities,),
    "span_qa": (answers,),
    "multiple_choice": (choices, calibrated),
}
