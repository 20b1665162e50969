"""The HTML report of a study: ranking, tests, costs, errors, provenance."""

from __future__ import annotations

from collections.abc import Collection
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np

from filbert.data.records import read_rows
from filbert.report import comparison_plots as plots
from filbert.report import numbers
from filbert.report.comparison_study import (
    FALLING,
    ContestantEntry,
    Pair,
    StudyFiles,
    read_study,
)
from filbert.report.numbers import MISSING, fixed, interval, probability, signed
from filbert.report.render import (
    Cell,
    Section,
    Table,
    facts_table,
    gallery,
    paragraph,
    section,
    side_by_side,
    write_page,
)
from filbert.report.run import label_counts
from filbert.report.worst_errors import Passages, excerpt

# Signs of a table, so that significance is not shown by bold type alone.
SIGNIFICANT, NOT_SIGNIFICANT = "●", "○"
SLICE_METRICS = {
    "f1": "F1",
    "macro_f1": "macro F1",
    "false_positive_rate": "false positive rate",
    "roc_auc": "ROC AUC",
    "pr_auc": "PR AUC",
    "precision": "precision",
    "recall": "recall",
    "accuracy": "accuracy",
}
SPLITS = ("train", "dev", "test")
MOST_ROWS = 20
# More pairs are folded.
MOST_PAIRS = 30


def write_comparison_report(folder: Path, *, show_texts: bool = False) -> Path:
    """Write report.html and plots/*.png into a study's folder; return the page's path.

    Missing parts (seeds, contestants, predictions, slices) are left out and named.

    Args:
        folder: Written by `filbert compare --out`, finished or not.
        show_texts: Also show texts of the rows that the contestants disagree on or all get wrong.

    Raises:
        InputError: There is no results.json.
        FormatError: A file is damaged.
    """
    study = read_study(Path(folder))
    found = [ranking(study), tests(study), curves(study), costs(study)]
    found += [errors(study, show_texts=show_texts), slices(study), data(study), failures(study)]
    version = f"filbert {study.results.get('filbert', '')}".strip()
    return write_page(
        study.path / "report.html",
        title=str(study.results.get("name") or study.path.resolve().name),
        about=[version, "comparison", study.results.get("finished")],
        headline=headline(study),
        notes=[*state(study), *study.notes],
        facts=headline_facts(study),
        sections=[*(one for one in found if one is not None), provenance(study)],
        main_class="wide",
    )


# Header


def headline(study: StudyFiles) -> list[str]:
    """The best contestant and its difference from the second."""
    if not study.measured:
        return ["No contestant was measured."]
    first, (key, heading) = study.measured[0], study.decisive
    found = first.figure(key)
    text = f"{first.name} has the highest {heading}: {fixed(found['value'], study.digits)}"
    if found.get("deviation") is not None:
        text += f" ± {fixed(found['deviation'], study.digits)} ({len(found['seeds'])} seeds)"
    text += "."
    second = study.measured[1].name if len(study.measured) > 1 else ""
    pair = study.pair(first.name, second, key)
    if pair is not None:
        outcome = "significant" if pair.is_significant else "not statistically significant"
        ends = interval(pair.low, pair.high, study.digits, sign=True)
        name, p = ("p_holm", pair.p_holm) if pair.p_holm is not None else ("p", pair.p)
        tested = "" if p is None else f", {name} {probability(p)}"
        difference = f"{signed(pair.difference, study.digits)} {ends}{tested}"
        text += f" Difference from {second}: {difference} ({outcome})."
    return [text]


def state(study: StudyFiles) -> list[str]:
    """Notes about an unfinished study and failed contestants."""
    runs = [run for one in study.contestants for run in one.seeds]
    done = sum(run.get("status") in ("finished", "done") for run in runs)
    failed = sum(run.get("status") == "failed" for run in runs)
    notes = []
    if not study.results.get("finished") or done + failed < len(runs):
        notes.append(
            f"Unfinished: {done:,} of {len(runs):,} runs exist. All metrics are of these runs and "
            "may change."
        )
    lost = [one.name for one in study.contestants if one.entry.get("status") == "failed"]
    if lost:
        notes.append(f"Failed and not compared: {', '.join(lost)}. See “Failed and missing”.")
    elif failed:
        notes.append(f"Failed runs: {failed:,}.")
    return notes


