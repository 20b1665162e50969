"""Headline metrics of every problem, differences from the baselines, and the table of results."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from filbert.report import numbers
from filbert.report.folder import headline_split, problem_of
from filbert.report.render import Cell, Table
from filbert.tasks.base import FALLING

Columns = tuple[tuple[str, str], ...]

# problem -> its metrics, the most informative first. Those without values are left out.
HEADLINE_METRICS = {
    "binary": ("roc_auc", "pr_auc", "f1"),
    "multiclass": ("accuracy", "macro_f1", "weighted_f1"),
    "multilabel": ("roc_auc", "pr_auc", "micro_f1", "macro_f1"),
    "regression": ("spearman", "pearson", "mse"),
    "tagging": ("f1", "precision", "recall"),
    "span_qa": ("f1", "exact_match"),
    "multiple_choice": ("accuracy", "loss"),
    # The first two are measured for contrastive models, the others need labels.
    "embedding": ("accuracy", "mrr", "spearman", "pearson"),
    "pretraining": (
        "perplexity", "mlm_accuracy", "nsp_accuracy", "sop_accuracy", "replaced_accuracy",
    ),
}  # fmt: skip
# Of a metric, or of one of a problem; others have their keys with blanks.
HEADINGS = {
    "roc_auc": "ROC AUC", "pr_auc": "PR AUC", "f1": "F1", "macro_f1": "macro F1",
    "micro_f1": "micro F1", "weighted_f1": "weighted F1", "tagging f1": "entity F1",
    "span_qa f1": "F1 (%)", "exact_match": "exact match (%)", "spearman": "Spearman",
    "pearson": "Pearson", "mse": "MSE", "mrr": "MRR", "embedding accuracy": "pair accuracy",
    "mlm_accuracy": "masked-word accuracy", "nsp_accuracy": "next-sentence accuracy",
    "sop_accuracy": "sentence-order accuracy", "replaced_accuracy": "replaced-word accuracy",
    "study f1": "F1, tuned threshold", "f1_at_half": "F1 at 0.5", "ece": "calibration error",
    **{f"precision_at_recall_{n}": f"precision at recall {n} %" for n in (50, 80, 90, 95)},
}  # fmt: skip
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
    split, problem = headline_split(run), problem_of(run) or ""
    measured = run["metrics"][split] if split else {}
    keys = HEADLINE_METRICS.get(problem)
    if keys is None:
        return tuple((k, k.replace("_", " ")) for k, v in measured.items() if isinstance(v, float))
    return tuple((k, heading_of(k, problem)) for k in keys if measured.get(k) is not None)


def heading_of(key: str, problem: str = "") -> str:
    """Return the heading of a metric key."""
    usual = HEADINGS.get(key, key.replace("_", " "))
    return HEADINGS.get(f"{problem} {key}", usual)


def model_name(run: dict[str, Any]) -> str:
    """Return the last part of the model's source: a Hub id, a folder or a checkpoint prefix.

    A pre-trained or distilled model has the name of its run, as its source may be another model.
    """
    if run.get("command") in ("distill", "pretrain") and run.get("name"):
        return str(run["name"])
    source = str((run.get("model") or {}).get("source") or run.get("name") or "model")
    return source.rstrip("/").rsplit("/", 1)[-1]


def result_rows(run: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the model on the headline split, then the baselines in the order of run.json.

    A row has `name`, `metrics`, and perhaps `seconds` and `parameters`. A baseline may have
    `differences`: of the model from it, `low`, `high` and `p` by metric.
    """
    split, seconds = headline_split(run), run.get("seconds")
    if "training_seconds" in run:
        seconds = run["training_seconds"] + run.get("tokenise_seconds", 0.0)
    model = {
        "name": model_name(run),
        "metrics": run["metrics"][split] if split else {},
        "seconds": seconds,
        "parameters": (run.get("model") or {}).get("parameters"),
    }
    return [model, *(run.get("baselines") or ())]


def best_value(values: Iterable[float | None], key: str) -> float | None:
    """Return the best of the values of a metric."""
    known = [value for value in values if value is not None]
    return (min if key in FALLING else max)(known, default=None)


def best_baseline(run: dict[str, Any], key: str) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the baseline with the best value of a metric, and the model's difference from it.

    The difference is the interval: `low`, `high` and `p`. Both are empty if they are not known.
    """
    baselines = [row for row in result_rows(run)[1:] if row["metrics"].get(key) is not None]
    best = best_value((row["metrics"][key] for row in baselines), key)
    baseline = next((row for row in baselines if row["metrics"][key] == best), {})
    return baseline, (baseline.get("differences") or {}).get(key) or {}


def is_significant(interval: dict[str, Any]) -> bool:
    """Return whether the interval of a difference excludes zero; not if it is empty."""
    return bool(interval and (interval["low"] > 0 or interval["high"] < 0))


def difference(run: dict[str, Any], key: str) -> tuple[str, str, str, str] | None:
    """Return the name of the best baseline, and the model's difference from it, its interval and p.

    Both values are rounded before subtracting, so that the three numbers add up.
    """
    baseline, interval = best_baseline(run, key)
    value = result_rows(run)[0]["metrics"].get(key)
    if not baseline or value is None:
        return None
    text = f"{round(value, 3) - round(baseline['metrics'][key], 3):+.3f}"
    ends = numbers.interval(interval.get("low"), interval.get("high"), 3, sign=True)
    return baseline["name"], text, ends, numbers.probability(interval["p"]) if interval else ""


def difference_words(run: dict[str, Any], key: str) -> str:
    """Return `+0.020 from NAME (0.950), 95 % interval [+0.010, +0.030], p 0.002`, or ""."""
    known = difference(run, key)
    if known is None:
        return ""
    name, text, ends, probability = known
    baseline, interval = best_baseline(run, key)
    text += f" from {name} ({baseline['metrics'][key]:.3f})"
    if not ends:
        return text
    text += f", 95 % interval {ends}, p {probability}"
    unsure = ", not statistically significant on these rows"
    return text if is_significant(interval) else text + unsure


def difference_table(run: dict[str, Any]) -> Table:
    """Return the differences of headline metrics from the best baseline that have an interval."""
    known = [(name, difference(run, key)) for key, name in headline_metrics(run)]
    rows = [[name, *found] for name, found in known if found and found[2]]
    return Table(["metric", "baseline", "difference", "95 % interval", "p"], rows, 2)


def result_table(run: dict[str, Any]) -> Table:
    """Return model and baselines: headline metrics, seconds and parameters.

    The best value of a column is bold if model and best baseline differ significantly.
    """
    split, columns, results = headline_split(run), headline_metrics(run), result_rows(run)
    best: dict[str, float | None] = {}
    for key, _ in columns:
        if is_significant(best_baseline(run, key)[1]):
            best[key] = best_value((row["metrics"].get(key) for row in results), key)
    rows = []
    for row in results:
        values = [(row["metrics"].get(key), best.get(key)) for key, _ in columns]
        cells = [Cell(numbers.metric(v), strong=v is not None and v == most) for v, most in values]
        seconds = row.get("seconds")
        time = numbers.MISSING if seconds is None else f"{seconds:,.1f}"
        rows.append([row["name"], *cells, time, numbers.scaled(row.get("parameters"))])
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
