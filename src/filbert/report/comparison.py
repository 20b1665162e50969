"""The HTML report of a study: ranking, tests, curves, costs, errors, provenance.

All statistics are those of results.json; predictions are only used for curves and confusions.
N rows, C labels.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np

from filbert.data.records import read_rows
from filbert.data.splitting import SPLITS
from filbert.files import read_json
from filbert.metrics.classification import label_metrics
from filbert.report import numbers, plots
from filbert.report.folder import Scores, read_scores
from filbert.report.numbers import MISSING, fixed, interval, probability
from filbert.report.plots import Plot, Ranking, Series
from filbert.report.predictions import by_tokens, confusion
from filbert.report.render import (
    Cell,
    Section,
    Table,
    facts_table,
    gallery,
    hashes_table,
    note,
    section,
    side_by_side,
    texts,
    write_page,
)
from filbert.report.run import label_counts
from filbert.report.table import best_value, heading_of
from filbert.report.worst_errors import MOST_ERRORS, excerpt, slice_table
from filbert.tasks.base import FALLING

# Metrics of a ranking, which the first one decides.
BINARY = (
    "pr_auc", "roc_auc", "f1", "f1_at_half", "ece",
    *(f"precision_at_recall_{n}" for n in (50, 80, 90, 95)),
)  # fmt: skip
MULTICLASS = ("macro_f1", "accuracy", "weighted_f1", "ece", "loss")
SLICES = ("f1", "macro_f1", "false_positive_rate", "roc_auc", "pr_auc", "accuracy")
# Cost, its heading, and how it is written.
COSTS: tuple[tuple[str, str, Callable[[Any], str]], ...] = (
    ("training_seconds", "training", numbers.seconds),
    ("training_joules", "energy", lambda value: MISSING if value is None else f"{value:,.0f} J"),
    ("rows_per_second", "rows/s", lambda value: MISSING if value is None else f"{value:,.0f}"),
    ("latency_seconds", "one text", lambda value: f"{fixed(value and 1e3 * value, 1)} ms"),
    ("parameters", "parameters", numbers.scaled),
    ("bytes_on_disk", "on disk", lambda value: numbers.scaled(value, "B")),
    ("peak_bytes", "peak memory", lambda value: numbers.scaled(value, "B")),
)
# More pairs are folded.
MOST_PAIRS = 30


class StudyFiles:
    """A study's results.json and the predictions of its contestants."""

    def __init__(self, path: Path) -> None:
        self.path, self.results = path, read_json(path / "results.json")
        self.labels = [str(label) for label in self.results.get("labels") or ()]
        # One of two labels; None for more labels.
        self.positive: str | None = self.results.get("positive")
        self.contestants: list[dict[str, Any]] = self.results["contestants"]
        self.colors = {one["name"]: at for at, one in enumerate(self.contestants)}
        keys = MULTICLASS if self.positive is None else BINARY
        known = {key for one in self.contestants for key in one.get("test") or ()}
        # (key, heading) of the measured metrics; the first one decides the ranking.
        self.metrics = [(key, heading_of(key, "study")) for key in keys if key in known]
        with_metrics = [one for one in self.contestants if one.get("test")]
        # The best first.
        self.measured = sorted(with_metrics, key=lambda one: -(self.value(one) or 0))

    def value(self, one: dict[str, Any]) -> float | None:
        """Return the mean of the deciding metric over the seeds."""
        value: float | None = one["test"][self.metrics[0][0]]["value"]
        return value

    @cached_property
    def digits(self) -> int:
        """Decimals: the last one is about a tenth of the uncertainty of the deciding metric."""
        estimates = [one["test"][self.metrics[0][0]] for one in self.measured]
        widths = [one["high"] - one["low"] for one in estimates if one["low"] is not None]
        half = median(widths or [0.02]) / 2
        return 3 if half <= 0 else min(max(math.ceil(-math.log10(half)) + 1, 3), 4)

    @cached_property
    def level_with_first(self) -> list[dict[str, Any]]:
        """Entries whose difference from the first is not significant."""
        first, *others = self.measured
        pairs = [(one, self.difference(first["name"], one["name"])) for one in others]
        return [one for one, found in pairs if found and not found["significant"]]

    @cached_property
    def level(self) -> str:
        """The confidence level, "95 %" with a no-break space."""
        return f"{100 * self.results['statistics']['level']:g}\N{NO-BREAK SPACE}%"

    @cached_property
    def scores(self) -> dict[str, Scores]:
        """Test predictions of the best seed of each contestant, of two labels at its threshold."""
        scores = {}
        for one in self.measured:
            run = next(seed for seed in one["seeds"] if seed["seed"] == one["best_seed"])
            path = self.path / run["folder"] / "predictions" / "test.jsonl"
            found = read_scores(path, self.labels, self.positive)
            scores[one["name"]] = replace(found, threshold=run["test"].get("threshold", 0.0))
        return scores

    def difference(self, one: str, other: str) -> dict[str, Any] | None:
        """Return the tested difference of two contestants in the deciding metric: `one` - `other`.

        None if the two were not tested.
        """
        key = self.metrics[0][0]
        for pair in self.results["pairs"]:
            found: dict[str, Any] = pair.get(key) or {}
            if (pair["one"], pair["other"]) == (one, other):
                return found
            if (pair["one"], pair["other"]) == (other, one):
                low, high = found["high"], found["low"]
                turned = {"difference": found["difference"], "low": low, "high": high}
                return found | {k: v if v is None else -v for k, v in turned.items()}
        return None