def headline_facts(study: StudyFiles) -> list[tuple[str, str]]:
    """(name, value) of the best metric and of the size of the study."""
    facts = [("contestants", numbers.count(len(study.measured)))]
    if study.measured:
        key, heading = study.decisive
        best = fixed(study.measured[0].value(key), study.digits)
        facts.insert(0, (f"best {heading}", best))
    if study.num_seeds:
        facts.append(("seeds each", " to ".join(map(str, study.num_seeds))))
    return facts


# Quality


def ranking(study: StudyFiles) -> Section | None:
    """The metrics of all contestants with intervals, as plots and as a table."""
    if not study.measured:
        return None
    shown = [*(study.tested or study.metrics[:3])]
    shown += [column for column in study.metrics if column[0] == "ece" and column not in shown]
    has_intervals = any(one.figure(shown[0][0]).get("over_seeds") for one in study.measured)
    marks = (
        f" Marker and broad bar: the seed that is best on dev and its {study.level} bootstrap "
        "interval. Small dots: all seeds. Tall stroke and number: their mean, which decides the "
        "order." + " Thin line: the interval of the mean, over rows and seeds." * has_intervals
    )
    figures: dict[str, Any] = {}
    for key, heading in shown:
        more = marks if not figures else " Less is better." * (key in FALLING)
        plot = plots.metric_dots(study, key, heading)
        figures[f"ranking_{key}"] = (plot, f"{_capital(heading)}.{more}")
    best, digits = best_values(study), study.digits
    level = {one.name for one in study.not_significant(study.measured[0])}
    rows: list[list[object]] = []
    for place, one in enumerate(study.measured, start=1):
        name = f"{place}. {one.name}{' ≈' if one.name in level else ''}"
        rows.append([name, *(_metric(one, key, best[key], digits) for key, _ in study.metrics)])
    headings = [heading for _, heading in study.metrics]
    notes = table_notes(study)
    if level:
        notes.append(
            f"≈ no significant difference from the first on {study.decisive[1]}, corrected for all "
            "comparisons."
        )
    return section(
        "Ranking",
        gallery(study.path, figures),
        Table(["contestant", *headings], rows, css_class="ranking"),
        " ".join(notes),
    )


def _capital(heading: str) -> str:
    return heading[0].upper() + heading[1:]


def best_values(study: StudyFiles) -> dict[str, float]:
    """The best mean of every metric."""
    found = {}
    for key, _ in study.metrics:
        values = [value for one in study.measured if (value := one.value(key)) is not None]
        found[key] = min(values) if key in FALLING else max(values)
    return found


def _metric(one: ContestantEntry, key: str, best: float, digits: int) -> Cell:
    found = one.figure(key)
    deviation = found.get("deviation")
    return Cell(
        fixed(found.get("value"), digits),
        strong=found.get("value") == best,
        detail="" if deviation is None else f"± {fixed(deviation, digits)}",
        below=interval(*one.interval(key), digits),
    )


