"""Result tables: which metrics are headline metrics, and the tables printed after a run."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from filbert.report import numbers
from filbert.report.folder import headline_split, problem_of

if TYPE_CHECKING:
    from rich.table import Table
    from rich.text import Text

Columns = tuple[tuple[str, str], ...]

# problem -> (metric key, heading), the most informative first. Columns without values are left out.
SHORT_COLUMNS: dict[str, Columns] = {
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
    # The first two are measured for contrastive models, the others need labels.
    "embedding": (
        ("accuracy", "pair accuracy"),
        ("mrr", "MRR"),
        ("spearman", "Spearman"),
        ("pearson", "Pearson"),
    ),
}
MORE_COLUMNS: dict[str, Columns] = {
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
# Metrics of which less is better.
FALLING = ("loss", "mse")

# Pre-training metric -> (name, whether it is a share).
PRETRAINING_METRICS: dict[str, tuple[str, bool]] = {
    "mlm_accuracy": ("masked-word accuracy", True),
    "perplexity": ("perplexity", False),
    "mlm_loss": ("masked-word loss (nats)", False),
    "nsp_accuracy": ("next-sentence accuracy", True),
    "nsp_loss": ("next-sentence loss (nats)", False),
    "sop_accuracy": ("sentence-order accuracy", True),
    "sop_loss": ("sentence-order loss (nats)", False),
    "replaced_accuracy": ("replaced-word accuracy", True),
    "replaced_loss": ("replaced-word loss (nats)", False),
    "loss": ("weighted sum of the losses", False),
    "soft_loss": ("divergence from the teacher's word scores", False),
    "cosine_loss": ("1 - cosine of last hidden states", False),
    "embeddings_loss": ("squared error of embeddings", False),
    "hidden_loss": ("squared error of hidden states", False),
    "scores_loss": ("squared error of attention scores", False),
    "relations_loss": ("divergence of relations", False),
}


@dataclass(frozen=True, slots=True)
class ResultRow:
    """Metrics and costs of the model or of a baseline."""

    name: str
    metrics: dict[str, Any]
    seconds: float | None
    parameters: int | None
    is_model: bool


def short_columns(run: dict[str, Any]) -> Columns:
    """(metric key, heading) of the headline metrics; for an unknown task, all metrics."""
    columns = SHORT_COLUMNS.get(problem_of(run) or "")
    if columns is not None:
        return _filled(run, columns)
    split = headline_split(run)
    measured = run["metrics"][split] if split else {}
    return tuple((k, k.replace("_", " ")) for k, v in measured.items() if isinstance(v, float))


def all_columns(run: dict[str, Any]) -> Columns:
    """The headline metrics, then the other metrics of the results table."""
    return short_columns(run) + _filled(run, MORE_COLUMNS.get(problem_of(run) or "", ()))


def heading_of(key: str) -> str:
    """The heading of a metric key."""
    columns = [column for group in SHORT_COLUMNS.values() for column in group]
    return dict(reversed(columns)).get(key, key.replace("_", " "))


def is_better(key: str, value: float, than: float) -> bool:
    """Whether a value of a metric is better than another."""
    return value < than if key in FALLING else value > than


def _filled(run: dict[str, Any], columns: Columns) -> Columns:
    """The columns with at least one value; all columns if nothing was measured."""
    rows = result_rows(run)
    if not any(row.metrics for row in rows):
        return columns
    return tuple(c for c in columns if any(row.metrics.get(c[0]) is not None for row in rows))


def model_name(run: dict[str, Any]) -> str:
    """Last part of the model's source: a Hub id, a folder or a checkpoint prefix.

    A distilled model has the name of its run, as its source may be the teacher.
    """
    if run.get("command") == "distill" and run.get("name"):
        return str(run["name"])
    source = str((run.get("model") or {}).get("source") or run.get("name") or "model")
    return source.rstrip("/").rsplit("/", 1)[-1]


def result_rows(run: dict[str, Any]) -> list[ResultRow]:
    """The model, then the baselines in the order of run.json, on the headline split."""
    split, model = headline_split(run), run.get("model") or {}
    measured = run["metrics"][split] if split else {}
    seconds = run.get("seconds")
    if "training_seconds" in run:
        seconds = run["training_seconds"] + run.get("tokenise_seconds", 0.0)
    rows = [ResultRow(model_name(run), measured, seconds, model.get("parameters"), True)]
    for baseline in run.get("baselines") or ():
        name = str(baseline.get("name", "baseline"))
        metrics, cost = baseline.get("metrics") or {}, baseline.get("seconds")
        rows.append(ResultRow(name, metrics, cost, baseline.get("parameters"), False))
    return rows


def best_values(run: dict[str, Any]) -> dict[str, float]:
    """The best value of every column among all rows."""
    best = {}
    for key, _ in all_columns(run):
        values = [row.metrics.get(key) for row in result_rows(run)]
        known = [value for value in values if value is not None]
        if known:
            best[key] = min(known) if key in FALLING else max(known)
    return best


def pair_lines(run: dict[str, Any]) -> list[str]:
    """The tests between model and baseline in sentences; empty if there were none."""
    pair = run.get("pair")
    if not pair:
        return []
    lines = ["Below the metrics: 95 % intervals (bootstrap over the test rows)."]
    for key, heading in SHORT_COLUMNS["binary"]:
        found = pair.get(key) or {}
        if found.get("value") is None:
            continue
        is_significant = found["low"] > 0 or found["high"] < 0
        outcome = "significant" if is_significant else "not statistically significant on these rows"
        lines.append(
            f"{heading}: {found['value']:+.4f} [{found['low']:+.3f}, {found['high']:+.3f}] against "
            f"{pair['other']}, p {_p(found['p'])}: {outcome}."
        )
    rows = pair["mcnemar"]
    lines.append(
        f"Only the model is right on {rows['only_one_right']} rows, only the baseline on "
        f"{rows['only_other_right']}: McNemar p {_p(rows['p'])}."
    )
    return lines


def _p(value: float) -> str:
    return f"{value:.3f}" if value >= 0.001 else "below 0.001"


# Tables for a terminal


def terminal_table(
    head: Sequence[str], rows: Iterable[Sequence[str | Text] | None], *, title: str | None = None,
    narrow: bool = False,
) -> Table:  # fmt: skip
    """A table for a terminal: the first column is left aligned, the others right aligned.

    Args:
        head: Column headings; empty headings are not shown.
        rows: Cells; None draws a line. Strings are printed as they are, without markup.
        title: A line above the table.
        narrow: Whether to reduce the gaps between columns.
    """
    from rich.markup import escape
    from rich.table import Table
    from rich.text import Text

    table = Table(
        title=None if title is None else escape(title),
        title_justify="left",
        header_style="bold",
        show_header=any(head),
        collapse_padding=narrow,
    )
    for number, heading in enumerate(head):
        table.add_column(escape(heading), justify="right" if number else "left", overflow="fold")
    for row in rows:
        if row is None:
            table.add_section()
        else:
            table.add_row(*(Text(cell) if isinstance(cell, str) else cell for cell in row))
    return table


def result_table(run: dict[str, Any]) -> Table:
    """The table after a run: model and baselines, headline metrics, seconds and parameters.

    Intervals of run.json are printed below their metrics.
    """
    from rich.text import Text

    split = headline_split(run)
    num_rows = ((run.get("data") or {}).get(split or "") or {}).get("rows")
    best, columns = best_values(run), short_columns(run)
    rows = []
    for row in result_rows(run):
        cells: list[str | Text] = [row.name]
        for key, _ in columns:
            value = row.metrics.get(key)
            is_best = value is not None and value == best.get(key)
            cell = Text(numbers.metric(value), style="bold" if is_best else "")
            found = ((run.get("intervals") or {}).get(row.name) or {}).get(key) or {}
            if found.get("low") is not None:
                cell.append(f"\n{found['low']:.3f}–{found['high']:.3f}", style="not bold dim")
            cells.append(cell)
        cells.append(numbers.MISSING if row.seconds is None else f"{row.seconds:.1f}")
        rows.append([*cells, numbers.parameters(row.parameters)])
    return terminal_table(
        ["model", *(heading for _, heading in columns), "seconds", "parameters"],
        rows,
        title=None if split is None else f"{numbers.count(num_rows)} {split} rows",
        narrow=bool(run.get("intervals")),
    )


def pretraining_table(run: dict[str, Any]) -> Table:
    """The metrics on held-out text and the throughput of a pre-training run."""
    rows: list[Sequence[str] | None] = []
    for split, metrics in run["metrics"].items():
        for key, value in metrics.items():
            name, is_share = PRETRAINING_METRICS.get(key, (key.replace("_", " "), False))
            shown = numbers.percent(value) if is_share else f"{value:,.4f}"
            rows.append((f"{name} ({split})", shown))
        rows.append(None)
    rows += [
        ("steps", f"{run['steps']:,}"),
        ("training tokens", f"{run['tokens']:,}"),
        ("tokens per second", f"{run['tokens_per_second']:,.0f}"),
        ("time", numbers.seconds(run["seconds"])),
        ("parameters", f"{run['model']['parameters']:,}"),
    ]
    return terminal_table(["", ""], rows, title=run.get("name") or "pre-training")
