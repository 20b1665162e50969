"""Sections of the run report that are made from predictions, for every task."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from filbert.metrics import calibration
from filbert.metrics.classification import label_metrics
from filbert.metrics.entities import entities_of, entity_metrics, split
from filbert.metrics.squad import answer_scores, normalize
from filbert.report import canvas, numbers, plots
from filbert.report.folder import RunFolder
from filbert.report.plots import MOST_LABELS, Ranking
from filbert.report.render import Block, Figures, Section, Table, gallery, section
from filbert.report.table import model_name

MOST_CURVES = 6
# First value of each group: ranks, and words of the shortest gold answer.
RANKS = (1, 2, 3, 4, 6, 11, 21, 51, 101)
DEPTHS = (1, 3, 5, 10, 50, 100)
ANSWER_WORDS = (1, 2, 3, 4, 6, 11)

NO_ENTITY = "no entity"
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
    """`400 test rows.`"""
    return f"{len(folder.rows):,} {folder.shown_split} {what}."


# Classification


def ranking(folder: RunFolder) -> Section | None:
    """ROC and precision-recall curves, scores by class, and other thresholds."""
    is_binary, positive = folder.problem == "binary", folder.positive
    curves, without = rankings(folder)
    figures: dict[str, Any] = {}
    if curves:
        random = " Dashed: a random ranking."
        figures["roc"] = (
            plots.ranking_plot(curves, "roc"), f"ROC curves with their areas.{random}"
        )  # fmt: skip
        figures["pr"] = (
            plots.ranking_plot(curves, "pr", show_random=is_binary),
            f"Precision-recall curves with their average precision.{random * is_binary}",
        )
    if is_binary and positive is not None:
        negative = next((label for label in folder.labels if label != positive), "other")
        gold, scores = folder.gold_is(positive), folder.scores_of(positive)
        threshold = folder.shown_metrics.get("threshold", folder.run.get("threshold"))
        plot = plots.class_histogram(
            scores, gold, (negative, positive), threshold, xlabel="score",
            edges=np.linspace(0, 1, 31), log=True,
        )  # fmt: skip
        caption = "Scores by true class. Rows on the wrong side of the threshold are errors."
        figures["scores"] = (plot, caption)
        if gold.any():
            on = "these rows" if folder.shown_split == "dev" else "dev, not on these rows"
            figures["threshold"] = (
                plots.threshold_plot(gold, scores, threshold),
                "Precision, recall and F1 at other thresholds. The threshold in use was chosen on "
                f"{on}.",
            )
    if not figures:
        return None
    return section("Ranking", num_rows(folder), without, gallery(folder.path, figures))


def rankings(folder: RunFolder) -> tuple[list[Ranking], str]:
    """The curves that can be drawn, the model's first, and a sentence about the others."""
    if folder.problem == "multilabel":
        by_support = sorted(folder.labels, key=lambda label: -int(folder.gold_is(label).sum()))
        found = [Ranking(x, folder.gold_is(x), folder.scores_of(x)) for x in by_support]
        found = [one for one in found if 0 < one.is_positive.sum() < len(one.is_positive)]
        text = f"The {MOST_CURVES} most frequent labels." if len(found) > MOST_CURVES else ""
        return found[:MOST_CURVES], text
    label = folder.positive
    if label is None:
        return [], ""
    contenders = {model_name(folder.run): folder.rows, **folder.baseline_predictions}
    found = [
        Ranking(name, folder.gold_is(label, rows), folder.scores_of(label, rows))
        for name, rows in contenders.items()
        if rows
    ]
    if not 0 < found[0].is_positive.sum() < len(found[0].is_positive):
        return [], f"All rows are of one class, so there is no ROC curve of label {label!r}."
    names = [str(baseline.get("name")) for baseline in folder.run.get("baselines") or ()]
    missing = [name for name in names if name not in folder.baseline_predictions]
    return found, f"No curve for {', '.join(missing)}: no stored scores." if missing else ""