def tests(study: StudyFiles) -> Section | None:
    """Differences of every two contestants on the metric of the ranking."""
    if not study.tested or len(study.measured) < 2:
        return None
    key, heading = study.decisive
    rows: list[list[object]] = []
    for one, other in combinations([one.name for one in study.measured], 2):
        pair, calls = study.pair(one, other, key), study.mcnemar(one, other)
        rows.append([one, other, *_pair(pair, study.digits), *_mcnemar(calls)])
    head = ["one", "other", f"{heading}, difference", f"{study.level} interval", "p", "p_holm"]
    head += ["only one right", "only other right", "McNemar p", "p_holm"]
    remark = (
        f"● and bold: significant. The {study.level} interval of the difference excludes zero, and "
        "so does that of the means where a side has several seeds, and p_holm is below 0.05. ○: "
        "not significant, which is no proof of equality. p_holm is p after Holm's correction for "
        f"the number of pairs ({len(rows):,}). Both sides of a pair are the seeds that are best on "
        "dev, measured on the same bootstrap samples. McNemar's test uses the rows that only one "
        "of the two predicts correctly. results.json has the pairs on the other metrics."
    )
    notes = (study.results.get("statistics") or {}).get("notes") or ()
    return section(
        "Significance tests",
        Table(head, rows, 2, "pairwise", title="All pairs", folded=len(rows) > MOST_PAIRS),
        remark,
        *(paragraph(note, "note") for note in notes),
    )


def _pair(pair: Pair | None, digits: int) -> list[object]:
    """Cells with the difference, its interval, p and p_holm of a pair."""
    if pair is None:
        return [MISSING] * 4
    mark = SIGNIFICANT if pair.is_significant else NOT_SIGNIFICANT
    return [
        Cell(signed(pair.difference, digits), strong=pair.is_significant, mark=mark),
        interval(pair.low, pair.high, digits, sign=True),
        probability(pair.p),
        probability(pair.p_holm),
    ]


def _mcnemar(found: dict[str, Any]) -> list[object]:
    """Cells with the rows that only one side predicted correctly, p and p_holm."""
    p_holm = found.get("p_holm")
    is_significant = p_holm is not None and p_holm < 0.05
    return [
        numbers.count(found.get("only_one")),
        numbers.count(found.get("only_other")),
        probability(found.get("p")),
        Cell(probability(p_holm), strong=is_significant, mark=SIGNIFICANT * is_significant),
    ]


def curves(study: StudyFiles) -> Section | None:
    """ROC and precision-recall curves of two labels, and the calibration."""
    if not study.answered:
        return None
    figures, of_label = {}, "the predicted label"
    if study.positive is not None:
        of_label = f"label {study.labels[study.positive]}"
        gold = study.answers[study.answered[0].name].gold == study.positive
        share = numbers.percent(float(gold.mean()))
        figures = {
            "pr": (
                plots.ranking_curves(study, "pr"),
                f"Precision-recall curves of {of_label}; dashed grey: a random ranking ({share}).",
            ),
            "roc": (
                plots.ranking_curves(study, "roc"), "ROC curves; dashed grey: a random ranking.",
            ),
        }  # fmt: skip
    figures["calibration"] = (
        plots.reliability_panels(study),
        f"Calibration: observed frequency of {of_label} over its predicted probability. "
        "Dashed grey: calibrated; below it the probabilities are too high.",
    )
    return section(
        "Curves and calibration",
        "Of each contestant's seed that is best on dev; with the area under a curve.",
        gallery(study.path, figures),
    )


def costs(study: StudyFiles) -> Section | None:
    """The decisive metric over every cost, and the costs in a table."""
    if not any(one.entry.get("costs") for one in study.measured):
        return None
    known = [c for c in plots.COSTS if any(one.cost(c.key) is not None for one in study.measured)]
    figures = {
        f"cost_{cost.key}": (plots.cost_plot(study, cost), f"{_capital(cost.axis)}.")
        for cost in known
        if sum(bool(one.cost(cost.key)) for one in study.measured) > 1
    }
    rows = [
        [one.name, *(numbers.cost(cost.key, one.cost(cost.key)) for cost in known)]
        for one in study.measured
    ]
    return section(
        "Quality and cost",
        gallery(study.path, figures),
        Table(["contestant", *(cost.heading for cost in known)], rows, 1, "pairwise"),
        "Medians over the seeds, each measured in the process of the run.",
    )


# Rows and slices


