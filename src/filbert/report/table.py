"""The result table: the model beside its baselines, on the console and in the report."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from filbert.report import numbers
from filbert.report.folder import judged_split, problem_of

if TYPE_CHECKING:
    from rich.table import Table

# problem -> (metric key, heading), the most telling first: the verdict and the bold figures follow
# this order. A column that nobody has a value in is left out.
SHORT_COLUMNS: dict[str, tuple[tuple[str, str], ...]] = {
    "binary": (("roc_auc", "ROC AUC"), ("pr_auc", "PR AUC"), ("f1", "F1")),
    "multiclass": (
        ("accuracy", "accuracy"),
        ("macro_f1", "macro F1"),
        ("weighted_f1", "weighted F1"),
    ),
    "multilabel": (
        ("roc_auc", "ROC AUC"),
        ("pr_auc", "PR AUC"),
        ("micro_f1", "micro F1"),
        ("macro_f1", "macro F1"),
    ),
    "regression": (("spearman", "Spearman"), ("pearson", "Pearson"), ("mse", "MSE")),
    "tagging": (("f1", "entity F1"), ("precision", "precision"), ("recall", "recall")),
    "span_qa": (("f1", "F1 (%)"), ("exact_match", "exact match (%)")),
    "multiple_choice": (("accuracy", "accuracy"), ("loss", "loss")),
    # The first two are those of contrastive models, the others need labels.
    "embedding": (
        ("accuracy", "pair accuracy"),
        ("mrr", "MRR"),
        ("spearman", "Spearman"),
        ("pearson", "Pearson"),
    ),
}
MORE_COLUMNS: dict[str, tuple[tuple[str, str], ...]] = {
    "binary": (("precision", "precision"), ("recall", "recall"), ("accuracy", "accuracy")),
    "multiclass": (("loss", "loss"),),
    "multilabel": (("loss", "loss"),),
    "tagging": (("accuracy", "tag accuracy"),),
    "span_qa": (
        ("HasAns_f1", "F1, answerable"),
        ("NoAns_f1", "F1, unanswerable"),
        ("best_f1", "best F1"),
    ),
    "embedding": (("mse", "MSE"),),
}
# Of these figures less is better.
FALLING = ("loss", "mse")


@dataclass(frozen=True, slots=True)
class ResultRow:
    """One contender: the model, or a baseline."""

    name: str
    metrics: dict[str, Any]
    seconds: float | None
    parameters: int | None
    is_model: bool


def short_columns(run: dict[str, Any]) -> tuple[tuple[str, str], ...]:
    """(metric key, heading) of the headline metrics; for another task, all that it measured."""
    columns = SHORT_COLUMNS.get(problem_of(run) or "")
    if columns is not None:
        return _filled(run, columns)
    split = judged_split(run)
    measured = run["metrics"][split] if split else {}
    return tuple((k, k.replace("_", " ")) for k, v in measured.items() if isinstance(v, float))


def all_columns(run: dict[str, Any]) -> tuple[tuple[str, str], ...]:
    """The headline metrics and then the others that the report shows beside them."""
    return short_columns(run) + _filled(run, MORE_COLUMNS.get(problem_of(run) or "", ()))


def is_better(key: str, value: float, than: float) -> bool:
    """Whether a figure beats another."""
    return value < than if key in FALLING else value > than


def _filled(
    run: dict[str, Any], columns: tuple[tuple[str, str], ...]
) -> tuple[tuple[str, str], ...]:
    """The columns that somebody has a value in; all while nothing was measured."""
    rows = result_rows(run)
    if not any(row.metrics for row in rows):
        return columns
    return tuple(
        (key, heading)
        for key, heading in columns
        if any(row.metrics.get(key) is not None for row in rows)
    )


def model_name(run: dict[str, Any]) -> str:
    """Last part of where the model came from: a Hub id, a folder or a checkpoint prefix.

    A student may have come from its teacher, so it is called as its run.
    """
    if run.get("command") == "distill" and run.get("name"):
        return str(run["name"])
    source = str((run.get("model") or {}).get("source") or run.get("name") or "model")
    return source.rstrip("/").rsplit("/", 1)[-1]


def result_rows(run: dict[str, Any]) -> list[ResultRow]:
    """The model first, then the baselines in the order of run.json, on the judged split."""
    split = judged_split(run)
    model = run.get("model") or {}
    measured = run["metrics"][split] if split else {}
    # To train, from texts to weights: the same for all.
    seconds = run.get("seconds")
    if "training_seconds" in run:
        seconds = run["training_seconds"] + run.get("tokenise_seconds", 0.0)
    rows = [ResultRow(model_name(run), measured, seconds, model.get("parameters"), True)]
    for baseline in run.get("baselines") or ():
        rows.append(
            ResultRow(
                str(baseline.get("name", "baseline")),
                baseline.get("metrics") or {},
                baseline.get("seconds"),
                baseline.get("parameters"),
                False,
            )
        )
    return rows


def best_values(run: dict[str, Any]) -> dict[str, float]:
    """The best value of every column among all rows: the highest, of errors the lowest."""
    best = {}
    for key, _ in all_columns(run):
        values = [row.metrics.get(key) for row in result_rows(run)]
        known = [value for value in values if value is not None]
        if known:
            best[key] = min(known) if key in FALLING else max(known)
    return best


def pair_lines(run: dict[str, Any]) -> list[str]:
    """What the tests between model and baseline say, in sentences; none where none were made."""
    pair = run.get("pair")
    if not pair:
        return []
    lines = ["Below the figures: 95 % intervals (bootstrap over the test rows)."]
    for key, heading in SHORT_COLUMNS["binary"]:
        found = pair.get(key) or {}
        if found.get("value") is None:
            continue
        zero_out = found["low"] > 0 or found["high"] < 0
        told = "a difference" if zero_out else "no difference that these rows can tell"
        lines.append(
            f"{heading}: {found['value']:+.4f} [{found['low']:+.3f}, {found['high']:+.3f}] against "
            f"{pair['other']}, p {_p(found['p'])}: {told}."
        )
    rows = pair["mcnemar"]
    lines.append(
        f"Only the model is right on {rows['only_one_right']} rows, only the baseline on "
        f"{rows['only_other_right']}: McNemar p {_p(rows['p'])}."
    )
    return lines


def _p(value: float) -> str:
    return f"{value:.3f}" if value >= 0.001 else "below 0.001"


def result_table(run: dict[str, Any]) -> Table:
    """The console table: model, headline metrics of the problem, seconds, parameters.

    Where run.json holds intervals they stand below their figures.

    Args:
        run: content of run.json.
    """
    from rich.markup import escape
    from rich.table import Table
    from rich.text import Text

    split = judged_split(run)
    num_rows = ((run.get("data") or {}).get(split or "") or {}).get("rows")
    title = None if split is None else f"{numbers.count(num_rows)} {split} rows"
    # Intervals are wide: narrower gaps leave a name of usual length its line at 80 columns.
    narrow = bool(run.get("intervals"))
    table = Table(title=title, title_justify="left", header_style="bold", collapse_padding=narrow)
    table.add_column("model", overflow="fold")
    for _, heading in short_columns(run):
        table.add_column(escape(heading), justify="right")
    table.add_column("seconds", justify="right")
    table.add_column("parameters", justify="right")
    best = best_values(run)
    for row in result_rows(run):
        cells = [Text(row.name)]
        for key, _ in short_columns(run):
            value = row.metrics.get(key)
            is_best = value is not None and value == best.get(key)
            cell = Text(numbers.metric(value), style="bold" if is_best else "")
            found = ((run.get("intervals") or {}).get(row.name) or {}).get(key) or {}
            if found.get("low") is not None:
                cell.append(f"\n{found['low']:.3f}–{found['high']:.3f}", style="not bold dim")
            cells.append(cell)
        cells.append(Text(numbers.MISSING if row.seconds is None else f"{row.seconds:.1f}"))
        cells.append(Text(numbers.parameters(row.parameters)))
        table.add_row(*cells)
    return table
