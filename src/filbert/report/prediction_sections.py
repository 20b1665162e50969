"""Parts of the report that need predictions: ranking, decisions, calibration."""

from __future__ import annotations

from typing import Any

import numpy as np

from filbert.metrics import calibration
from filbert.metrics.classification import label_metrics
from filbert.report import canvas, numbers, page, prediction_plots
from filbert.report.folder import RunFolder
from filbert.report.page import Html, Section
from filbert.report.prediction_plots import MOST_LABELS, Ranking
from filbert.report.sections import drawn
from filbert.report.table import model_name

MOST_CURVES = 6


def ranking_section(folder: RunFolder) -> Section | None:
    """ROC and precision-recall curves, and the scores by class."""
    if not folder.rows or folder.problem not in ("binary", "multilabel"):
        return None
    lines, remark = rankings(folder)
    figures = []
    if lines:
        caption = "Area under the ROC curve in the legend; dashed: guessing."
        plot = prediction_plots.roc_plot(lines)
        figures.append(drawn(folder, "roc", plot, alt="ROC curves", caption=caption))
        is_binary = folder.problem == "binary"
        caption = "Average precision in the legend" + ("; dashed: guessing." if is_binary else ".")
        plot = prediction_plots.pr_plot(lines, show_prevalence=is_binary)
        figures.append(drawn(folder, "pr", plot, alt="Precision-recall curves", caption=caption))
    if folder.problem == "binary" and folder.positive is not None:
        negative = next((label for label in folder.labels if label != folder.positive), "other")
        gold, scores = folder.gold_is(folder.positive), folder.scores_of(folder.positive)
        threshold = _threshold(folder)
        plot = prediction_plots.score_histogram(
            gold, scores, names=(negative, folder.positive), threshold=threshold
        )
        caption = "Scores by true class. What lies on the wrong side of the threshold is an error."
        figures.append(drawn(folder, "scores", plot, alt="Score histogram", caption=caption))
        if gold.any():
            plot = prediction_plots.threshold_plot(gold, scores, threshold)
            caption = "What another threshold would give. It was chosen on dev, not on these rows."
            if folder.shown_split == "dev":
                caption = "What another threshold would give. It was chosen on these very rows."
            alt = "Precision, recall and F1 by threshold"
            figures.append(drawn(folder, "threshold", plot, alt=alt, caption=caption))
    if not figures:
        return None
    return page.section("Ranking", of_split(folder), remark, page.gallery(figures))


def rankings(folder: RunFolder) -> tuple[list[Ranking], Html]:
    """The curves that can be drawn, the model's first, and a sentence about those that cannot."""
    if folder.problem == "multilabel":
        by_support = sorted(folder.labels, key=lambda label: -int(folder.gold_is(label).sum()))
        found = [Ranking(x, folder.gold_is(x), folder.scores_of(x)) for x in by_support]
        found = [one for one in found if 0 < one.is_positive.sum() < len(one.is_positive)]
        left = len(folder.labels) - len(found[:MOST_CURVES])
        text = (
            f"The {MOST_CURVES} most frequent labels." if left and len(found) > MOST_CURVES else ""
        )
        return found[:MOST_CURVES], page.element("p", text, class_="remark") if text else Html("")
    label = folder.positive
    if label is None:
        return [], Html("")
    contenders = {model_name(folder.run): folder.rows, **folder.baseline_predictions}
    found = [
        Ranking(name, folder.gold_is(label, rows), folder.scores_of(label, rows))
        for name, rows in contenders.items()
        if rows
    ]
    if not 0 < found[0].is_positive.sum() < len(found[0].is_positive):
        text = f"All rows are of one class, so there is no ROC curve: {label!r} against the rest."
        return [], page.element("p", text, class_="remark")
    names = [str(b.get("name")) for b in folder.run.get("baselines") or ()]
    missing = [name for name in names if name not in folder.baseline_predictions]
    text = f"No curve for {', '.join(missing)}: its scores were not kept." if missing else ""
    return found, page.element("p", text, class_="remark") if text else Html("")