def decisions(folder: RunFolder) -> Section | None:
    """Confusion matrix and the metrics of every label."""
    if not folder.labels:
        return None
    table = per_label(folder)
    shown, only = most_frequent(table)
    figures = {}
    if folder.problem != "multilabel":
        caption = f"Confusion matrix: colour is the share of the gold label.{only}"
        figures["confusion"] = (plots.confusion_plot(confusion(folder, shown), shown), caption)
    figures["label_f1"] = (
        plots.label_bars({label: table[label] for label in shown}),
        f"F1 of every label; n is the number of gold rows.{only}",
    )
    keys = ["precision", "recall", "f1", "support", "roc_auc", "pr_auc", "threshold"]
    keys = [key for key in keys if any(key in scores for scores in table.values())]
    headings = {"f1": "F1", "support": "gold rows", "roc_auc": "ROC AUC", "pr_auc": "PR AUC"}
    head = ["label", *(headings.get(key, key) for key in keys)]
    rows = [[label, *(numbers.metric(table[label].get(key)) for key in keys)] for label in table]
    return section(
        "Decisions",
        num_rows(folder),
        gallery(folder.path, figures),
        Table(head, rows, title="Metrics by label"),
    )


def most_frequent(table: dict[str, dict[str, Any]]) -> tuple[list[str], str]:
    """The MOST_LABELS labels with the most gold rows, in their order, and a remark."""
    frequent = sorted(table, key=lambda label: -table[label]["support"])[:MOST_LABELS]
    shown = [label for label in table if label in frequent]
    return shown, f" Only the {MOST_LABELS} most frequent ones." * (len(shown) < len(table))


def per_label(folder: RunFolder) -> dict[str, dict[str, Any]]:
    """Metrics of every label, from run.json or else from the predictions."""
    measured = folder.shown_metrics.get("per_label") or {}
    return {
        label: measured.get(label)
        or label_metrics(folder.gold_is(label), folder.predicted_is(label))
        for label in folder.labels
    }


def confusion(folder: RunFolder, labels: list[str]) -> np.ndarray:
    """Rows by gold label (down) and predicted label (across), int64 (C, C)."""
    number = {label: c for c, label in enumerate(labels)}
    pairs = [(number.get(row["gold"]), number.get(row["label"])) for row in folder.rows]
    return crossed([pair for pair in pairs if None not in pair], len(labels))


def crossed(pairs: Sequence[tuple[Any, ...]], size: int) -> np.ndarray:
    """Number of pairs by their first number (down) and second number (across), int64 (C, C)."""
    counts = np.zeros((size, size), dtype=np.int64)
    for pair in pairs:
        counts[pair] += 1
    return counts


def calibrated(folder: RunFolder) -> Section | None:
    """Observed frequency by score, for tasks with probabilities."""
    rows, positive = folder.rows, folder.positive
    meaning = "share of correct rows"
    if folder.problem == "binary":
        if positive is None:
            return None
        is_true, confidence = folder.gold_is(positive), folder.scores_of(positive)
        meaning = f"share of {positive}"
    elif folder.problem == "multiclass":
        is_true = np.array([row["label"] == row["gold"] for row in rows])
        confidence = np.array([max(row["scores"].values()) for row in rows])
    elif folder.problem == "multilabel":
        is_true = np.concatenate([folder.gold_is(label) for label in folder.labels])
        confidence = np.concatenate([folder.scores_of(label) for label in folder.labels])
        meaning = "share of gold labels"
    else:
        if not all(row.get("scores") for row in rows):
            return None
        is_true = np.array([row["choice"] == row["gold"] for row in rows])
        confidence = np.array([max(row["scores"]) for row in rows])
    bins = calibration.reliability_bins(is_true, confidence)
    plot = plots.reliability_plot(bins, xlabel="score", ylabel=canvas.plain(meaning))
    error = calibration.expected_calibration_error(is_true, confidence)
    caption = (
        "Reliability diagram: on the dashed line the model is calibrated. Vertical bars: "
        "95\N{NO-BREAK SPACE}% intervals. Expected calibration error: "
        f"{numbers.metric(error)} (15 bins)."
    )
    lines = [
        [f"{b.lower:.2f} – {b.upper:.2f}", numbers.count(b.num_rows), numbers.metric(b.confidence),
         numbers.metric(b.frequency)]
        for b in bins
    ]  # fmt: skip
    table = Table(["score", "rows", "mean score", meaning], lines, css_class="dense")
    figures = {"reliability": (plot, caption)}
    return section("Calibration", num_rows(folder), gallery(folder.path, figures, table))