def slices(study: StudyFiles) -> Section | None:
    """Metrics on parts of the test rows."""
    parts: list[dict[str, Any]] = list(study.results.get("slices") or ())
    names = [one.name for one in study.measured]
    known = [
        key
        for key in SLICE_METRICS
        if any(_value(part, name, key) is not None for part in parts for name in names)
    ]
    if not known:
        return None
    rows: list[list[object]] = []
    for part in parts:
        for name in names:
            cells = [fixed(_value(part, name, metric), study.digits) for metric in known]
            counts = [numbers.count(part["rows"]), numbers.count(part.get("positives"))]
            rows.append([part["slice"], name, *counts, *cells])
    head = ["slice", "contestant", "rows", "positives", *(SLICE_METRICS[k] for k in known)]
    remark = (
        "Metrics of small slices vary by chance. F1 and PR AUC grow with the share of positives, "
        "so compare contestants within a slice, not slices with each other."
    )
    table = Table(
        head, rows, 2, "dense", title="Slices in numbers", folded=len(rows) > MOST_ROWS
    )  # fmt: skip
    return section("Metrics by slice", remark, table)


def _value(part: dict[str, Any], name: str, metric: str) -> float | None:
    found = (part["contestants"].get(name) or {}).get(metric)
    return None if found is None else float(found)


def errors(study: StudyFiles, *, show_texts: bool = False) -> Section | None:
    """Confusion matrices, rows that contestants disagree on, and rows that all get wrong."""
    if not study.answered:
        return None
    at = "the threshold that was tuned on dev" if study.positive is not None else "the maximum"
    caption = f"Confusion matrices at {at}: gold in rows, predicted in columns, share of the row."
    return section(
        "Errors",
        gallery(study.path, {"confusions": (plots.confusions(study), caption)}),
        *_hard_rows(study, show_texts=show_texts),
    )


def _hard_rows(study: StudyFiles, *, show_texts: bool) -> list[Any]:
    first = study.answers[study.answered[0].name]
    same = {
        one.name: study.answers[one.name]
        for one in study.answered
        if np.array_equal(study.answers[one.name].rows, first.rows)
    }
    if len(same) < 2:
        return []
    correct = np.stack([answers.predicted == first.gold for answers in same.values()])
    num_correct = correct.sum(0)
    minority = np.minimum(num_correct, len(same) - num_correct)
    every = np.arange(len(first.gold))
    score = np.mean([answers.probabilities[every, first.gold] for answers in same.values()], 0)
    disputed = np.flatnonzero(minority > 0)
    disputed = disputed[np.lexsort((first.rows[disputed], -minority[disputed]))]
    lost = np.flatnonzero(num_correct == 0)
    lost = lost[np.lexsort((first.rows[lost], score[lost]))]
    shown = {int(first.rows[n]) for n in [*disputed[:MOST_ROWS], *lost[:MOST_ROWS]]}
    texts = _passages(study.path, shown) if show_texts else {}
    blocks: list[Any] = []
    for title, at in (("Most disputed rows", disputed), ("Rows that all get wrong", lost)):
        rows = []
        for n in at[:MOST_ROWS].tolist():
            winners = [name for name, is_right in zip(same, correct[:, n], strict=True) if is_right]
            rows.append([
                study.labels[first.gold[n]], ", ".join(winners) or "none",
                f"{len(winners)} of {len(same)}", numbers.count(int(first.rows[n])),
                f"{score[n]:.3f}",
            ])  # fmt: skip
        head = ["gold", "correct contestants", "correct", "row", "mean score of gold"]
        below = [texts[int(first.rows[n])] for n in at[:MOST_ROWS]] if texts else ()
        share = numbers.percent(len(at) / len(first.gold))
        blocks += [
            f"{title}: {len(at):,} of {len(first.gold):,} test rows ({share}).",
            Table(head, rows, 2, "dense", passages=below),
        ]
    blocks.append(
        "Disputed rows: the most evenly split first. Wrong rows: the lowest mean score of the gold "
        "label first. Rows count from 0 in data/test.jsonl.gz."
        + " Texts are shown only with --show-texts."
        * (not show_texts)
    )
    return blocks