def decisions(folder: RunFolder) -> Section | None:
    """Confusion matrix and the labels one by one."""
    if not folder.rows or not folder.is_classification or not folder.labels:
        return None
    table = per_label(folder)
    frequent = sorted(folder.labels, key=lambda label: -table[label]["support"])[:MOST_LABELS]
    shown = [label for label in folder.labels if label in frequent]
    only = f" The {MOST_LABELS} most frequent labels." if len(shown) < len(folder.labels) else ""
    figures = []
    if folder.problem != "multilabel":
        plot = prediction_plots.confusion_plot(confusion(folder, shown), shown)
        caption = "Confusion matrix; colour: share of the gold label's rows." + only
        figures.append(drawn(folder, "confusion", plot, alt="Confusion matrix", caption=caption))
    plot = prediction_plots.label_bars(
        shown, [table[x]["f1"] for x in shown], [table[x]["support"] for x in shown]
    )
    caption = "F1 of every label; n: gold rows." + only
    figures.append(drawn(folder, "label_f1", plot, alt="F1 of every label", caption=caption))
    keys = ["precision", "recall", "f1", "support", "roc_auc", "pr_auc", "threshold"]
    keys = [key for key in keys if any(key in scores for scores in table.values())]
    heads = {"f1": "F1", "support": "gold rows", "roc_auc": "ROC AUC", "pr_auc": "PR AUC"}
    rows = [[label, *(numbers.metric(table[label].get(key)) for key in keys)] for label in table]
    lines = page.table(["label", *(heads.get(key, key) for key in keys)], rows)
    # Beside the matrix there is room for a short and narrow table.
    if len(rows) <= 8 and len(keys) <= 4:
        *others, last = figures
        content = page.gallery([*others, page.element("div", last, Html("<br>"), lines)])
    else:
        content = page.join([page.gallery(figures), page.element("h3", "Label by label"), lines])
    return page.section("Decisions", of_split(folder), content)


def per_label(folder: RunFolder) -> dict[str, dict[str, Any]]:
    """Scores of every label, as measured, or counted if run.json does not hold them."""
    metrics = (folder.run.get("metrics") or {}).get(folder.shown_split) or {}
    measured = metrics.get("per_label") or {}
    return {
        label: measured.get(label)
        or label_metrics(folder.gold_is(label), folder.predicted_is(label))
        for label in folder.labels
    }


def confusion(folder: RunFolder, labels: list[str]) -> np.ndarray:
    """Rows by gold (down) and predicted label (across), int64 (C, C); other labels left out."""
    number = {label: c for c, label in enumerate(labels)}
    counts = np.zeros((len(labels), len(labels)), dtype=np.int64)
    for row in folder.rows:
        gold, predicted = number.get(row["gold"]), number.get(row["label"])
        if gold is not None and predicted is not None:
            counts[gold, predicted] += 1
    return counts


def calibration_section(folder: RunFolder) -> Section | None:
    """Whether the probabilities mean what they say."""
    if not folder.rows:
        return None
    if folder.problem == "binary" and folder.positive is not None:
        is_true, confidence = folder.gold_is(folder.positive), folder.scores_of(folder.positive)
        meaning = f"share of {folder.positive}"
    elif folder.problem == "multiclass":
        is_true = np.array([row["label"] == row["gold"] for row in folder.rows])
        confidence = np.array([max(row["scores"].values()) for row in folder.rows])
        meaning = "share that is right"
    elif folder.problem == "multilabel":
        is_true = np.concatenate([folder.gold_is(label) for label in folder.labels])
        confidence = np.concatenate([folder.scores_of(label) for label in folder.labels])
        meaning = "share that is set"
    elif folder.problem == "multiple_choice" and all(row.get("scores") for row in folder.rows):
        is_true = np.array([row["choice"] == row["gold"] for row in folder.rows])
        confidence = np.array([max(row["scores"]) for row in folder.rows])
        meaning = "share that is right"
    else:
        return None
    error = calibration.expected_calibration_error(is_true, confidence)
    bins = calibration.reliability_bins(is_true, confidence)
    ylabel = canvas.plain(meaning)
    plot = prediction_plots.reliability_plot(bins, xlabel="score", ylabel=ylabel)
    caption = (
        "On the dashed line a score of 0.8 comes true eight times in ten; bars: 95 % interval. "
        f"Expected calibration error {numbers.metric(error)} (15 bins)."
    )
    figure = drawn(folder, "reliability", plot, alt="Reliability diagram", caption=caption)
    lines = [
        [
            f"{b.lower:.2f}\N{NO-BREAK SPACE}–\N{NO-BREAK SPACE}{b.upper:.2f}",
            numbers.count(b.num_rows),
            numbers.metric(b.confidence),
            numbers.metric(b.frequency),
        ]
        for b in bins
    ]
    table = page.table(["score", "rows", "mean score", meaning], lines, kind="dense")
    return page.section("Calibration", of_split(folder), page.gallery([figure, table]))


def _threshold(folder: RunFolder) -> float | None:
    metrics = (folder.run.get("metrics") or {}).get(folder.shown_split) or {}
    value = metrics.get("threshold", folder.run.get("threshold"))
    return None if value is None else float(value)


def of_split(folder: RunFolder, what: str = "rows") -> Html:
    """How many rows of which split a part is about."""
    text = f"{len(folder.rows):,} {folder.shown_split} {what}."
    return page.element("p", text, class_="remark")