# Regression and embeddings


def scores(folder: RunFolder) -> Section:
    """Predicted over gold scores, and the residuals of a regression."""
    gold, values = gold_and_predicted(folder)
    residuals = values - gold
    figures = {
        "scores": (
            plots.scatter(gold, values, xlabel="gold", ylabel="predicted", identity=True),
            "Predicted over gold scores, one dot per row. Dashed: exact prediction.",
        ),
        "residuals": (
            plots.residual_histogram(residuals),
            "Residuals: to the right of 0 the prediction is too high, to the left too low.",
        ),
    }
    errors = np.abs(residuals)
    lines = {
        "mean residual": residuals.mean(),
        "mean absolute error": errors.mean(),
        "median absolute error": np.quantile(errors, 0.5),
        "90 % quantile of the absolute error": np.quantile(errors, 0.9),
        "MSE of always predicting the mean gold score": gold.var(),
    }
    rows = [[name, numbers.metric(float(value))] for name, value in lines.items()]
    table = Table(("", "score"), rows, css_class="dense")
    return section("Scores", num_rows(folder), gallery(folder.path, figures), table)


def gold_and_predicted(folder: RunFolder) -> tuple[np.ndarray, np.ndarray]:
    """Gold scores and predicted values of the rows that have both, float64 (N,) each."""
    known = [row for row in folder.rows if row.get("gold") is not None and "value" in row]
    gold = np.array([row["gold"] for row in known], dtype=float)
    return gold, np.array([row["value"] for row in known], dtype=float)


def similarity(folder: RunFolder) -> Section | None:
    """Cosines of pairs over their gold scores, and the rank of the own pair."""
    figures: dict[str, Any] = {}
    depths = []
    ranked = [row for row in folder.rows if "rank" in row]
    if ranked:
        ranks = np.array([row["rank"] for row in ranked])
        pools = sorted({int(row["pool_size"]) for row in ranked})
        pool = f"{pools[-1]:,}" if len(pools) == 1 else f"{pools[0]:,} to {pools[-1]:,}"
        starts = [start for start in RANKS if start <= pools[-1]]
        counts = np.histogram(ranks, [*starts, np.inf])[0]
        plot = plots.share_bars(
            group_names(starts), {"share": (counts / len(ranks)).tolist()}, counts.tolist(),
            xlabel="rank of the own pair", ylabel="share of the rows",
        )  # fmt: skip
        caption = f"Rank of the own pair among {pool} candidates; 1 is correct."
        figures["ranks"] = (plot, caption)
        depths = [
            [f"among the first {depth}" if depth > 1 else "first",
             numbers.percent(float((ranks <= depth).mean()))]
            for depth in DEPTHS
            if depth == 1 or depth < pools[-1]
        ]  # fmt: skip
        depths.append(["median rank", f"{np.median(ranks):g}"])
    gold, values = gold_and_predicted(folder)
    if len(gold):
        labels = {"xlabel": "gold score of the pair", "ylabel": "cosine"}
        figures["cosines"] = (
            plots.scatter(gold, values, **labels, identity=False),
            "Cosine over gold score, one dot per pair. The cosine should rise with the score; its "
            "scale is arbitrary.",
        )
    if not figures:
        return None
    table = Table(["own pair", "rows"], depths, css_class="dense")
    return section("Similarity", num_rows(folder), gallery(folder.path, figures, table))


def group_names(starts: list[int]) -> list[str]:
    """Names of groups of whole numbers by their first values: 1, 2, 3–4, 5+."""
    names = [
        str(start) if end - start == 1 else f"{start}–{end - 1}"
        for start, end in zip(starts, starts[1:], strict=False)
    ]
    return [*names, f"{starts[-1]}+"]


# Tagging