def _passages(folder: Path, wanted: Collection[int]) -> dict[int, Passages]:
    """Texts of rows of data/test.jsonl.gz by row number; empty without the file."""
    path = folder / "data" / "test.jsonl.gz"
    if not path.is_file():
        return {}
    return {
        number: [
            (name.replace("_", " "), excerpt(str(row.values[name])))
            for name in ("text", "text_pair")
            if row.values.get(name) is not None
        ]
        for number, row in enumerate(read_rows(path))
        if number in wanted
    }


# Data and provenance


def data(study: StudyFiles) -> Section | None:
    """Rows and labels of the splits, and near-duplicates."""
    facts = study.results.get("data") or {}
    rows = [
        [split, label_counts(facts[split].get("label_counts") or {}, facts[split].get("rows")),
         numbers.count(facts[split].get("rows"))]
        for split in SPLITS if facts.get(split)
    ]  # fmt: skip
    if not rows:
        return None
    return section(
        "Data",
        Table(["split", "labels", "rows"], rows, 2, "counts"),
        facts_table(_spaced(facts.get("near_duplicates")), "Near-duplicates and leakage"),
    )


def _spaced(values: Any) -> dict[str, Any]:
    """Keys with spaces for underscores."""
    return {
        str(key).replace("_", " "): _spaced(value) if isinstance(value, dict) else value
        for key, value in (values or {}).items()
    }


def failures(study: StudyFiles) -> Section | None:
    """Runs that failed or do not exist yet, with their error messages."""
    rows = [
        [one.name, str(run.get("seed")), run["status"], run.get("error") or "Not run yet."]
        for one in study.contestants
        for run in one.seeds
        if run["status"] not in ("finished", "done")
    ]
    if not rows:
        return None
    table = Table(["contestant", "seed", "status", "message"], rows, 4, "failures")
    return section("Failed and missing", table, "These are not part of any metric above.")


def provenance(study: StudyFiles) -> Section:
    """What is needed to repeat the study: options, hashes, versions and machine."""
    results = study.results
    facts = results.get("data") or {}
    hashes = []
    for source in facts.get("source") or ():
        # Two files of the same name may be in different folders.
        name = ": ".join(str(source[key]) for key in ("of", "path") if source.get(key)) or "source"
        size = f"{numbers.count(source.get('rows'))} rows" if source.get("rows") else ""
        hashes.append([name, Cell(size, code=source.get("sha256", MISSING))])
    hashes += [[split, Cell("", code=facts[split].get("sha256", MISSING))]
               for split in SPLITS if facts.get(split)]  # fmt: skip
    about = {key: results.get(key) for key in ("filbert", "task", "positive", "labels", "finished")}
    tables = [
        facts_table(about, "Study"),
        facts_table(_spaced(results.get("machine")), "Machine"),
        facts_table(_spaced(results.get("options")), "Options"),
        Table((), hashes, 2, "pairs", title="Data and the sha256 of its bytes"),
    ]
    for one in study.contestants:
        own = {"kind": one.entry.get("kind"), "cleaning": one.entry.get("cleaning") or "none"}
        if one.entry.get("best_seed") is not None:
            own["seed best on dev"] = one.entry["best_seed"]
        tables.append(facts_table(own | _spaced(one.entry.get("options")), one.name))
    return section("How it was made", side_by_side(tables))


def table_notes(study: StudyFiles) -> list[str]:
    """Sentences on the values of the ranking."""
    notes = [
        f"Mean ± standard deviation of the seeds. In brackets: {study.level} bootstrap interval of "
        "the mean, over test rows and seeds; with one seed, over test rows."
    ]
    falling = [heading for key, heading in study.metrics if key in FALLING]
    lowest = f"; of {' and '.join(falling)} the lowest" if falling else ""
    return [*notes, f"The best of a column is bold{lowest}."]
