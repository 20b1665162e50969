"""The HTML report and the Markdown table of a study: ranking, tests, costs, errors, provenance."""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np

from filbert.files import write_atomically
from filbert.report import canvas, numbers
from filbert.report import comparison_plots as plots
from filbert.report.comparison_plots import NOT_SIGNIFICANT, SIGNIFICANT
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
    draw,
    facts_table,
    flatten,
    section,
    write_page,
)
from filbert.report.run import label_counts
from filbert.report.worst_errors import Passages, excerpt

COSTS = (
    ("training_seconds", "training"),
    ("cpu_seconds", "CPU time"),
    ("rows_per_second", "rows/s"),
    ("latency_seconds", "one text"),
    ("flops_per_row", "compute"),
    ("parameters", "parameters"),
    ("bytes_on_disk", "on disk"),
    ("weight_bytes", "weights"),
    ("peak_bytes", "peak memory"),
)
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
MOST_SLICES = 6  # in one plot, so that it can be read on a phone


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
        "report.html",
        title=str(study.results.get("name") or study.path.resolve().name),
        about=[version, "comparison", study.results.get("finished")],
        headline=headline(study),
        notes=[*state(study), *study.notes],
        facts=headline_facts(study),
        sections=[*(one for one in found if one is not None), provenance(study)],
        sections_template="comparison_sections.html",
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
    figures = {f"ranking_{key}": plots.metric_dots(study, key, name) for key, name in shown}
    best, digits = best_values(study), study.digits
    level = {one.name for one in study.not_significant(study.measured[0])}
    rows: list[list[object]] = []
    for place, one in enumerate(study.measured, start=1):
        name = f"{place}. {one.name}{' ≈' if one.name in level else ''}"
        rows.append([name, *(_metric(one, key, best[key], digits) for key, _ in study.metrics)])
    headings = [heading for _, heading in study.metrics]
    return section(
        "ranking",
        "Ranking",
        figures=draw(study.path, figures),
        shown=[(key, heading, key in FALLING) for key, heading in shown],
        table=Table(["contestant", *headings], rows, css_class="ranking"),
        every=Table(
            ["run", *headings, "threshold", "training", "status"], _runs(study), 1, "dense"
        ),
        notes=table_notes(study),
        has_equals=bool(level),
        has_cleaning=bool(study.cleaned_pairs),
        has_seed_intervals=any(one.figure(shown[0][0]).get("over_seeds") for one in study.measured),
        level=study.level,
        decisive=study.decisive[1],
    )


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
    figures = {f"differences_{key}": plots.differences(study, key) for key, _ in study.tested[:2]}
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
    return section(
        "tests",
        "Significance tests",
        figures=draw(study.path, figures),
        shown=study.tested[:2],
        table=Table([*head, *calls_head], rows, 2, "pairwise"),
        every=Table([*every_head, *calls_head], every, 2, "pairwise"),
        notes=(study.results.get("statistics") or {}).get("notes") or (),
        level=study.level,
        num_pairs=len(pairs),
        has_seed_intervals=any((pair.get(key) or {}).get("over_seeds") for pair in pairs),
    )


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
    figures = {kind: plots.ranking_curves(study, kind) for kind in ("pr", "roc")}
    if len(study.answered) > 2:
        figures["pr_panels"] = plots.pr_panels(study)
    figures["calibration"] = plots.reliability_panels(study)
    return section(
        "curves",
        "Curves and calibration",
        figures=draw(study.path, figures),
        label=study.labels[study.positive],
        share=float(gold.mean()),
        has_cleaning=bool(study.cleaned_pairs),
    )


def costs(study: StudyFiles) -> Section | None:
    """The decisive metric over every cost, and the costs in a table."""
    if not any(one.entry.get("costs") for one in study.measured):
        return None
    shown = [
        cost for cost in plots.COSTS if sum(bool(one.cost(cost.key)) for one in study.measured) > 1
    ]
    figures = {f"cost_{cost.key}": plots.cost_plot(study, cost) for cost in shown}
    known = known_costs(study)
    rows = [
        [one.name, *(numbers.cost(key, one.cost(key)) for key, _ in known)]
        for one in study.measured
    ]
    return section(
        "costs",
        "Quality and cost",
        figures=draw(study.path, figures),
        shown=shown,
        table=Table(["contestant", *(heading for _, heading in known)], rows, 1, "pairwise"),
        is_one_machine=(study.results.get("machine") or {}).get("same_for_all_runs"),
    )


def known_costs(study: StudyFiles) -> list[tuple[str, str]]:
    """(key, heading) of the costs that were measured."""
    return [(k, h) for k, h in COSTS if any(one.cost(k) is not None for one in study.measured)]


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
        "students",
        "Teacher and students",
        table=Table(head, rows, 2, "ranking"),
        why=study.choice,
        decisive=study.decisive[1],
        teachers=", ".join(map(named, teachers)),
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


def cleaning(study: StudyFiles) -> Section | None:
    """Every model without and with cleaning of its texts, by the decisive metric."""
    if not study.cleaned_pairs:
        return None
    key, heading = study.decisive
    rows: list[list[object]] = []
    steps: dict[str, list[str]] = {}
    for plain, cleaned in study.cleaned_pairs:
        name = study.cleaned_name(cleaned)
        values = [fixed(one.value(key), study.digits) for one in (plain, cleaned)]
        pair = study.pair(cleaned.name, plain.name, key)
        rows.append([name, *values, *_pair(pair, study.digits, with_p=False)])
        steps.setdefault(", ".join(map(str, cleaned.entry["cleaning"])), []).append(name)
    head = ["model", "without", "with", "difference", f"{study.level} interval", "p_holm"]
    return section(
        "cleaning",
        "With and without cleaning",
        table=Table(head, rows, css_class="pairwise"),
        decisive=heading,
        steps=sorted(steps.items()),
    )