def write_comparison_report(folder: Path) -> Path:
    """Write report.html and plots/*.png into the folder of a study; return the page's path.

    Missing seeds and contestants are left out and named. A damaged file is a FormatError.
    """
    study = StudyFiles(Path(folder))
    make: list[Callable[[StudyFiles], Section | None]] = []
    if study.measured:
        make = [ranking, next_steps, tests, curves, costs, errors, slices, worst_errors]
    make += [data, failures, provenance]
    return write_page(
        study.path / "report.html",
        title=str(study.results.get("name") or study.path.resolve().name),
        about=[study.results.get("filbert"), "comparison", study.results.get("finished")],
        headline=headline(study),
        notes=study.results.get("notes") or [],
        facts=headline_facts(study),
        sections=[one(study) for one in make],
    )


def headline(study: StudyFiles) -> str:
    """Return the best contestant and its difference from the second."""
    if not study.measured:
        return "No contestant was measured."
    (key, heading), first = study.metrics[0], study.measured[0]
    best = first["test"][key]
    text = f"{first['name']} has the highest {heading}: {fixed(best['value'], study.digits)}"
    if best.get("deviation") is not None:
        text += f" ± {fixed(best['deviation'], study.digits)} ({len(best['seeds'])} seeds)"
    second = study.measured[1]["name"] if len(study.measured) > 1 else ""
    found = study.difference(first["name"], second)
    if found is None or found["low"] is None:
        return f"{text}."
    ends = interval(found["low"], found["high"], study.digits, sign=True)
    outcome = "significant" if found["significant"] else "not statistically significant"
    return (
        f"{text}. Difference from {second}: {found['difference']:+.{study.digits}f} {ends}, "
        f"p {probability(found['p_holm'])} after Holm's correction ({outcome})."
    )


def headline_facts(study: StudyFiles) -> list[tuple[str, str]]:
    """Return (name, value) of the best metric and of the size of the study."""
    runs = [run for one in study.contestants for run in one["seeds"]]
    done = sum(run["status"] == "finished" for run in runs)
    facts = [
        ("contestants", numbers.count(len(study.contestants))),
        ("finished runs", f"{done:,} of {len(runs):,}"),
    ]
    if study.measured:
        best = fixed(study.value(study.measured[0]), study.digits)
        facts.insert(0, (f"best {study.metrics[0][1]}", best))
    return facts


# Quality


