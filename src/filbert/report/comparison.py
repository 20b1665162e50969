"""The HTML report and the Markdown table of a study: ranking, tests, costs, errors, provenance."""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable, Iterable, Sequence
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np

from filbert.files import write_atomically
from filbert.report import comparison_plots as plots
from filbert.report import numbers
from filbert.report.comparison_study import (
    FALLING,
    ContestantEntry,
    Pair,
    StudyFiles,
    named,
    read_study,
)
from filbert.report.numbers import MISSING, fixed, interval, probability, signed
from filbert.report.render import (
    Cell,
    Section,
    Table,
    facts_table,
    flatten,
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


def write_comparison_report(folder: Path, *, show_texts: bool = False) -> Path:
    """Write report.html, table.md and plots/*.png into a study's folder; return the page's path.

    Missing parts (seeds, contestants, predictions, slices) are left out and named.

    Args:
        folder: Written by `filbert compare --out`, finished or not.
        show_texts: Also show texts of the rows that the contestants disagree on or all get wrong.

    Raises:
        InputError: There is no results.json.
        FormatError: A file is damaged.
    """
    study = read_study(Path(folder))
    found = [make(study) for make in SECTIONS]
    found += [hard_rows(study, show_texts=show_texts), data(study), failures(study)]
    write_atomically(study.path / "table.md", markdown(study).encode("utf-8", "replace"))
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
    """The best contestant, its difference from the second, and the chosen model."""
    if not study.measured:
        return ["No contestant was measured."]
    first, (key, heading) = study.measured[0], study.decisive
    found = first.figure(key)
    text = f"{named(first.name)} has the highest {heading}: {fixed(found['value'], study.digits)}"
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
        text += f" Difference from {named(second)}: {difference} ({outcome})."
    return [text, *([study.choice] if study.choice else [])]


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
    lost = [named(one.name) for one in study.contestants if one.entry.get("status") == "failed"]
    if lost:
        notes.append(f"Failed and not compared: {', '.join(lost)}. See “Failed and missing”.")
    elif failed:
        notes.append(f"Failed runs: {failed:,}.")
    return notes


def headline_facts(study: StudyFiles) -> list[tuple[str, str]]:
    """(name, value) of the best metric and of the size of the study."""
    key, heading = study.decisive
    facts = []
    if study.measured:
        facts.append((f"best {heading}", fixed(study.measured[0].value(key), study.digits)))
    rows = ((study.results.get("data") or {}).get("test") or {}).get("rows")
    if rows is not None:
        facts.append(("test rows", numbers.count(rows)))
    facts.append(("contestants", numbers.count(len(study.measured))))
    if study.num_seeds:
        facts.append(("seeds each", " to ".join(map(str, study.num_seeds))))
    if study.results.get("pairs"):
        facts.append(("pairs tested", numbers.count(len(study.results["pairs"]))))
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
        "order."
        + " Thin line: the interval of the mean, over rows and seeds." * has_intervals
        + " Hollow: with cleaning." * study.has_cleaning
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
    every = ["run", *headings, "threshold", "training", "status"]
    return section(
        "Ranking",
        gallery(study.path, figures),
        Table(["contestant", *headings], rows, css_class="ranking"),
        " ".join(notes),
        Table(every, _runs(study), 1, "dense", title="Every run", folded=True),
    )


def _capital(heading: str) -> str:
    return heading[0].upper() + heading[1:]


def _runs(study: StudyFiles) -> list[list[object]]:
    """A row for each run, with its metrics, threshold, training time and status."""
    rows: list[list[object]] = []
    for one in study.contestants:
        for run in one.seeds:
            metrics, name = run.get("test") or {}, f"{one.name}, seed {run.get('seed')}"
            is_best = run.get("seed") == one.entry.get("best_seed") and bool(one.entry.get("test"))
            seconds = (run.get("costs") or {}).get("training_seconds")
            rows.append([
                Cell(f"{name}, best on dev" if is_best else name, strong=is_best),
                *(fixed(metrics.get(key), study.digits) for key, _ in study.metrics),
                fixed(metrics.get("threshold"), 3), numbers.cost("training_seconds", seconds),
                run.get("status", MISSING),
            ])  # fmt: skip
    return rows


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
    """Differences between contestants: against the first, as matrices, and for every pair."""
    if not study.tested or len(study.measured) < 2:
        return None
    first, (key, heading) = study.measured[0].name, study.decisive
    names = [one.name for one in study.measured]
    rows, every = [], []
    for other in names[1:]:
        pair = study.pair(first, other, key)
        outcome = MISSING if pair is None else "not significant"
        if pair is not None and pair.is_significant:
            outcome = "better" if pair.difference > 0 else "worse"
        calls = _mcnemar(study.mcnemar(first, other))
        rows.append([other, outcome, *_pair(pair, study.digits), *calls])
    for one, other in combinations(names, 2):
        cells: list[object] = [one, other]
        for metric, _ in study.tested:
            cells += _pair(study.pair(one, other, metric), study.digits, with_p=False)
        every.append([*cells, *_mcnemar(study.mcnemar(one, other))])
    calls_head = ["only it right", "only other right", "McNemar p", "p_holm"]
    ends = f"{study.level} interval"
    head = [f"{first} against", "result", f"{heading}, difference", ends, "p", "p_holm"]
    every_head = ["one", "other"]
    for _, name in study.tested:
        every_head += [f"{name.partition(',')[0]}, difference", ends, "p_holm"]
    pairs = study.results.get("pairs") or ()
    over_seeds = any((pair.get(key) or {}).get("over_seeds") for pair in pairs)
    remark = (
        f"● and bold: significant. The {study.level} interval of the difference excludes zero and "
        "p_holm is below 0.05"
        + over_seeds
        * (
            "; where a side of a pair has several seeds, the interval of the difference of their "
            "means excludes zero as well"
        )
        + ". ○: not significant, which is no proof of equality. p_holm is p after Holm's "
        f"correction for {len(pairs):,} {'pair' if len(pairs) == 1 else 'pairs'}. Both sides of a "
        "pair are the seeds that are best on dev, measured on the same bootstrap samples. "
        "McNemar's test uses the rows that only one of the two predicts correctly."
    )
    return section(
        "Significance tests",
        Table([*head, *calls_head], rows, 2, "pairwise"),
        remark,
        *(paragraph(note, "note")
          for note in (study.results.get("statistics") or {}).get("notes") or ()),
        Table(
            [*every_head, *calls_head], every if len(pairs) > 1 else [], 2, "pairwise",
            title=f"All {len(pairs):,} pairs", folded=True,
        ),
    )  # fmt: skip


def _pair(pair: Pair | None, digits: int, *, with_p: bool = True) -> list[object]:
    """Cells with the difference, its interval, p and p_holm of a pair."""
    if pair is None:
        return [MISSING] * (4 if with_p else 3)
    is_significant = pair.is_significant
    mark = SIGNIFICANT if is_significant else NOT_SIGNIFICANT
    return [
        Cell(signed(pair.difference, digits), strong=is_significant, mark=mark),
        interval(pair.low, pair.high, digits, sign=True),
        *([probability(pair.p)] if with_p else []),
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
    """ROC and precision-recall curves, and the calibration, of two labels."""
    if study.positive is None or not study.answered:
        return None
    gold = study.answers[study.answered[0].name].gold == study.positive
    if gold.all() or not gold.any():
        return None
    label = study.labels[study.positive]
    cleaned = " Dashed: with cleaning." * study.has_cleaning
    share = numbers.percent(float(gold.mean()))
    figures = {
        "pr": (
            plots.ranking_curves(study, "pr"),
            f"Precision-recall curves of label {label}; dashed grey: a random ranking ({share}).",
        ),
        "roc": (plots.ranking_curves(study, "roc"), "ROC curves; dashed grey: a random ranking."),
        "calibration": (
            plots.reliability_panels(study),
            f"Calibration: observed frequency of label {label} over its predicted probability. "
            f"Dashed grey: calibrated; below it the probabilities are too high.{cleaned}",
        ),
    }
    return section(
        "Curves and calibration",
        "Every curve is of the contestant's seed that is best on dev, with its area.",
        gallery(study.path, figures),
    )


def costs(study: StudyFiles) -> Section | None:
    """The decisive metric over every cost, and the costs in a table."""
    if not any(one.entry.get("costs") for one in study.measured):
        return None
    shown = [
        cost for cost in plots.COSTS
        if cost.axis and sum(bool(one.cost(cost.key)) for one in study.measured) > 1
    ]  # fmt: skip
    figures = {}
    for cost in shown:
        side, gain = ("right", "faster") if cost.more_is_better else ("left", "cheaper")
        caption = (
            f"{_capital(cost.axis)}. Better is up and to the {side}. Large markers: no other "
            f"contestant is at least as good and {gain} (Pareto front)."
        )
        figures[f"cost_{cost.key}"] = (plots.cost_plot(study, cost), caption)
    known = known_costs(study)
    rows = [
        [one.name, *(numbers.cost(key, one.cost(key)) for key, _ in known)]
        for one in study.measured
    ]
    is_one_machine = (study.results.get("machine") or {}).get("same_for_all_runs")
    return section(
        "Quality and cost",
        gallery(study.path, figures),
        Table(["contestant", *(heading for _, heading in known)], rows, 1, "pairwise"),
        "Medians over the seeds, each measured in the process of the run."
        + " All ran on the machine named below." * bool(is_one_machine),
    )


def known_costs(study: StudyFiles) -> list[tuple[str, str]]:
    """(key, heading) of the costs that were measured."""
    known = [c for c in plots.COSTS if any(one.cost(c.key) is not None for one in study.measured)]
    return [(cost.key, cost.heading) for cost in known]


def students(study: StudyFiles) -> Section | None:
    """Distilled and quantised models: their share of the teacher's quality, and their costs."""
    by_name = {one.name: one for one in study.measured}
    shares = {name: share for name, one in by_name.items() if (share := one.entry.get("share"))}
    if not shares:
        return None
    teachers = list(dict.fromkeys(str(share["of"]) for share in shares.values()))
    rows = []
    for name in teachers:
        teacher = by_name[name]
        rows.append(_student(study, teacher, None))
        rows += [
            _student(study, by_name[one], teacher)
            for one, share in shares.items()
            if share.get("of") == name
        ]
    ends = f"{study.level} interval"
    head = [
        "contestant", "method", study.decisive[1], f"share, {ends}", "difference", ends, "compute",
        "rows/s", "speed-up", "one text", "on disk", "weights", "training in total",
    ]  # fmt: skip
    return section(
        "Teacher and students",
        paragraph(study.choice or "", "verdict"),
        Table(head, rows, 2, "ranking"),
        f"Share: the {study.decisive[1]} divided by that of {', '.join(map(named, teachers))}, "
        "means over the seeds on the test rows, with an interval over rows, and over seeds where "
        "there are several. Difference: of the seeds that are best on dev, tested as above. "
        "Compute: matrix products of the encoder for one row, relative to the first line. "
        "One text: median latency of a single text. Weights: size of the loaded model. "
        "Training in total: with the training of the models it was made from.",
    )


def _student(
    study: StudyFiles, one: ContestantEntry, teacher: ContestantEntry | None
) -> list[object]:
    """A row of a teacher (`teacher` is None) or of a model that was made from it."""
    kind, options = str(one.entry.get("kind")), one.entry.get("options") or {}
    method = {
        "distilled": f"distilled, {options.get('method', 'soft')}",
        "quantised": f"{options.get('precision')}, {options.get('backend')}",
        "encoder": "fine-tuned",
    }.get(kind, kind)
    share = one.entry.get("share") or {} if teacher else {}
    kept = MISSING if share.get("value") is None else numbers.percent(share["value"])
    if share.get("low") is not None:
        kept += f" [{numbers.percent(share['low'])}, {numbers.percent(share['high'])}]"
    pair = study.pair(one.name, teacher.name, study.decisive[0]) if teacher else None
    compute, speed_up = numbers.cost("flops_per_row", one.cost("flops_per_row")), MISSING
    if teacher is not None:
        mine, theirs = (c.cost("flops_per_row") for c in (one, teacher))
        compute = numbers.percent(mine / theirs) if mine and theirs else MISSING
        mine, theirs = (c.cost("rows_per_second") for c in (one, teacher))
        speed_up = f"{mine / theirs:.2g} times" if mine and theirs else MISSING
    speed, *sizes = (
        numbers.cost(name, one.cost(name))
        for name in ("rows_per_second", "latency_seconds", "bytes_on_disk", "weight_bytes")
    )
    return [
        Cell(one.name, strong=teacher is None), method,
        fixed(one.value(study.decisive[0]), study.digits), kept, *_pair(pair, study.digits)[:2],
        compute, speed, speed_up, *sizes,
        numbers.cost("training_seconds", training_in_total(study, one)),
    ]  # fmt: skip


def training_in_total(study: StudyFiles, one: ContestantEntry) -> float | None:
    """Seconds of its training and of all models it was made from; None if one is unknown."""
    by_name = {other.name: other for other in study.contestants}
    is_quantised = one.entry.get("kind") == "quantised"
    seconds = 0.0 if is_quantised else one.cost("training_seconds")
    source = by_name.get(str(one.entry.get("source")))
    if source is None or seconds is None:
        return seconds
    before = training_in_total(study, source)
    return None if before is None else seconds + before


def decisions(study: StudyFiles) -> Section | None:
    """Confusion matrices, agreement, and the calibration of more than two labels."""
    figures = {}
    if study.answered:
        at = "at the threshold that was tuned on dev"
        caption = "gold in rows, predicted in columns, share of the row."
        if study.positive is None:
            at = "of the most probable label"
            figures["calibration"] = (
                plots.reliability_panels(study),
                "Calibration: share of correct rows over the probability of the predicted label. "
                "Dashed grey: calibrated.",
            )
        figures["confusions"] = (plots.confusions(study), f"Confusion matrices {at}: {caption}")
    found = study.results.get("agreement") or {}
    names = [one.name for one in study.measured if one.name in (found.get("names") or ())]
    if len(names) > 1:
        places = [found["names"].index(name) for name in names]
        plot = plots.agreement(names, np.array(found["matrix"])[np.ix_(places, places)])
        caption = "Rows for which two contestants predict the same label, in percent."
        figures["agreement"] = (plot, caption)
    return section("Decisions", gallery(study.path, figures)) if figures else None


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
            cells = []
            for metric in known:
                ends = ((part.get("intervals") or {}).get(name) or {}).get(metric)
                low, high = ends or (None, None)
                value = fixed(_value(part, name, metric), study.digits)
                cells.append(f"{value} {interval(low, high, study.digits)}".rstrip())
            counts = [numbers.count(part["rows"]), numbers.count(part.get("positives"))]
            rows.append([part["by"], part["slice"], name, *counts, *cells])
    head = ["by", "slice", "contestant", "rows", "positives", *(SLICE_METRICS[k] for k in known)]
    remark = ""
    if any(part.get("positives") is not None for part in parts):
        remark += (
            "F1 and PR AUC grow with the share of positives, so compare contestants within a "
            "slice, not slices with each other. "
        )
    remark += "Metrics of small slices vary by chance."
    table = Table(
        head, rows, 3, "dense", title="Slices in numbers", folded=len(rows) > MOST_ROWS
    )  # fmt: skip
    return section("Metrics by slice", remark, table)


def _value(part: dict[str, Any], name: str, metric: str) -> float | None:
    found = (part["contestants"].get(name) or {}).get(metric)
    return None if found is None else float(found)


def hard_rows(study: StudyFiles, *, show_texts: bool = False) -> Section | None:
    """Rows on which the contestants disagree most, and rows that all of them get wrong."""
    if len(study.answered) < 2:
        return None
    first = study.answers[study.answered[0].name]
    same = {
        one.name: answers
        for one in study.answered
        for answers in [study.answers[one.name]]
        if np.array_equal(answers.rows, first.rows) and np.array_equal(answers.gold, first.gold)
    }
    if len(same) < 2:
        return None
    correct = np.stack([answers.predicted == first.gold for answers in same.values()])
    num_correct = correct.sum(0)
    minority = np.minimum(num_correct, len(same) - num_correct)
    every = np.arange(len(first.gold))
    score = np.mean([answers.probabilities[every, first.gold] for answers in same.values()], 0)
    disputed = np.flatnonzero(minority > 0)
    disputed = disputed[np.lexsort((first.rows[disputed], -minority[disputed]))]
    lost = np.flatnonzero(num_correct == 0)
    lost = lost[np.lexsort((first.rows[lost], score[lost]))]
    shown = {int(first.rows[n]): study.labels[first.gold[n]]
             for n in [*disputed[:MOST_ROWS], *lost[:MOST_ROWS]]}  # fmt: skip
    texts, why = passages(study.path, shown) if show_texts else ({}, "")
    blocks: list[Any] = []
    for title, at in (("Most disputed rows", disputed), ("Rows that all get wrong", lost)):
        rows = []
        for n in at[:MOST_ROWS].tolist():
            winners = [name for name, is_right in zip(same, correct[:, n], strict=True) if is_right]
            rows.append([
                study.labels[first.gold[n]], ", ".join(map(named, winners)) or "none",
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
    return section(
        "Disputed and hard rows",
        *blocks,
        "Disputed rows: the most evenly split first. Wrong rows: the lowest mean score of the gold "
        "label first. Rows count from 0 in data/test.jsonl.gz."
        + " Texts are shown only with --show-texts."
        * (not show_texts),
        paragraph(why, "note"),
    )


def passages(folder: Path, wanted: dict[int, str]) -> tuple[dict[int, Passages], str]:
    """Texts of rows of data/test.jsonl.gz by row number, and the reason if there are none.

    `wanted` maps row numbers to gold labels. If a label differs, the file is not the one of the
    predictions and no text is shown.
    """
    path, found = folder / "data" / "test.jsonl.gz", {}
    if not path.is_file():
        return {}, f"The texts are not shown: {path.name} does not exist."
    try:
        with gzip.open(path, "rt", encoding="utf-8") as lines:
            for number, line in enumerate(lines):
                if number in wanted:
                    row: dict[str, Any] = json.loads(line)
                    if str(row["label"]) != wanted[number]:
                        return {}, (
                            f"The texts are not shown: row {number} of {path.name} has another "
                            "label than the predictions."
                        )
                    names = [key for key in ("text", "text_pair") if row.get(key) is not None]
                    found[number] = [(n.replace("_", " "), excerpt(str(row[n]))) for n in names]
    except (OSError, EOFError, ValueError, KeyError, TypeError):
        return {}, f"The texts are not shown: {path.name} cannot be read."
    if len(found) < len(wanted):
        return {}, f"The texts are not shown: {path.name} has fewer rows than the predictions."
    return found, ""


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
    """Contestants and runs that failed or do not exist yet, with their error messages."""
    rows: list[list[object]] = []
    for one in study.contestants:
        status = str(one.entry.get("status") or "missing")
        errors = " / ".join(sorted({str(run["error"]) for run in one.seeds if run.get("error")}))
        lost = [(one.name, status, one.entry.get("error") or errors)]
        if status == "finished" and one.entry.get("test"):
            lost = [
                (f"{one.name}, seed {run.get('seed')}", str(run["status"]), run.get("error"))
                for run in one.seeds
                if run.get("status") not in (None, "finished", "done")
            ]
        for name, status, error in lost:
            default = "It failed." if status == "failed" else "Not run yet."
            rows.append([name, status, error or default])
    if not rows:
        return None
    table = Table(["contestant", "status", "message"], rows, 3, "failures")
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
    about = {key: results.get(key) for key in ("filbert", "task", "positive", "labels")}
    about = {key: value for key, value in about.items() if value is not None}
    about["finished"] = results.get("finished") or "not yet"
    runs = [run.get("costs") or {} for one in study.contestants for run in one.seeds]
    seconds = [run["training_seconds"] for run in runs if run.get("training_seconds") is not None]
    if seconds:
        about["training of all runs"] = f"{numbers.seconds(sum(seconds))} ({len(seconds):,} runs)"
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
    known = {one.name: dict(flatten(_spaced(one.entry["effective"])))
             for one in study.contestants if one.entry.get("effective")}  # fmt: skip
    names = list(dict.fromkeys(name for options in known.values() for name in options))
    rows = [[one, *(options.get(name, MISSING) for name in names)]
            for one, options in known.items()]  # fmt: skip
    title = "Options in effect, with defaults"
    effective = Table(["contestant", *names], rows, 1, "dense", title=title, folded=True)
    return section("How it was made", side_by_side(tables), effective)


SECTIONS: Sequence[Callable[[StudyFiles], Section | None]] = (
    ranking, tests, curves, costs, students, decisions, slices,
)  # fmt: skip


# Markdown


def markdown(study: StudyFiles) -> str:
    """The ranking as a Markdown table, with notes on its values below."""
    known = known_costs(study)
    columns = [*(heading for _, heading in study.metrics), *(heading for _, heading in known)]
    lines = [
        _markdown_row(["contestant", *columns]),
        _markdown_row(["---", *["---:"] * len(columns)]),
    ]
    best, decisive = best_values(study) if study.measured else {}, study.decisive[0]
    for one in study.measured:
        cells = []
        for key, _ in study.metrics:
            cell = _metric(one, key, best[key], study.digits)
            value = f"**{cell.value}**" if cell.strong else str(cell.value)
            parts = [value, cell.detail, cell.below if key == decisive else ""]
            cells.append(" ".join(part for part in parts if part))
        cells += [numbers.cost(key, one.cost(key)) for key, _ in known]
        lines.append(_markdown_row([one.name, *cells]))
    for one in study.contestants:
        if not one.entry.get("test"):
            status = str(one.entry.get("status") or "missing")
            lines.append(_markdown_row([one.name, status, *[MISSING] * (len(columns) - 1)]))
    return "\n".join([*lines, "", *(f"{note}  " for note in table_notes(study))]).rstrip() + "\n"


def _markdown_row(cells: Iterable[str]) -> str:
    return "| " + " | ".join(_escaped(cell) for cell in cells) + " |"


def _escaped(cell: str) -> str:
    text = " ".join(cell.split())
    for sign in "\\|<>`_[":
        # Intervals are in brackets, which only make a link before a parenthesis.
        if sign != "[" or "](" in text:
            text = text.replace(sign, f"\\{sign}")
    return text


def table_notes(study: StudyFiles) -> list[str]:
    """Sentences on the values of the ranking."""
    notes = []
    if study.num_seeds and study.num_seeds[-1] > 1:
        many = f"{'up to ' * (len(study.num_seeds) > 1)}{study.num_seeds[-1]}"
        notes.append(
            f"Mean ± standard deviation of {many} seeds. In brackets: {study.level} bootstrap "
            "interval of the mean, over test rows and seeds; with one seed, over test rows. "
            "Costs are medians of the seeds."
        )
    elif study.num_seeds:
        notes.append(
            f"One seed each. In brackets: {study.level} bootstrap interval over the test rows."
        )
    falling = [heading for key, heading in study.metrics if key in FALLING]
    lowest = f"; of {' and '.join(falling)} the lowest" if falling else ""
    return [*notes, f"The best of a column is bold{lowest}."]
