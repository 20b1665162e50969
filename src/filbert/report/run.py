"""The HTML report of a run folder: header, results, seeds, training, data and provenance."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from filbert.report import numbers, plots, predictions, pretraining
from filbert.report.folder import SPLITS, RunFolder, headline_split, read_run_folder
from filbert.report.render import (
    Cell,
    Section,
    Table,
    draw,
    facts_table,
    section,
    write_page,
)
from filbert.report.table import (
    FALLING,
    all_columns,
    best_values,
    heading_of,
    is_better,
    model_name,
    result_rows,
    short_columns,
)
from filbert.report.worst_errors import worst_errors

MOST_LABEL_COUNTS = 8
MOST_SEED_PLOTS = 5


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
    if pretraining.is_pretraining(folder.run):
        template = "pretraining_sections.html"
        found = [make(folder) for make in pretraining.SECTIONS]
        what: Any = "distillation" if folder.run.get("teacher") else "pre-training"
        headline, facts = pretraining.headline(folder), pretraining.headline_facts(folder)
    else:
        template = "run_sections.html"
        found = [results(folder), seeds(folder), training(folder)]
        found += [make(folder) for make in predictions.SECTIONS]
        found += [lengths(folder), worst_errors(folder, show_texts=show_texts)]
        what = folder.run.get("task")
        headline = f"{verdict(folder.run)} {spread_of_seeds(folder.run)}"
        facts = headline_facts(folder.run)
    return write_page(
        folder.path / "report.html",
        "report.html",
        title=title_of(folder),
        about=[
            f"filbert {folder.run.get('filbert', '')}".strip(),
            what,
            folder.run.get("finished"),
        ],
        headline=[headline],
        notes=_notes(folder),
        facts=facts,
        sections=[*(one for one in found if one is not None), provenance(folder)],
        sections_template=template,
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
    return f"{text}{less}, {abs(value - theirs):.3f} {side} {best.name} ({theirs:.3f})."


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
    return section(
        "results",
        "Results",
        table=Table(head, rows, css_class="results"),
        every=Table(["metric", *measured], every, css_class="dense"),
        num_rows=numbers.count(((run.get("data") or {}).get(split) or {}).get("rows")),
        split=split,
        temperature=run.get("temperature"),
        left_out={name: m["left_out"] for name, m in measured.items() if m.get("left_out")},
    )


def seeds(folder: RunFolder) -> Section | None:
    """Mean, standard deviation and every value of several seeds; the kept and the failed ones."""
    spread = folder.run.get("seeds")
    if not spread or not spread.get("runs"):
        return None
    splits, figures = [], {}
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
        panels = [
            (heading_of(key), [(seed, own[at]) for seed, own in values.items()])
            for at, key in enumerate(keys[:MOST_SEED_PLOTS])
        ]
        best = str(spread["best"])
        figures[f"seeds_{split}"] = plots.seed_dots(panels, best, f"{split} metric")
        rows: list[list[object]] = [
            [Cell(f"seed {seed}, kept" if seed == best else f"seed {seed}", strong=seed == best),
             *map(numbers.metric, own)]
            for seed, own in values.items()
        ]  # fmt: skip
        rows += [
            [name, *(numbers.metric(known[key][name]) for key in keys)]
            for name in ("mean", "deviation")
        ]
        splits.append((split, Table(["", *map(heading_of, keys)], rows, css_class="dense")))
    failed = Table(["seed", "error"], list((spread.get("failed") or {}).items()), 2)
    return section(
        "seeds",
        "Seeds",
        num_runs=len(spread["runs"]),
        best=spread["best"],
        metric=heading_of(str(spread["metric"])),
        best_value=spread.get("best_value"),
        failed=failed,
        splits=splits,
        figures=draw(folder.path, figures),
    )


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
    figures = {}
    is_squared = folder.problem in ("regression", "embedding") and any(
        line["metrics"].get("mse") is not None for line in dev
    )
    if folder.steps:
        figures["loss"] = plots.loss_curve(
            folder.steps,
            dev,
            dev_key="mse" if is_squared else "loss",
            ylabel="mean squared error" if is_squared else "loss (nats)",
        )
    columns = [(key, heading) for key, heading in short_columns(run) if key not in FALLING]
    best = run.get("best") or {}
    if dev and columns:
        figures["dev_metric"] = plots.metric_curves(dev, columns, kept_step=best.get("step"))
    if any((line.get("grad_norm") or 0) > 0 for line in folder.steps):
        clip = (run.get("options") or {}).get("clip")
        figures["grad_norm"] = plots.gradient_curve(folder.steps, clip)
    throughput = []
    if run.get("steps") is not None:
        throughput.append(f"{run['steps']:,} steps")
    if run.get("epochs") is not None:
        throughput.append(f"{run['epochs']:g} epochs")
    if run.get("tokens_per_second") is not None:
        throughput.append(f"{run['tokens_per_second']:,.0f} tokens/s")
    if run.get("fill") is not None:
        throughput.append(f"{numbers.percent(run['fill'])} of the computed tokens are real tokens")
    images = draw(folder.path, figures)
    return section("training", "Training", throughput=throughput, figures=images, best=best)


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
        figures["lengths"] = plot
    quantiles = [
        [split, *(f"{round(float(q)):,}" for q in np.quantile(values, [0, 0.5, 0.9, 0.99, 1]))]
        for split, values in known.items()
        if values
    ]
    return section(
        "lengths",
        "Data and lengths",
        table=table,
        rule=rule,
        figures=draw(folder.path, figures),
        num_sampled=len(known[sampled]) if sampled else 0,
        sampled=sampled,
        quantiles=Table(["tokens", "minimum", "median", "90 %", "99 %", "maximum"], quantiles),
    )


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
        ("Run", facts_table(when)),
        ("Machine", facts_table(device)),
        ("Versions", facts_table(versions)),
        ("Model", facts_table(model | ((run.get("model") or {}).get("config") or {}))),
        ("Options", facts_table(options)),
        ("Data files and the sha256 of their bytes", Table((), hashes, 2, "pairs")),
    ]
    return section("provenance", "How it was made", tables=tables)