def entities(folder: RunFolder) -> Section | None:
    """Metrics of every entity type, their confusion by word, and the kinds of errors."""
    types = per_type(folder)
    if not types:
        return None
    shown, only = most_frequent(types)
    # Tags without B- and I-, such as parts of speech, are of single words.
    is_tags = any(not split(tag)[0] for row in folder.rows for tag in row["gold"] if tag != "O")
    kind, unit = ("tag", "words") if is_tags else ("type", "gold entities")
    counts, names = confusion_by_word(folder, shown), [*shown, "another" if is_tags else NO_ENTITY]
    if is_tags and not (counts[-1].any() or counts[:, -1].any()):
        counts, names = counts[:-1, :-1], shown
    by = "their tag" if is_tags else "the type of their entity"
    figures = {
        "label_f1": (
            plots.label_bars({name: types[name] for name in shown}),
            f"F1 of every {kind}; n is the number of {unit}.{only}",
        ),
        "confusion": (
            plots.confusion_plot(counts, names),
            f"Words by {by}; colour is the share of the gold {kind}.{only}",
        ),
    }
    rows = [
        [name, *(numbers.metric(metrics[key]) for key in ("precision", "recall", "f1", "support"))]
        for name, metrics in types.items()
    ]
    found = Counter[str]() if is_tags else kinds_of_errors(folder)
    total = max(sum(found[one] for one in OUTCOMES if one != "invented"), 1)
    outcomes = [
        [text, numbers.count(found[one]), numbers.percent(found[one] / total)]
        for one, text in OUTCOMES.items()
        if found
    ]
    head, errors = (
        [kind, "precision", "recall", "F1", unit],
        ["outcome", "entities", "of the gold entities"],
    )
    tables = (
        Table(head, rows, title=f"Metrics by {kind}"),
        Table(errors, outcomes, title="Kinds of errors"),
    )
    return section(
        "Tags" if is_tags else "Entities",
        num_rows(folder, "sentences"),
        gallery(folder.path, figures, *tables),
    )


def per_type(folder: RunFolder) -> dict[str, dict[str, Any]]:
    """Metrics of every entity type, from run.json or else from the predictions."""
    found = folder.shown_metrics.get("per_label")
    if found is None:
        gold, tags = ([row[key] for row in folder.rows] for key in ("gold", "tags"))
        found = entity_metrics(gold, tags)["per_label"]
    types: dict[str, dict[str, Any]] = found
    return types


def confusion_by_word(folder: RunFolder, types: list[str]) -> np.ndarray:
    """Words by gold type (down) and predicted type (across), int64 (C + 1, C + 1).

    The last row and column are for words of no entity or of a type that is not in `types`.
    """
    number = {kind: c for c, kind in enumerate(types)}

    def at(tag: str) -> int:
        return number.get(NO_ENTITY if tag == "O" else split(tag)[1], len(types))

    pairs = [
        (at(gold), at(predicted))
        for row in folder.rows
        for gold, predicted in zip(row["gold"], row["tags"], strict=True)
    ]
    return crossed(pairs, len(types) + 1)


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


def mistakes(row: dict[str, Any]) -> tuple[list[Entity], list[Entity]]:
    """Gold entities that were not predicted, and predicted entities that are not gold."""
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
    """F1 and exact match by the length of answer and context; unanswerable questions."""
    scores = question_scores(folder.rows)
    names = ["none", *group_names(list(ANSWER_WORDS))]
    words = [
        max(min(len(normalize(text).split()) for text in row["gold"]), 1) if row["gold"] else 0
        for row in folder.rows
    ]
    plot = _bars(np.searchsorted(ANSWER_WORDS, words, "right"), names, scores,
                 "words of the shortest gold answer, 'none': unanswerable")  # fmt: skip
    by = "F1 and exact match by the length of"
    figures = {"answers_by_length": (plot, f"{by} the gold answer; n is the number of questions.")}
    sizes = np.array([row["num_tokens"] for row in folder.rows])
    borders = sorted({int(border) for border in np.quantile(sizes, [0.25, 0.5, 0.75])})
    groups = np.searchsorted(borders, sizes)
    if len(set(groups.tolist())) > 1:
        names = [*(f"to {border:,}" for border in borders), f"over {borders[-1]:,}"]
        figures["answers_by_context"] = (
            _bars(groups, names, scores, "tokens of question and context"),
            f"{by} question and context, in four groups of about equal size.",
        )
    return section(
        "Answers",
        num_rows(folder, "questions"),
        gallery(folder.path, figures),
        _unanswerable(folder),
    )