def decisions(study: StudyFiles) -> Section | None:
    """Confusion matrices, agreement, and the calibration of more than two labels."""
    figures = {}
    if study.answered:
        figures["confusions"] = plots.confusions(study)
        if study.positive is None:
            figures["calibration"] = plots.reliability_panels(study)
    found = study.results.get("agreement") or {}
    names = [one.name for one in study.measured if one.name in (found.get("names") or ())]
    if len(names) > 1:
        at = [found["names"].index(name) for name in names]
        matrix = [[found["matrix"][row][column] for column in at] for row in at]
        figures["agreement"] = plots.agreement(names, matrix)
    if not figures:
        return None
    images, is_binary = draw(study.path, figures), study.positive is not None
    return section("decisions", "Decisions", figures=images, is_binary=is_binary)


# Rows and slices


def slices(study: StudyFiles) -> Section | None:
    """Metrics on parts of the test rows, as plots and in a table."""
    parts: list[dict[str, Any]] = list(study.results.get("slices") or ())
    names = [one.name for one in study.measured]
    known = [
        key
        for key in SLICE_METRICS
        if any(_value(part, name, key) is not None for part in parts for name in names)
    ]
    if not known:
        return None
    figures, shown = {}, []
    for number, (by, some) in enumerate(_slice_groups(parts), start=1):
        for metric in dict.fromkeys([known[0], *(k for k in known if k == "false_positive_rate")]):
            values = [[_value(part, name, metric) for _, part in some] for name in names]
            figures[f"slices_{number}_{metric}"] = plots.slices(
                names, [_slice_name(name, part) for name, part in some],
                np.array(values, dtype=float), falling=metric == "false_positive_rate",
            )  # fmt: skip
            shown.append((f"slices_{number}_{metric}", SLICE_METRICS[metric], by))
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
    return section(
        "slices",
        "Metrics by slice",
        figures=draw(study.path, figures),
        shown=shown,
        table=Table(head, rows, 3, "dense"),
        has_positives=any(part.get("positives") is not None for part in parts),
    )


def _slice_groups(
    parts: list[dict[str, Any]],
) -> Iterator[tuple[str, list[tuple[str, dict[str, Any]]]]]:
    """(criterion, (name, slice) pairs) of every plot; yes/no columns share plots of their "yes"."""
    groups: dict[str, list[dict[str, Any]]] = {}
    for part in parts:
        groups.setdefault(str(part["by"]), []).append(part)
    answers = {"yes", "no", "not stated"}
    columns = [by for by, some in groups.items() if {str(p["slice"]) for p in some} <= answers]
    found: dict[str, list[tuple[str, dict[str, Any]]]] = {}
    for by, some in groups.items():
        if len(columns) > 1 and by in columns:
            yes = [(by, part) for part in some if part["slice"] == "yes"]
            found.setdefault("column, where it says yes", []).extend(yes)
        else:
            found[by] = [(str(part["slice"]), part) for part in some]
    for by, pairs in found.items():
        for start in range(0, len(pairs), MOST_SLICES):
            yield by, pairs[start : start + MOST_SLICES]


def _slice_name(name: str, part: dict[str, Any]) -> str:
    positives = part.get("positives")
    lines = [canvas.plain(name, 12), f"n {part['rows']:,}"]
    return "\n".join(lines if positives is None else [*lines, f"+ {positives:,}"])


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
    listings = []
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
        text = f"{len(at):,} of {len(first.gold):,} test rows ({share})."
        listings.append((title, text, Table(head, rows, 2, "dense", passages=below)))
    return section(
        "hard_rows", "Disputed and hard rows", listings=listings, show_texts=show_texts, why=why
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
    near = facts_table(_spaced(facts.get("near_duplicates") or {}))
    table = Table(["split", "labels", "rows"], rows, 2, "counts")
    return section("data", "Data", table=table, near=near)


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
    return section("failures", "Failed and missing", table=table)


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
        ("Study", facts_table(about)),
        ("Machine", facts_table(_spaced(results.get("machine")))),
        ("Options", facts_table(_spaced(results.get("options")))),
        ("Data and the sha256 of its bytes", Table((), hashes, 2, "pairs")),
    ]
    for one in study.contestants:
        own = {"kind": one.entry.get("kind"), "cleaning": one.entry.get("cleaning") or "none"}
        if one.entry.get("best_seed") is not None:
            own["seed best on dev"] = one.entry["best_seed"]
        tables.append((one.name, facts_table(own | _spaced(one.entry.get("options")))))
    known = {one.name: dict(flatten(_spaced(one.entry["effective"])))
             for one in study.contestants if one.entry.get("effective")}  # fmt: skip
    names = list(dict.fromkeys(name for options in known.values() for name in options))
    rows = [[one, *(options.get(name, MISSING) for name in names)]
            for one, options in known.items()]  # fmt: skip
    effective = Table(["contestant", *names], rows, 1, "dense")
    return section("provenance", "How it was made", tables=tables, effective=effective)


SECTIONS: Sequence[Callable[[StudyFiles], Section | None]] = (
    ranking, tests, curves, costs, students, cleaning, decisions, slices,
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