def ranking(study: StudyFiles) -> Section:
    """Return the metrics of all contestants with intervals; the deciding one as a plot."""
    (key, heading), measured, digits = study.metrics[0], study.measured, study.digits
    named = {one["name"]: one["test"][key] for one in measured if study.value(one) is not None}
    series: list[Series] = []
    for place, (name, figure) in enumerate(named.items()):
        low, high = _ends(figure)
        seeds = [seed for seed in figure["seeds"] if seed is not None]
        series.append(Series("", seeds, [place] * len(seeds), -1, "dots"))
        ends = None if low is None or high is None else ([low], [high])
        mean = [figure["value"]]
        series.append(Series(name, mean, [place], study.colors[name], "dots", ends))
    plot = Plot(heading, "", series, rows=[*named])
    caption = f"{heading}: mean of the seeds with its {study.level} interval. Small dots: seeds."
    best = {k: best_value((m["test"][k]["value"] for m in measured), k) for k, _ in study.metrics}
    rows: list[list[object]] = []
    for place, one in enumerate(measured, start=1):
        name = f"{place}. {one['name']}{' ≈' * (one in study.level_with_first)}"
        charts = [(one["test"][key], best[key]) for key, _ in study.metrics]
        rows.append([name, *(_metric(figure, most, digits) for figure, most in charts)])
    falling = [heading for key, heading in study.metrics if key in FALLING]
    return section(
        "Ranking",
        gallery(study.path, {"ranking": (plot, caption)}),
        Table(["contestant", *(heading for _, heading in study.metrics)], rows),
        *texts("ranking", level=study.level, falling=falling, heading=heading),
    )


def _ends(figure: Mapping[str, Any]) -> tuple[float | None, float | None]:
    """Return the interval of the mean, over rows and seeds; of a single seed, over rows."""
    found = figure.get("over_seeds") or figure
    return found.get("low"), found.get("high")


def _metric(figure: Mapping[str, Any], best: float | None, digits: int) -> Cell:
    deviation = figure.get("deviation")
    return Cell(
        fixed(figure["value"], digits),
        strong=figure["value"] is not None and figure["value"] == best,
        detail="" if deviation is None else f"± {fixed(deviation, digits)}",
        below=interval(*_ends(figure), digits),
    )


def tests(study: StudyFiles) -> Section | None:
    """Return the differences of every two contestants on the metric of the ranking."""
    pairs: list[dict[str, Any]] = study.results["pairs"]
    if not pairs:
        return None
    (key, heading), digits = study.metrics[0], study.digits
    rows = []
    for pair in pairs:
        found, calls = pair[key], pair["mcnemar"]
        sign = "●" if found["significant"] else "○"
        difference = (
            MISSING if found["difference"] is None else f"{found['difference']:+.{digits}f}"
        )
        rows.append([
            pair["one"], pair["other"],
            Cell(f"{difference}\N{NO-BREAK SPACE}{sign}", strong=found["significant"]),
            interval(found["low"], found["high"], digits, sign=True),
            probability(found["p"]), probability(found["p_holm"]),
            numbers.count(calls["only_one"]), numbers.count(calls["only_other"]),
            probability(calls["p"]), probability(calls["p_holm"]),
        ])  # fmt: skip
    head = ["one", "other", f"{heading}, one minus other", f"{study.level} interval", "p", "p_holm"]
    head += ["only one right", "only other right", "McNemar p", "p_holm"]
    return section(
        "Significance tests",
        Table(head, rows, 2, title="All pairs", folded=len(rows) > MOST_PAIRS),
        *texts("tests", level=study.level, pairs=numbers.count(len(rows))),
        *map(note, study.results["statistics"]["notes"]),
    )


def curves(study: StudyFiles) -> Section:
    """Return ROC and precision-recall curves of two labels, and the calibration."""
    charts, of_label = {}, "the predicted label"
    lines = []
    for name, scores in study.scores.items():
        is_true, confidence = scores.gold == scores.predicted, scores.probabilities.max(1)
        if (at := scores.positive) is not None:
            is_true, confidence = scores.gold == at, scores.probabilities[:, at]
        lines.append(Ranking(name, is_true, confidence, study.colors[name]))
    if study.positive is not None:
        of_label = f"label {study.positive}"
        for kind, title in (("pr", "Precision-recall"), ("roc", "ROC")):
            ordered = sorted(lines, key=lambda one, kind=kind: -one.area(kind))  # type: ignore[misc]
            caption = f"{title} curves of {of_label} with their areas; dashed: a random ranking."
            charts[kind] = (plots.ranking_plot(ordered, kind), caption)
    charts["calibration"] = (
        plots.reliability_plot(
            lines, xlabel=f"probability of {of_label}", ylabel="observed frequency"
        ),
        f"Calibration: observed frequency of {of_label} over its predicted probability, in bins of "
        "equally many rows. Dashed: calibrated; below it the probabilities are too high.",
    )
    return section(
        "Curves and calibration",
        "Of each contestant's seed that is best on dev.",
        gallery(study.path, charts),
    )


