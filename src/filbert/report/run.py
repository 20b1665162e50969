"""The HTML report of a run folder: headline, results, seeds, training, data and provenance."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from filbert.report import numbers, plots, predictions
from filbert.report.folder import SPLITS, RunFolder, headline_split, problem_of
from filbert.report.render import (
    Cell,
    Section,
    Table,
    facts_table,
    gallery,
    hashes_table,
    section,
    side_by_side,
    texts,
    write_page,
)
from filbert.report.table import (
    LOSSES,
    best_baseline,
    difference_table,
    difference_words,
    heading_of,
    headline_metrics,
    is_significant,
    model_name,
    result_rows,
    result_table,
    throughput,
)
from filbert.report.worst_errors import slices, worst_errors
from filbert.tasks.base import FALLING

MOST_LABEL_COUNTS = 8
# Fewer training rows of a label, or a larger share of truncated rows, are worth a hint.
FEW_ROWS, MANY_CUT = 20, 0.05
# Options that are shown at once; the others are folded.
MATTER = (
    "task", "data", "train", "dev", "test", "corpus", "positive", "max_length", "on_overflow",
    "epochs", "steps", "time", "batch_size", "lr", "layer_decay", "warmup", "class_weights",
    "lora", "masking", "mask_rate", "pair", "method", "temperature", "seed", "seeds", "folds",
)  # fmt: skip
_QUANTILES = (0.5, 0.9, 0.95, 0.99, 1)


def write_run_report(run_folder: Path, *, hide_texts: bool = False) -> Path:
    """Write plots/*.png and report.html into a run folder and return the path of the page.

    Only files of the run folder are read. Sections that lack their data are left out.

    Args:
        run_folder: Written by `filbert finetune`, `filbert distill` or `filbert pretrain`.
        hide_texts: Show no text of the data and no answer. By default the page has the texts of
            the worst errors, behind a switch. They are read from the data file that run.json
            names, if its sha256 is unchanged.

    Raises:
        FormatError: A file is damaged, or there is no run.json.
    """
    folder = RunFolder(Path(run_folder))
    run = folder.run
    of_task = predictions.SECTIONS.get(folder.problem or "", ()) if folder.rows else ()
    of_data = corpora if folder.problem == "pretraining" else lengths
    make: list[Callable[[RunFolder], Section | None]]
    make = [results, next_steps, seeds, training, *of_task, of_data, slices]
    sections = [one(folder) for one in make]
    sections.append(worst_errors(folder, hide_texts=hide_texts))
    status = run.get("status")
    return write_page(
        folder.path / "report.html",
        title=title_of(folder),
        about=[run.get("filbert"), run.get("task") or run.get("command"), run.get("finished")],
        headline=headline(run),
        notes=[] if status in (None, "done") else [f"Status of this run: {status}."],
        facts=headline_facts(run),
        sections=[*sections, provenance(folder)],
    )  # fmt: skip


def title_of(folder: RunFolder) -> str:
    """Return the run's name; for several seeds that of their folder, not that of the kept seed."""
    if folder.run.get("seeds"):
        return folder.path.resolve().name
    return str(folder.run.get("name") or model_name(folder.run))


def headline_facts(run: dict[str, Any]) -> list[tuple[str, object]]:
    """Return (name, value) of the headline metrics, the duration and the number of parameters.

    The best baseline is below each metric.
    """
    model = result_rows(run)[0]
    facts: list[tuple[str, object]] = []
    for key, heading in headline_metrics(run):
        other, _ = best_baseline(run, key)
        below = f"baseline {numbers.metric(other['metrics'][key])}" if other else ""
        facts.append((heading, Cell(numbers.metric(model["metrics"].get(key)), below=below)))
    facts.append(("time", numbers.seconds(run.get("seconds"))))
    facts.append(("parameters", numbers.scaled(model["parameters"])))
    return [(name, value) for name, value in facts if value != numbers.MISSING]


def headline(run: dict[str, Any]) -> str:
    """Return the first headline metric, its difference from the best baseline, and other seeds."""
    if problem_of(run) == "pretraining":
        return _pretraining_headline(run)
    split, name, columns = headline_split(run), model_name(run), headline_metrics(run)
    if split is None or not columns:
        return f"{name} was trained; no headline metric was measured."
    key, heading = columns[0]
    num_rows = ((run.get("data") or {}).get(split) or {}).get("rows")
    rows = f"{num_rows:,} {split} rows" if num_rows else f"the {split} rows"
    less = " (less is better)" if key in FALLING else ""
    value = numbers.metric(run["metrics"][split][key], 3)
    difference = difference_words(run, key)
    text = f"{name} reaches {heading} {value}{less} on {rows}"
    text += f": {difference}." if difference else "."
    spread = run.get("seeds") or {}
    dev = ((spread.get("metrics") or {}).get("dev") or {}).get(spread.get("metric"))
    if len(spread.get("runs") or ()) < 2 or not dev:
        return text
    return (
        f"{text} It is the best of {len(spread['runs'])} seeds on dev; over all seeds, the dev "
        f"{heading_of(spread['metric'])} is {dev['mean']:.3f} ± {dev['deviation']:.3f}."
    )


def _pretraining_headline(run: dict[str, Any]) -> str:
    """Return the accuracy and perplexity on held-out text, and those of the teacher."""
    values = {
        name: (metrics.get("mlm_accuracy"), numbers.fixed(metrics.get("perplexity"), 2))
        for name, facts in (("model", run), ("teacher", run.get("teacher") or {}))
        for metrics in [(facts.get("metrics") or {}).get("dev") or {}]
    }
    steps, tokens = run.get("steps"), run.get("tokens")
    return " ".join(texts("pretrained", run=model_name(run), steps=steps, tokens=tokens, **values))


def results(folder: RunFolder) -> Section | None:
    """Return the model and its baselines, then every metric of every split."""
    run, split = folder.run, headline_split(folder.run)
    if split is None:
        return None
    # Every metric: the model on all splits, and the baselines or the teacher.
    measured = {name: metrics for name, metrics in run["metrics"].items() if metrics}
    measured |= {f"{row['name']} ({split})": row["metrics"] for row in result_rows(run)[1:]}
    teacher = ((run.get("teacher") or {}).get("metrics") or {}).get(split)
    if teacher and folder.problem == "pretraining":
        measured[f"teacher ({split})"] = teacher
    keys = dict.fromkeys(
        key for metrics in measured.values() for key, value in metrics.items()
        if value is not None and not isinstance(value, (dict, list))
    )  # fmt: skip
    every = [
        [LOSSES.get(key, key), *(numbers.metric(m.get(key)) for m in measured.values())]
        for key in keys
    ]
    remark = texts(
        "results", is_pretraining=folder.problem == "pretraining", split=split,
        left_out=measured[split].get("left_out"), has_baselines=len(result_rows(run)) > 1,
    )  # fmt: skip
    return section(
        "Results",
        result_table(run),
        *remark,
        difference_table(run),
        Table(["metric", *measured], every, title="Every metric"),
    )


def next_steps(folder: RunFolder) -> Section | None:
    """Return what to try next."""
    run, dev, columns = folder.run, folder.evaluations, headline_metrics(folder.run)
    if folder.problem == "pretraining":
        return None
    key, heading = columns[0] if columns else ("", "")
    baseline, interval = best_baseline(run, key)
    train = (run.get("data") or {}).get("train") or {}
    losses = [line["metrics"].get("loss") or 0.0 for line in dev]
    share = (train.get("truncated") or 0) / (train.get("rows") or 1)
    is_windowed = folder.problem in ("tagging", "span_qa")
    wrong = Counter(
        (row["gold"], row["label"])
        for row in (folder.rows if folder.problem in ("binary", "multiclass") else ())
        if row["gold"] != row["label"]
    )
    hints = texts(
        "next_steps", split=headline_split(run), heading=heading,
        rival=baseline["name"] if interval and not is_significant(interval) else "",
        steps=run.get("steps") or 0, max_length=train.get("max_length"),
        is_last_best=len(dev) > 1 and (run.get("best") or {}).get("step") == dev[-1]["step"],
        overfits=len(losses) > 2 and losses[-1] > 1.15 * min(losses),
        cut=numbers.percent(share) if share > MANY_CUT and not is_windowed else "",
        rare=[name for name, n in (train.get("label_counts") or {}).items() if n < FEW_ROWS],
        confusion=wrong.most_common(1),
    )  # fmt: skip
    return section("What to try next", hints)


def seeds(folder: RunFolder) -> Section | None:
    """Return mean, standard deviation and every value of several seeds, and which were kept."""
    spread = folder.run.get("seeds") or {}
    if not spread.get("runs"):
        return None
    best, tables = str(spread["best"]), []
    for split in reversed(SPLITS):
        known = (spread.get("metrics") or {}).get(split) or {}
        order = dict.fromkeys([str(spread.get("metric")), *dict(headline_metrics(folder.run))])
        keys = [key for key in order if key in known]
        rows: list[list[object]] = [
            [f"seed {seed}{', kept' * (seed == best)}",
             *(numbers.metric(run["metrics"][split][key]) for key in keys)]
            for seed, run in spread["runs"].items() if keys
        ]  # fmt: skip
        rows += [
            [name, *(numbers.metric(known[key][name]) for key in keys)]
            for name in ("mean", "deviation") if keys
        ]  # fmt: skip
        tables.append(Table(["", *map(heading_of, keys)], rows, title=f"On {split}"))
    failed = list((spread.get("failed") or {}).items())
    return section(
        "Seeds",
        *texts("seeds", count=len(spread["runs"]), best=best, metric=heading_of(spread["metric"])),
        Table(["failed seed", "error"], failed, 2),
        *tables,
    )


def training(folder: RunFolder) -> Section | None:
    """Return loss, learning rate, dev metrics and gradient norm over the steps, and throughput."""
    run, dev = folder.run, folder.evaluations
    if not folder.steps and not dev:
        return None
    charts: dict[str, Any] = {}
    if folder.steps:
        plot = plots.loss_curve(folder.steps, dev, **_loss_names(folder))
        caption = "Training loss, dev loss, learning rate. The first steps may be above the range."
        charts["loss"] = (plot, caption)
    measured = {key for line in dev for key, value in line["metrics"].items() if value is not None}
    if "perplexity" in measured:
        plot = plots.metric_curves(dev, [("perplexity", "perplexity")], ylabel="dev perplexity")
        charts["perplexity"] = (plot, "Perplexity on held-out text.")
    columns = [(k, name) for k, name in headline_metrics(run) if k in measured - {*FALLING}]
    best = run.get("best") or {}
    if columns:
        caption = "Metrics on dev."
        if best.get("step") is not None:
            caption += f" The weights of step {best['step']:,} were kept."
        plot = plots.metric_curves(dev, columns, kept_step=best.get("step"))
        charts["dev_metric"] = (plot, caption)
    if any((line.get("grad_norm") or 0) > 0 for line in folder.steps):
        plot = plots.gradient_curve(folder.steps, (run.get("options") or {}).get("clip"))
        caption = "Norm of the gradient before clipping. A rising norm is a sign of instability."
        charts["grad_norm"] = (plot, caption)
    return section("Training", throughput(run), gallery(folder.path, charts))


def _loss_names(folder: RunFolder) -> dict[str, str]:
    """Return the keys of the loss and of the dev metric to compare it with, and the axis label."""
    if folder.problem == "pretraining" and not folder.run.get("teacher"):
        return {"key": "mlm_loss", "dev_key": "mlm_loss", "ylabel": "loss (nats per masked word)"}
    if "label_loss" in folder.steps[0]:
        return {"key": "label_loss"}
    if any(line["metrics"].get("mse") is not None for line in folder.evaluations):
        return {"dev_key": "mse", "ylabel": "mean squared error"}
    return {}


def lengths(folder: RunFolder) -> Section | None:
    """Return the labels, rows, tokens, lengths and cut rows of every split."""
    data: dict[str, dict[str, Any]] = folder.run.get("data") or {}
    if not data:
        return None
    labelled, rows = any(facts.get("label_counts") for facts in data.values()), []
    for split, facts in data.items():
        num_rows, cut = facts.get("rows"), facts.get("truncated")
        share = f" ({numbers.percent(cut / num_rows)})" if cut and num_rows else ""
        known = [n for n in facts.get("lengths") or () if n is not None]
        quantiles = [f"{q:,.0f}" for q in np.quantile(known, _QUANTILES)] if known else [""] * 5
        rows.append([
            split, *[label_counts(facts.get("label_counts") or {})] * labelled,
            numbers.count(num_rows), numbers.count(facts.get("tokens")), *quantiles,
            numbers.count(cut) + share,
        ])  # fmt: skip
    shares = [f"{share}\N{NO-BREAK SPACE}%" for share in (90, 95, 99)]
    head = ["split", *["labels"] * labelled, "rows", "tokens", "median", *shares, "longest"]
    limit = next((f["max_length"] for f in data.values() if f.get("max_length")), None)
    remark = f"Lengths are in tokens, before cutting. {overflow(folder, limit)}"
    return section("Data and lengths", Table([*head, "rows cut"], rows, 1 + labelled), remark)


def corpora(folder: RunFolder) -> Section | None:
    """Return documents, sentences and tokens of the splits of pre-training, and the vocabulary."""
    run, data = folder.run, folder.run.get("data") or {}
    if not data:
        return None
    counted = ("documents", "sentences", "tokens")
    rows = [
        [split, facts.get("path", ""), *(numbers.count(facts.get(key)) for key in counted)]
        for split, facts in data.items()
    ]
    read, corpus = run.get("tokens"), (data.get("train") or {}).get("tokens")
    remark = ""
    if read and corpus:
        remark = (
            f"Training read {read:,} tokens, special tokens included: {read / corpus:.1f} times "
            "the corpus."
        )
    tokenizer = run.get("tokenizer") or {}
    if tokenizer.get("vocab_size"):
        remark += f" {tokenizer['vocab_size']:,} vocabulary entries ({tokenizer.get('kind')})."
    return section("Text", Table(["split", "corpus", *counted], rows, 2), remark)


def overflow(folder: RunFolder, max_length: int | None) -> str:
    """Return how texts beyond `max_length` tokens were treated."""
    rule = (folder.run.get("options") or {}).get("on_overflow", "truncate")
    if folder.problem in ("tagging", "span_qa"):
        rule = "window"
    return " ".join(texts("overflow", rule=rule, length=max_length)) if max_length else ""


def label_counts(counts: dict[str, int]) -> str:
    """Return `ok 3,611 (90.3 %) · toxic 389 (9.7 %)`; only the most frequent of many."""
    total = sum(counts.values())
    frequent = sorted(counts, key=lambda label: -counts[label])[:MOST_LABEL_COUNTS]
    shown = [
        f"{label} {n:,} ({numbers.percent(n / total)})"
        for label, n in counts.items()
        if label in frequent and total
    ]
    more = len(counts) - len(frequent)
    return " · ".join(shown + [f"and {more} more"] * bool(more))


def provenance(folder: RunFolder) -> Section:
    """Return what is needed to repeat the run: command, machine, versions, options and hashes."""
    run = folder.run
    model, options = run.get("model") or {}, run.get("options") or {}
    when = {key: run.get(key) for key in ("command", "started", "finished")}
    for key in ("seconds", "tokenise_seconds", "training_seconds"):
        if run.get(key) is not None:
            when[key.replace("seconds", "duration")] = numbers.seconds(run[key])
    precision = {key: run.get(key) for key in ("precision", "precision_reason", "temperature")}
    tables = [
        facts_table(when, "Run"),
        facts_table((run.get("device") or {}) | precision, "Machine"),
        facts_table({"filbert": run.get("filbert")} | (run.get("versions") or {}), "Versions"),
        facts_table({key: value for key, value in model.items() if key != "config"}, "Model"),
        facts_table({key: options[key] for key in MATTER if options.get(key)}, "Options"),
        hashes_table((run.get("data") or {}).items()),
    ]
    every = {"fingerprint": run.get("fingerprint"), "options": options, "model": model}
    everything = every | {"teacher": run.get("teacher") or {}}
    return section(
        "How it was made",
        side_by_side(tables),
        facts_table(everything, "Everything else that is recorded", folded=True),
    )
