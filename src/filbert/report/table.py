"""Headline metrics of every problem, differences from the baselines, and the table of results."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from filbert.report import numbers
from filbert.report.folder import headline_split, problem_of
from filbert.report.render import Cell, Table
from filbert.tasks.base import FALLING

Columns = tuple[tuple[str, str], ...]

# problem -> (metric key, heading), the most informative first. Columns without values are left out.
HEADLINE_METRICS: dict[str, Columns] = {
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
    "pretraining": (
        ("perplexity", "perplexity"),
        ("mlm_accuracy", "masked-word accuracy"),
        ("nsp_accuracy", "next-sentence accuracy"),
        ("sop_accuracy", "sentence-order accuracy"),
        ("replaced_accuracy", "replaced-word accuracy"),
    ),
}
# Names of the other metrics of pre-training and distillation.
LOSSES = {
    "mlm_loss": "masked-word loss (nats)",
    "nsp_loss": "next-sentence loss (nats)",
    "sop_loss": "sentence-order loss (nats)",
    "replaced_loss": "replaced-word loss (nats)",
    "soft_loss": "divergence from the teacher's word scores",
    "cosine_loss": "1 - cosine of last hidden states",
    "embeddings_loss": "squared error of embeddings",
    "hidden_loss": "squared error of hidden states",
    "scores_loss": "squared error of attention scores",
    "relations_loss": "divergence of relations",
}


def headline_metrics(run: dict[str, Any]) -> Columns:
    """Return (metric key, heading) of the headline metrics; for an unknown task, all metrics."""
    split = headline_split(run)
    measured = run["metrics"][split] if split else {}
    columns = HEADLINE_METRICS.get(problem_of(run) or "")
    if columns is None:
        return tuple((k, k.replace("_", " ")) for k, v in measured.items() if isinstance(v, float))
    return tuple(c for c in columns if measured.get(c[0]) is not None)


def heading_of(key: str) -> str:
    """Return the heading of a metric key."""
    columns = [column for group in HEADLINE_METRICS.values() for column in group]
    return dict(reversed(columns)).get(key, key.replace("_", " "))


def model_name(run: dict[str, Any]) -> str:
    """Return the last part of the model's source: a Hub id, a folder or a checkpoint prefix.

    A pre-trained or distilled model has the name of its run, as its source may be another model.
    """
    if run.get("command") in ("distill", "pretrain") and run.get("name"):
        return str(run["name"])
    source = str((run.get("model") or {}).get("source") or run.get("name") or "model")
    return source.rstrip("/").rsplit("/", 1)[-1]


@dataclass(frozen=True, slots=True)
class ResultRow:
    """Metrics and costs of the model or of a baseline, with the intervals of its differences.

    `differences` of a baseline are those of the model from it: `low`, `high` and `p` by metric.
    """

    name: str
    metrics: dict[str, Any]
    seconds: float | None
    parameters: int | None
    differences: dict[str, dict[str, float]]


def result_rows(run: dict[str, Any]) -> list[ResultRow]:
    """Return the model, then the baselines in the order of run.json, on the headline split."""
    split, model = headline_split(run), run.get("model") or {}
    seconds = run.get("seconds")
    if "training_seconds" in run:
        seconds = run["training_seconds"] + run.get("tokenise_seconds", 0.0)
    measured = run["metrics"][split] if split else {}
    rows = [ResultRow(model_name(run), measured, seconds, model.get("parameters"), {})]
    for one in run.get("baselines") or ():
        metrics, differences = one.get("metrics") or {}, one.get("differences") or {}
        cost = one.get("seconds"), one.get("parameters")
        rows.append(ResultRow(str(one["name"]), metrics, *cost, differences))
    return rows


def best_value(values: Iterable[float | None], key: str) -> float | None:
    """Return the best of the values of a metric."""
    known = [value for value in values if value is not None]
    return (min if key in FALLING else max)(known, default=None)


def best_baseline(run: dict[str, Any], key: str) -> ResultRow | None:
    """Return the baseline with the best value of a metric."""
    baselines = [row for row in result_rows(run)[1:] if row.metrics.get(key) is not None]
    best = best_value((row.metrics[key] for row in baselines), key)
    return next((row for row in baselines if row.metrics[key] == best), None)


def difference(run: dict[str, Any], key: str) -> tuple[ResultRow, str, str, str] | None:
    """Return the best baseline, and the model's metric less its own: difference, interval and p.

    Both values are rounded before subtracting, so that the three numbers add up.
    """
    baseline, value = best_baseline(run, key), result_rows(run)[0].metrics.get(key)
    if baseline is None or value is None:
        return None
    found = baseline.differences.get(key) or {}
    ends = numbers.interval(found["low"], found["high"], 3, sign=True) if found else ""
    probability = numbers.probability(found["p"]) if "p" in found else ""
    return baseline, f"{round(value, 3) - round(baseline.metrics[key], 3):+.3f}", ends, probability


def difference_words(run: dict[str, Any], key: str) -> str:
    """Return `+0.020 from NAME (0.950), 95 % interval [+0.010, +0.030], p 0.002`, or ""."""
    known = difference(run, key)
    if known is None:
        return ""
    baseline, text, ends, probability = known
    text += f" from {baseline.name} ({baseline.metrics[key]:.3f})"
    text += f", 95 % interval {ends}" * bool(ends) + f", p {probability}" * bool(probability)
    is_unsure = ends and not is_significant(baseline.differences[key])
    return f"{text}, not statistically significant on these rows" if is_unsure else text


def difference_table(run: dict[str, Any]) -> Table:
    """Return the differences of headline metrics from the best baseline that have an interval."""
    known = [(name, difference(run, key)) for key, name in headline_metrics(run)]
    rows = [[name, found[0].name, *found[1:]] for name, found in known if found and found[2]]
    return Table(["metric", "baseline", "difference", "95 % interval", "p"], rows, 2)


def is_significant(difference: dict[str, float]) -> bool:
    """Return whether the interval of a difference excludes zero."""
    return difference["low"] > 0 or difference["high"] < 0


def result_table(run: dict[str, Any]) -> Table:
    """Return model and baselines: headline metrics, seconds and parameters.

    The best value of a column is bold if model and best baseline differ significantly.
    """
    split, columns, results = headline_split(run), headline_metrics(run), result_rows(run)
    best: dict[str, float | None] = {}
    for key, _ in columns:
        baseline = best_baseline(run, key)
        found = baseline.differences.get(key) if baseline else None
        if found and is_significant(found):
            best[key] = best_value((row.metrics.get(key) for row in results), key)
    rows = []
    for row in results:
        values = [(row.metrics.get(key), best.get(key)) for key, _ in columns]
        cells = [Cell(numbers.metric(v), strong=v is not None and v == most) for v, most in values]
        seconds = numbers.MISSING if row.seconds is None else f"{row.seconds:,.1f}"
        rows.append([row.name, *cells, seconds, numbers.parameters(row.parameters)])
    num_rows = ((run.get("data") or {}).get(split or "") or {}).get("rows")
    title = f"{numbers.count(num_rows)} {split} rows" if num_rows else split or ""
    head = ["model", *(heading for _, heading in columns), "seconds", "parameters"]
    return Table(head, rows, title=title)


def throughput(run: dict[str, Any]) -> str:
    """Return steps, epochs, tokens per second and share of real tokens, as far as known."""
    texts = {
        "steps": "{:,} steps",
        "tokens": "{:,} training tokens",
        "epochs": "{:g} epochs",
        "tokens_per_second": "{:,.0f} tokens/s",
        "fill": "{:.1%} of the computed tokens are real tokens",
    }
    known = [text.format(run[key]) for key, text in texts.items() if run.get(key) is not None]
    return " · ".join(known)