def _unanswerable(folder: RunFolder) -> Block:
    """Scores of "no answer" and counts of empty answers, if there are unanswerable questions."""
    has_answer = np.array([bool(row["gold"]) for row in folder.rows])
    if has_answer.all():
        return {}
    is_given = np.array([bool(row["answer"]) for row in folder.rows])
    null_scores = np.array([row["null_score"] for row in folder.rows], dtype=float)
    plot = plots.class_histogram(
        null_scores, ~has_answer, ("answerable", "unanswerable"), null_threshold(folder),
        xlabel='score of "no answer"', edges=np.histogram_bin_edges(null_scores, 40),
    )  # fmt: skip
    caption = (
        "Score of “no answer” minus the score of the best span. To the right of the threshold, "
        "which was chosen on dev, the answer is empty."
    )
    rows = [
        [name, *(numbers.count(int((gold & given).sum())) for given in (is_given, ~is_given))]
        for name, gold in (("answerable", has_answer), ("unanswerable", ~has_answer))
    ]
    head, title = ["questions", "answered", "left empty"], "Answerable and unanswerable questions"
    return gallery(folder.path, {"null_scores": (plot, caption)}, Table(head, rows, title=title))


def question_scores(rows: list[dict[str, Any]]) -> np.ndarray:
    """Exact match and F1 of every question, float64 (N, 2), in [0, 1]."""
    # With unanswerable questions the empty answer may be correct: the rules of SQuAD v2.0.
    empty = any(not row["gold"] for row in rows)
    found = [answer_scores(row["gold"], row["answer"], empty_can_match=empty) for row in rows]
    return np.array(found, dtype=float).reshape(len(rows), 2)


def null_threshold(folder: RunFolder) -> float | None:
    """The score of "no answer" above which the answer is empty, from run.json or the answers."""
    recorded = folder.run.get("null_threshold")
    if recorded is not None:
        return float(recorded)
    given = [row["null_score"] for row in folder.rows if row["answer"]]
    refused = [row["null_score"] for row in folder.rows if not row["answer"]]
    if not given or not refused or max(given) > min(refused):
        return None
    return (float(max(given)) + float(min(refused))) / 2


def _bars(groups: np.ndarray, names: list[str], scores: np.ndarray, xlabel: str) -> Any:
    sizes = np.bincount(groups, minlength=len(names))
    exact, f1 = (np.bincount(groups, scores[:, c], len(names)) for c in (0, 1))
    known = np.flatnonzero(sizes)
    shares = {"F1": f1[known] / sizes[known], "exact match": exact[known] / sizes[known]}
    return plots.share_bars(
        [names[group] for group in known], shares, sizes[known].tolist(), xlabel=xlabel, ylabel=""
    )


def choices(folder: RunFolder) -> Section:
    """Gold and chosen positions, and the accuracy by gold position."""
    counts = positions(folder)
    total, names = int(counts.sum()), [str(position) for position in range(len(counts))]
    gold, chosen, correct = counts.sum(1), counts.sum(0), counts.diagonal()
    figures: Figures = {}
    if len(counts) <= MOST_LABELS:
        caption = "Rows by the position of the right and of the chosen answer."
        figures = {"confusion": (plots.confusion_plot(counts, names), caption)}
    lines = []
    for at, name in enumerate(names):
        accuracy = float(correct[at] / gold[at]) if gold[at] else None
        shares = [
            (numbers.count(int(n[at])), numbers.percent(n[at] / total)) for n in (gold, chosen)
        ]
        lines.append([name, *shares[0], *shares[1], numbers.metric(accuracy)])
    head = ["position", "right", "share", "chosen", "share", "accuracy"]
    remark = f"{num_rows(folder)} Positions are counted from 0, as in the data."
    return section("Choices", remark, gallery(folder.path, figures, Table(head, lines)))


def positions(folder: RunFolder) -> np.ndarray:
    """Rows by gold position (down) and chosen position (across), int64 (C, C)."""
    pairs = [(int(row["gold"]), int(row["choice"])) for row in folder.rows]
    num_choices = [len(row.get("scores") or ()) for row in folder.rows]
    return crossed(pairs, max(1 + max(map(max, pairs)), *num_choices))


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