def costs(study: StudyFiles) -> Section | None:
    """Return the deciding metric over training time and speed, and all costs in a table."""
    known = [cost for cost in COSTS if any(one["costs"].get(cost[0]) for one in study.measured)]
    if not known:
        return None
    heading, charts = study.metrics[0][1], {}
    for key, axis in (
        ("training_seconds", "training, seconds"),
        ("rows_per_second", "inference, rows per second"),
    ):
        series = [
            Series(one["name"], [cost], [study.value(one)], study.colors[one["name"]], "dots")
            for one in study.measured
            if (cost := one["costs"].get(key))
        ]
        if len(series) > 1:
            plot = Plot(f"{axis} (logarithmic)", heading, series, log="x")
            charts[f"cost_{key}"] = (plot, f"{heading} over {axis}.")
    rows = [
        [one["name"], *(write(one["costs"].get(key)) for key, _, write in known)]
        for one in study.measured
    ]
    return section(
        "Quality and cost",
        gallery(study.path, charts),
        Table(["contestant", *(name for _, name, _ in known)], rows),
        "Medians over the seeds, each measured in the process of the run.",
    )


def errors(study: StudyFiles) -> Section:
    """Return confusion matrices, and the F1 of every label by contestant."""
    charts: dict[str, Any] = {}
    for number, (name, scores) in enumerate(study.scores.items(), start=1):
        counts = confusion(scores.gold, scores.predicted, range(len(study.labels)))
        matrix = plots.Matrix(study.labels, counts)
        caption = f"{name}: gold in rows, predicted in columns; colour is the share of the row."
        charts[f"confusion_{number}"] = matrix, caption
    rows: list[list[object]] = []
    for at, label in enumerate(study.labels):
        found = [label_metrics(s.gold == at, s.predicted == at) for s in study.scores.values()]
        row = [fixed(one["f1"], study.digits) for one in found]
        rows.append([label, *row, numbers.count(found[0]["support"])])
    table = Table(["label", *study.scores, "gold rows"], rows, title="F1 by label")
    return section("Errors", gallery(study.path, charts), table)


def worst_errors(study: StudyFiles) -> Section | None:
    """Return the test rows that most contestants get wrong, with their texts on a click."""
    everyone = [*study.scores.values()]
    first, at = everyone[0], np.arange(len(everyone[0].gold))
    is_wrong = np.stack([scores.predicted != scores.gold for scores in everyone])
    of_gold = np.mean([scores.probabilities[at, scores.gold] for scores in everyone], axis=0)
    hardest = [i for i in np.lexsort((of_gold, -is_wrong.sum(0))) if is_wrong[:, i].any()]
    rows: list[list[object]] = []
    for i in hardest[:MOST_ERRORS]:
        called = sorted({study.labels[scores.predicted[i]] for scores in everyone})
        wrong = [name for name, is_one in zip(study.scores, is_wrong[:, i], strict=True) if is_one]
        who = "all" if len(wrong) == len(everyone) else ", ".join(wrong)
        row = [int(first.rows[i]), study.labels[first.gold[i]], ", ".join(called), who]
        rows.append(row)
    path, passages = study.path / str(study.results["data"]["test"].get("path")), []
    if path.is_file() and not study.results["options"].get("hide_texts"):
        of_row = dict(enumerate(read_rows(path)))
        shown = [of_row[int(first.rows[i])].values for i in hardest[:MOST_ERRORS]]
        keys = ("text", "text_pair")
        passages = [[(k, excerpt(row[k])) for k in keys if row.get(k)] for row in shown]
    return section(
        "Worst errors",
        *texts("hardest", wrong=len(hardest), total=len(at)),
        Table(["row", "gold", "predicted", "wrong for"], rows, 4, passages=passages),
    )


