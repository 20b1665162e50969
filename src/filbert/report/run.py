"""The HTML report of a run folder: header, results, seeds, training, data and provenance."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from filbert.report import numbers, plots, predictions
from filbert.report.folder import SPLITS, RunFolder, headline_split, read_run_folder
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
from filbert.report.table import (
    FALLING,
    all_columns,
    best_values,
    difference_lines,
    heading_of,
    interval_of,
    is_better,
    is_significant,
    model_name,
    result_rows,
    short_columns,
)
from filbert.report.worst_errors import worst_errors

MOST_LABEL_COUNTS = 8


def write_run_report(run_folder: Path, *, show_texts: bool = False) -> Path:
    """Write plots/*.png and report.html into a run folder and return the path of the page.

    Only files of the run folder are read. Sections that lack their data are left out.

    Args:
        run_folder: Written by `filbert finetune`, `filbert distill` or `filbert pretrain`.
        show_texts: Also show the texts of the worst errors. They are read from the data file that
            run.json names, if its sha256 is unchanged. Otherwise the page shows no text of the
            data and no answer.

    Raises:
        InputError: There is no run.json.
        FormatError: A file is damaged.
    """
    folder = read_run_folder(Path(run_folder))
    run = folder.run
    if folder.is_pretraining:
        from filbert.report import pretraining

        found = [make(folder) for make in pretraining.SECTIONS]
        what: Any = "distillation" if run.get("teacher") else "pre-training"
        headline, facts = pretraining.headline(folder), pretraining.headline_facts(folder)
    else:
        found = [results(folder), seeds(folder), training(folder)]
        if folder.rows:
            found += [make(folder) for make in predictions.SECTIONS.get(folder.problem or "", ())]
        found += [lengths(folder), worst_errors(folder, show_texts=show_texts)]
        what = run.get("task")
        headline, facts = f"{verdict(run)} {spread_of_seeds(run)}", headline_facts(run)
    return write_page(
        folder.path / "report.html",
        title=title_of(folder),
        about=[f"filbert {run.get('filbert', '')}".strip(), what, run.get("finished")],
        headline=[headline],
        notes=_notes(folder),
        facts=facts,
        sections=[*(one for one in found if one is not None), provenance(folder)],
        main_class="",
    )


def title_of(folder: RunFolder) -> str:
    """The run's name; for several seeds the name of their folder, not that of the kept seed."""
    if folder.run.get("seeds"):
        return folder.path.resolve().name
    return str(folder.run.get("name") or model_name(folder.run))


def _notes(folder: RunFolder) -> list[str]:
    run = folder.run
    if run.get("status") in (None, "done"):
        return folder.notes
    text = f"Status of this run: {run['status']}."
    if run.get("steps") is not None:
        text += f" Steps made: {run['steps']:,}."
    if (run.get("best") or {}).get("step") is not None:
        text += f" The weights of step {run['best']['step']:,} were kept."
    return [text, *folder.notes]


def headline_facts(run: dict[str, Any]) -> list[tuple[str, str]]:
    """(name, value) of the headline metrics, the duration and the number of parameters."""
    split = headline_split(run)
    metrics = run["metrics"][split] if split else {}
    facts = [
        (heading, numbers.metric(metrics[key]))
        for key, heading in short_columns(run)[:4]
        if metrics.get(key) is not None
    ]
    if run.get("seconds") is not None:
        facts.append(("time", numbers.seconds(run["seconds"])))
    if (run.get("model") or {}).get("parameters") is not None:
        facts.append(("parameters", numbers.parameters(run["model"]["parameters"])))
    return facts


def verdict(run: dict[str, Any]) -> str:
    """One sentence: the first headline metric and its difference from the best baseline."""
    split = headline_split(run)
    model, *baselines = result_rows(run)
    if split is None:
        return f"{model.name} was trained; nothing was measured, as no dev or test rows were given."
    defined = [column for column in short_columns(run) if model.metrics.get(column[0]) is not None]
    if not defined:
        return f"{model.name} was measured on {split}; no headline metric is defined on these rows."
    key, heading = defined[0]
    num_rows = ((run.get("data") or {}).get(split) or {}).get("rows")
    rows = f"{num_rows:,} {split} rows" if num_rows else f"the {split} rows"
    value = round(model.metrics[key], 3)
    text = f"{model.name} reaches {heading} {value:.3f} on {rows}"
    best = None
    for row in baselines:
        other = row.metrics.get(key)
        if other is not None and (best is None or is_better(key, other, best.metrics[key])):
            best = row
    if best is None:
        return f"{text}."
    # Both are rounded before subtracting, so that the three numbers of the sentence add up.
    theirs = round(best.metrics[key], 3)
    if value == theirs:
        return f"{text}, equal to {best.name} ({theirs:.3f})."
    side = "below" if value < theirs else "above"
    less = " (less is better)" if key in FALLING else ""
    text = f"{text}{less}, {abs(value - theirs):.3f} {side} {best.name} ({theirs:.3f})"
    interval = interval_of(run, best.name, key)
    if not interval:
        return f"{text}."
    outcome = "" if is_significant(interval) else ", not statistically significant on these rows"
    return f"{text}; difference with 95 % interval {interval}{outcome}."


def results(folder: RunFolder) -> Section | None:
    """The model and its baselines, then every metric of every split."""
    run, split = folder.run, folder.headline_split
    if split is None:
        return None
    columns, best = all_columns(run), best_values(run)
    rows = []
    for row in result_rows(run):
        values = [(row.metrics.get(key), key) for key, _ in columns]
        cells = [
            Cell(numbers.metric(value), strong=value is not None and value == best[key])
            for value, key in values
        ]
        duration = numbers.MISSING if row.seconds is None else f"{row.seconds:,.1f}"
        name = Cell(row.name, strong=row.is_model)
        rows.append([name, *cells, duration, numbers.parameters(row.parameters)])
    head = ["model", *(heading for _, heading in columns), "seconds", "parameters"]
    measured = {name: metrics for name, metrics in run["metrics"].items() if metrics}
    keys: dict[str, None] = {}
    for metrics in measured.values():
        keys |= {k: None for k, v in metrics.items() if not isinstance(v, (dict, list))}
    every = [[key, *(numbers.metric(m.get(key)) for m in measured.values())] for key in keys]
    num_rows = numbers.count(((run.get("data") or {}).get(split) or {}).get("rows"))
    remark = f"Measured on {num_rows} {split} rows. The best value of a column is bold."
    if split == "dev":
        remark += " The model was chosen on these rows, so expect a slightly lower quality on new "
        remark += "rows."
    temperature, compared = run.get("temperature"), difference_lines(run)
    return section(
        "Results",
        Table(head, rows, css_class="results"),
        remark,
        f"{'; '.join(compared)}. Brackets are 95 % bootstrap intervals." if compared else "",
        Table(["metric", *measured], every, css_class="dense", title="Every metric"),
        f"Temperature, fitted on dev: {numbers.metric(temperature)}." if temperature else "",
        *(
            f"Not part of the mean areas of {name}, because their rows have one class only: "
            f"{', '.join(metrics['left_out'])}."
            for name, metrics in measured.items()
            if metrics.get("left_out")
        ),
    )


def seeds(folder: RunFolder) -> Section | None:
    """Mean, standard deviation and every value of several seeds; the kept and the failed ones."""
    spread = folder.run.get("seeds")
    if not spread or not spread.get("runs"):
        return None
    best, value = str(spread["best"]), spread.get("best_value")
    about = (
        f"{len(spread['runs'])} seeds were trained. Seed {best} was kept: it is the best on dev by "
        f"{heading_of(str(spread['metric']))}"
        f"{'' if value is None else f' ({numbers.metric(value)})'}. The dev value of the best seed "
        "is biased upwards; the mean estimates the value of a new seed."
    )
    failed = Table(
        ["seed", "error"], list((spread.get("failed") or {}).items()), 2,
        title="Failed seeds, which are not part of these metrics",
    )  # fmt: skip
    tables = []
    for split in reversed(SPLITS):
        known = (spread.get("figures") or {}).get(split) or {}
        order = dict.fromkeys([str(spread.get("metric")), *dict(short_columns(folder.run))])
        keys = [key for key in order if key in known]
        if not keys:
            continue
        values = {
            seed: [float(run["metrics"][split][key]) for key in keys]
            for seed, run in spread["runs"].items()
        }
        rows: list[list[object]] = [
            [Cell(f"seed {seed}, kept" if seed == best else f"seed {seed}", strong=seed == best),
             *map(numbers.metric, own)]
            for seed, own in values.items()
        ]  # fmt: skip
        rows += [
            [name, *(numbers.metric(known[key][name]) for key in keys)]
            for name in ("mean", "deviation")
        ]
        head = ["", *map(heading_of, keys)]
        tables.append(Table(head, rows, css_class="dense", title=f"On {split}"))
    return section("Seeds", paragraph(about, ""), failed, *tables)


def spread_of_seeds(run: dict[str, Any]) -> str:
    """Mean and standard deviation over the seeds for the headline; empty for a single seed."""
    spread = run.get("seeds") or {}
    dev = ((spread.get("figures") or {}).get("dev") or {}).get(spread.get("metric"))
    if len(spread.get("runs") or ()) < 2 or not dev:
        return ""
    return (
        f"It is the best of {len(spread['runs'])} seeds on dev; over all seeds, the dev "
        f"{heading_of(spread['metric'])} is {dev['mean']:.3f} ± {dev['deviation']:.3f}."
    )


def training(folder: RunFolder) -> Section | None:
    """Loss, learning rate, dev metrics and gradient norm over the steps, and the throughput."""
    run, dev = folder.run, folder.dev_evaluations
    if not folder.steps and not folder.evaluations:
        return None
    figures: dict[str, Any] = {}
    is_squared = folder.problem in ("regression", "embedding") and any(
        line["metrics"].get("mse") is not None for line in dev
    )
    if folder.steps:
        dev_key, ylabel = ("mse", "mean squared error") if is_squared else ("loss", "loss (nats)")
        plot = plots.loss_curve(folder.steps, dev, dev_key=dev_key, ylabel=ylabel)
        figures["loss"] = (plot, "Training loss, dev loss and learning rate.")
    metrics = [(key, heading) for key, heading in short_columns(run) if key not in FALLING]
    best = run.get("best") or {}
    if dev and metrics:
        caption = "Metrics on dev."
        if best.get("step") is not None:
            caption += f" The weights of step {best['step']:,} were kept: {best['metric']} "
            caption += f"{numbers.metric(best['value'])}."
        plot = plots.metric_curves(dev, metrics, kept_step=best.get("step"))
        figures["dev_metric"] = (plot, caption)
    figures |= plots.gradient_norm(folder.steps, (run.get("options") or {}).get("clip"))
    throughput = " · ".join(numbers.throughput(run))
    return section("Training", throughput, gallery(folder.path, figures))


def lengths(folder: RunFolder) -> Section | None:
    """Labels, rows, tokens and cut rows of every split; the histogram of lengths."""
    data = folder.run.get("data") or {}
    if not data:
        return None
    has_labels = any(facts.get("label_counts") for facts in data.values())
    # Usually there are as many sequences as rows; windows and choices make more of them.
    has_sequences = any(
        facts.get("sequences", facts.get("rows")) != facts.get("rows") for facts in data.values()
    )
    head = ["split", *(["labels"] * has_labels), "rows", *(["sequences"] * has_sequences)]
    rows = []
    for split, facts in data.items():
        num_rows, cut = facts.get("rows"), facts.get("truncated")
        share = f" ({numbers.percent(cut / num_rows)})" if cut and num_rows else ""
        # The labels of tagged sentences are those of entities, not of rows.
        total = None if folder.problem == "tagging" else num_rows
        cells: list[object] = [split]
        cells += [label_counts(facts.get("label_counts") or {}, total)] * has_labels
        cells.append(numbers.count(num_rows))
        cells += [numbers.count(facts.get("sequences"))] * has_sequences
        rows.append([*cells, numbers.count(facts.get("tokens")), numbers.count(cut) + share])
    table = Table([*head, "tokens", "rows cut"], rows, 1 + has_labels,
                  "counts" if has_labels else "plain")  # fmt: skip
    limit = next((facts["max_length"] for facts in data.values() if facts.get("max_length")), None)
    rule, beyond = overflow(folder, limit)
    known = {
        split: [length for length in facts.get("lengths") or () if length is not None]
        for split, facts in data.items()
    }
    sampled = next((split for split in ("train", "dev", "test") if known.get(split)), None)
    figures = {}
    if sampled is not None:
        # The lengths of a pair of texts are added, but each text is cut on its own.
        is_sum = folder.problem == "embedding"
        limit = None if is_sum else data[sampled].get("max_length")
        xlabel = _COUNTED.get(folder.problem or "", "tokens per text, before cutting")
        plot = plots.length_histogram(known[sampled], limit, beyond=beyond, xlabel=xlabel)
        figures["lengths"] = (plot, f"Lengths of {len(known[sampled]):,} {sampled} rows.")
    quantiles = [
        [split, *(f"{round(float(q)):,}" for q in np.quantile(values, [0, 0.5, 0.9, 0.99, 1]))]
        for split, values in known.items()
        if values
    ]
    head = ["tokens", "minimum", "median", "90 %", "99 %", "maximum"]
    by_length = Table(head, quantiles, title="Quantiles of the number of tokens")
    return section("Data and lengths", table, rule, gallery(folder.path, figures, by_length))


_COUNTED = {
    "embedding": "tokens of both texts, before cutting",
    "multiple_choice": "tokens with the longest choice, before cutting",
    "span_qa": "tokens of question and context",
    "tagging": "tokens per sentence",
}


def overflow(folder: RunFolder, max_length: int | None) -> tuple[str, str]:
    """How texts beyond `max_length` tokens were treated: a sentence and a word for the legend."""
    options = folder.run.get("options") or {}
    rule = options.get("on_overflow", "truncate")
    if folder.problem in ("tagging", "span_qa"):
        rule = "window"
    if max_length is None:
        return "", "cut"
    each = "Each text is a sequence of its own. " if folder.problem == "embedding" else ""
    texts = f"{each}Texts beyond {max_length} tokens"
    if rule == "window":
        has_stride = folder.problem != "tagging" and options.get("stride")
        stride = f" with a stride of {options['stride']} tokens" if has_stride else ""
        return f"{texts} were read whole, in windows{stride}.", "in windows"
    if rule == "error":
        return f"{texts} would have been refused.", "too long"
    lost = "middle" if rule == "head-tail" else "end"
    return f"{texts} lost their {lost} ({rule}).", "cut"


def label_counts(counts: dict[str, int], num_rows: int | None) -> str:
    """`ok 3,611 (90.3 %) · toxic 389 (9.7 %)` of the rows; only the most frequent of many."""
    total = num_rows or sum(counts.values())
    order = list(counts.items())
    if len(order) > MOST_LABEL_COUNTS:
        order.sort(key=lambda item: -item[1])
    shown = [
        f"{label} {n:,}" + (f" ({numbers.percent(n / total)})" if total else "")
        for label, n in order[:MOST_LABEL_COUNTS]
    ]
    if len(order) > MOST_LABEL_COUNTS:
        shown.append(f"and {len(order) - MOST_LABEL_COUNTS} more")
    return " · ".join(shown)


def provenance(folder: RunFolder) -> Section:
    """What is needed to repeat the run: command, machine, versions, options and data hashes."""
    run = folder.run
    options, device = run.get("options") or {}, dict(run.get("device") or {})
    when = {key: run[key] for key in ("command", "started", "finished") if run.get(key) is not None}
    if options.get("resume"):
        when["resumed"] = "yes, with --resume"
    for key, name in (("seconds", "duration"), ("tokenise_seconds", "duration of tokenising"),
                      ("training_seconds", "duration of training")):  # fmt: skip
        if run.get(key) is not None:
            when[name] = numbers.seconds(run[key])
    if run.get("fingerprint"):
        when["fingerprint"] = run["fingerprint"]
    if device.get("processes", 1) > 1 and options.get("distributed"):
        device["processes"] = f"{device['processes']} ({options['distributed']})"
    for key in ("precision", "precision_reason"):
        if run.get(key) is not None:
            device[key.replace("_", " ")] = run[key]
    model = {k: v for k, v in (run.get("model") or {}).items() if k not in ("config", "trained")}
    total, trained = model.get("parameters"), (run.get("model") or {}).get("trained")
    if isinstance(total, int):
        model["parameters"] = numbers.count(total)
        if isinstance(trained, int):
            model |= {"trained": numbers.count(trained), "frozen": numbers.count(total - trained)}
    hashes = [
        [split, Cell(facts.get("path", ""), code=facts.get("sha256", numbers.MISSING))]
        for split, facts in (run.get("data") or {}).items()
    ]
    versions = {"filbert": run.get("filbert", numbers.MISSING), **(run.get("versions") or {})}
    tables = [
        facts_table(when, "Run"),
        facts_table(device, "Machine"),
        facts_table(versions, "Versions"),
        facts_table(model | ((run.get("model") or {}).get("config") or {}), "Model"),
        facts_table(options, "Options"),
        Table((), hashes, 2, "pairs", title="Data files and the sha256 of their bytes"),
    ]
    return section("How it was made", side_by_side(tables))