def next_steps(study: StudyFiles) -> Section:
    """Return what to try next."""
    first, level = study.measured[0], study.level_with_first
    speed = {one["name"]: one["costs"].get("rows_per_second") or 0.0 for one in [first, *level]}
    fastest = max(speed, key=lambda name: speed[name])
    ratio = speed[fastest] / (speed[first["name"]] or math.inf)
    hints = texts(
        "next_contestants", first=first["name"], heading=study.metrics[0][1],
        level=[one["name"] for one in level], fastest=fastest if ratio > 2 else "",
        ratio=f"{ratio:,.0f}", has_slices=bool(study.results["slices"]),
    )  # fmt: skip
    return section("What to try next", hints)


def slices(study: StudyFiles) -> Section:
    """Return the share of test rows that are exactly right by length, and metrics by slice."""
    parts: list[dict[str, Any]] = study.results["slices"]
    found = parts[0]["contestants"] if parts else {}
    known = [key for key in SLICES if any(key in metrics for metrics in found.values())]
    rows = [
        [part["slice"], name, numbers.count(part["rows"]),
         *(fixed(metrics[key], study.digits) for key in known)]
        for part in parts for name, metrics in part["contestants"].items()
    ]  # fmt: skip
    head = ["slice", "contestant", "rows", *map(heading_of, known)]
    column = Table(head, rows, 2, title="By the slice column", folded=len(rows) > MOST_PAIRS)
    right = {name: scores.gold == scores.predicted for name, scores in study.scores.items()}
    # Lengths by one tokenizer, so that all contestants have the same slices.
    name = next((name for name, scores in study.scores.items() if scores.tokens.any()), "")
    parted = by_tokens(study.scores[name].tokens) if name else {}
    lengths = slice_table(parted, right, f"Rows exactly right, by length in tokens of {name}")
    return section("Metrics by slice", lengths, column, *texts("slices"))


# Data and provenance


def data(study: StudyFiles) -> Section:
    """Return the rows and labels of the splits, and near-duplicates."""
    facts = study.results["data"]
    rows = [
        [split, label_counts(facts[split]["label_counts"]), numbers.count(facts[split]["rows"])]
        for split in SPLITS
    ]
    lengths: list[list[object]] = []
    for name, one in (study.scores if study.measured else {}).items():
        quantiles = [f"{n:,.0f}" for n in np.quantile(one.tokens, (0.5, 0.9, 1))]
        lengths.append([name, *quantiles, numbers.count(one.num_cut)])
    head = ["contestant", "median", "90\N{NO-BREAK SPACE}%", "longest", "rows cut"]
    return section(
        "Data",
        Table(["split", "labels", "rows"], rows, 2),
        Table(head, lengths, title="Tokens of the test rows"),
        facts_table(facts.get("near_duplicates") or {}, "Near-duplicates and leakage"),
    )


def failures(study: StudyFiles) -> Section | None:
    """Return the runs that failed or do not exist yet, with their error messages."""
    rows = [
        [one["name"], str(run["seed"]), run["status"], run.get("error") or "Not run yet."]
        for one in study.contestants
        for run in one["seeds"]
        if run["status"] != "finished"
    ]
    if not rows:
        return None
    table = Table(["contestant", "seed", "status", "message"], rows, 4)
    return section("Failed and missing", table, "These are not part of any metric above.")


def provenance(study: StudyFiles) -> Section:
    """Return what is needed to repeat the study: options, hashes, versions and machine."""
    results, facts = study.results, study.results["data"]
    files = [(source.get("of", "source"), source) for source in facts.get("source") or ()]
    files += [(split, facts[split]) for split in SPLITS]
    about = {key: results.get(key) for key in ("filbert", "task", "positive", "labels", "finished")}
    tables = [
        facts_table(about, "Study"),
        facts_table(results.get("machine") or {}, "Machine"),
        facts_table(results.get("options") or {}, "Options"),
        hashes_table(files),
    ]
    for one in study.contestants:
        own = {key: one.get(key) for key in ("kind", "source", "cleaning", "best_seed")}
        tables.append(facts_table(own | one["options"], one["name"]))
    return section("How it was made", side_by_side(tables))
