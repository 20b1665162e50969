"""Parts of the report that every task has: results, training, lengths, how it was made."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from filbert.report import canvas, numbers, page, training_plots
from filbert.report.folder import RunFolder
from filbert.report.page import Html, Section
from filbert.report.table import FALLING, all_columns, best_values, result_rows, short_columns

if TYPE_CHECKING:
    from matplotlib.figure import Figure

MOST_LABEL_COUNTS = 8


class Place(Protocol):
    """What has a folder: a run, a study."""

    @property
    def path(self) -> Path:
        """The folder."""
        ...


def drawn(folder: Place, name: str, figure: Figure, *, alt: str, caption: object) -> Html:
    """Save a figure as plots/`name`.png and give it as part of the page."""
    path = folder.path / "plots" / f"{name}.png"
    path.parent.mkdir(exist_ok=True)
    canvas.save(figure, path)
    return page.image(path, alt=alt, caption=caption, width=round(100 * canvas.WIDTH))


def results(folder: RunFolder) -> Section | None:
    """The model beside its baselines, then every metric of every split."""
    run, split = folder.run, folder.judged_split
    if split is None:
        return None
    columns = all_columns(run)
    best = best_values(run)
    lines = []
    for row in result_rows(run):
        values = [row.metrics.get(key) for key, _ in columns]
        figures = [
            page.element("strong", numbers.metric(value))
            if value is not None and value == best[key]
            else numbers.metric(value)
            for value, (key, _) in zip(values, columns, strict=True)
        ]
        name = page.element("strong", row.name) if row.is_model else row.name
        duration = numbers.MISSING if row.seconds is None else f"{row.seconds:,.1f}"
        lines.append([name, *figures, duration, numbers.parameters(row.parameters)])
    head = ["model", *(heading for _, heading in columns), "seconds", "parameters"]
    remark = (
        f"Measured on {_num_rows(run, split)} {split} rows. The best value of a column is bold."
    )
    if split == "dev":
        remark += " The model was chosen on these rows, so expect a little less on new ones."
    return page.section(
        "Results",
        page.table(head, lines, kind="results"),
        page.element("p", remark, class_="remark"),
        _every_metric(folder),
    )


def _every_metric(folder: RunFolder) -> Html:
    measured = {s: m for s, m in folder.run["metrics"].items() if m}
    keys: dict[str, None] = {}
    for metrics in measured.values():
        keys |= {k: None for k, v in metrics.items() if not isinstance(v, (dict, list))}
    rows = [[key, *(numbers.metric(m.get(key)) for m in measured.values())] for key in keys]
    parts = [page.element("h3", "Every metric"), page.table(["metric", *measured], rows)]
    if folder.run.get("temperature") is not None:
        parts.append(
            page.element(
                "p", "Fitted on dev: temperature ", numbers.metric(folder.run["temperature"]), ".",
                class_="remark",
            )
        )  # fmt: skip
    for split, metrics in measured.items():
        if metrics.get("left_out"):
            names = ", ".join(map(str, metrics["left_out"]))
            text = f"Not in the areas of {split}, as their rows hold one class only: {names}."
            parts.append(page.element("p", text, class_="remark"))
    return page.join(parts)


def training(folder: RunFolder) -> Section | None:
    """Loss, dev metrics and learning rate over the steps, and the pace."""
    run = folder.run
    if not folder.steps and not folder.evaluations:
        return None
    best = run.get("best") or {}
    figures = []
    dev = [line for line in folder.evaluations if line.get("split", "dev") == "dev"]
    if folder.steps:
        is_squared = folder.problem in ("regression", "embedding") and any(
            line["metrics"].get("mse") is not None for line in dev
        )
        plot = training_plots.loss_curve(
            folder.steps,
            dev,
            dev_key="mse" if is_squared else "loss",
            ylabel="mean squared error" if is_squared else "loss (nats)",
        )
        caption = "Loss while training, and the learning rate."
        alt = "Loss and learning rate over the training steps"
        figures.append(drawn(folder, "loss", plot, alt=alt, caption=caption))
    columns = [(key, heading) for key, heading in short_columns(run) if key not in FALLING]
    if dev and columns:
        caption = "Metrics on dev."
        if best.get("step") is not None:
            caption += (
                f" The weights of step {best['step']:,} were kept: {best.get('metric', 'metric')} "
                f"{numbers.metric(best.get('value'))}."
            )
        plot = training_plots.dev_metric_curves(dev, columns, best.get("step"))
        figures.append(
            drawn(folder, "dev_metric", plot, alt="Dev metrics over the steps", caption=caption)
        )
    if any((line.get("grad_norm") or 0) > 0 for line in folder.steps):
        clip = (run.get("options") or {}).get("clip")
        plot = training_plots.gradient_curve(folder.steps, clip)
        caption = "Length of the gradient before it is cut. Steady is good; a rise is a warning."
        alt = "Gradient norm over the steps"
        figures.append(drawn(folder, "grad_norm", plot, alt=alt, caption=caption))
    pace = [
        f"{run[key]:,.0f} {unit}"
        for key, unit in (("steps", "steps"), ("tokens_per_second", "tokens a second"))
        if run.get(key) is not None
    ]
    if run.get("epochs") is not None:
        pace.insert(1, f"{run['epochs']:g} epochs")
    if run.get("fill") is not None:
        pace.append(f"fill {numbers.percent(run['fill'])} (real tokens among all computed)")
    remark = page.element("p", " · ".join(pace), class_="remark") if pace else Html("")
    return page.section("Training", remark, page.gallery(figures))


def lengths(folder: RunFolder) -> Section | None:
    """How long the texts are, and what was cut."""
    data = folder.run.get("data") or {}
    if not data:
        return None
    has_labels = any(facts.get("label_counts") for facts in data.values())
    # As many sequences as rows is the usual case; windows and choices make more of them.
    has_sequences = any(facts.get("sequences", facts.get("rows")) != facts.get("rows")
                        for facts in data.values())  # fmt: skip
    rows = []
    for split, facts in data.items():
        num_rows, truncated = facts.get("rows"), facts.get("truncated")
        share = f" ({numbers.percent(truncated / num_rows)})" if truncated and num_rows else ""
        labels = label_counts(facts.get("label_counts") or {}, _counted(folder, facts))
        rows.append(
            [
                split,
                *([labels] if has_labels else []),
                numbers.count(num_rows),
                *([numbers.count(facts.get("sequences"))] if has_sequences else []),
                numbers.count(facts.get("tokens")),
                numbers.count(truncated) + share,
            ]
        )
    head = ["split", *(["labels"] if has_labels else []), "rows"]
    head += [*(["sequences"] if has_sequences else []), "tokens", "rows cut"]
    kind = "counts" if has_labels else "plain"
    parts = [page.table(head, rows, num_text_columns=1 + has_labels, kind=kind)]
    sampled = next((s for s in ("train", "dev", "test") if _known_lengths(data.get(s) or {})), None)
    limit = next((f["max_length"] for f in data.values() if f.get("max_length")), None)
    rule, beyond = overflow(folder, limit)
    if rule:
        parts.append(page.element("p", rule, class_="remark"))
    if sampled is not None:
        facts = data[sampled]
        found = _known_lengths(facts)
        # Both texts of a pair are sequences of their own, but counted together.
        is_sum = folder.problem == "embedding"
        plot = training_plots.length_histogram(
            found,
            None if is_sum else facts.get("max_length"),
            beyond=beyond,
            xlabel=_COUNTED.get(folder.problem or "", "tokens per text, before cutting"),
        )
        caption = f"Lengths of {len(found):,} {sampled} rows."
        alt = "Histogram of text lengths"
        figure = drawn(folder, "lengths", plot, alt=alt, caption=caption)
        parts.append(page.gallery([figure, _length_quantiles(data)]))
    return page.section("Data and lengths", *parts)


_COUNTED = {
    "embedding": "tokens of both texts, before cutting",
    "multiple_choice": "tokens with the longest choice, before cutting",
    "span_qa": "tokens of question and context",
    "tagging": "tokens per sentence",
}


def overflow(folder: RunFolder, max_length: int | None) -> tuple[str, str]:
    """What becomes of longer texts than the model is given: a sentence, and one word for it."""
    options = folder.run.get("options") or {}
    rule = options.get("on_overflow", "truncate")
    if folder.problem in ("tagging", "span_qa"):
        rule = "window"
    if max_length is None:
        return "", "cut"
    each = "Each text is a sequence of its own. " if folder.problem == "embedding" else ""
    if rule == "window":
        by = ""
        if folder.problem != "tagging" and options.get("stride"):
            by = f" that begin {options['stride']} tokens after each other"
        return f"Texts beyond {max_length} tokens were read whole, in windows{by}.", "in windows"
    if rule == "error":
        return f"{each}Texts beyond {max_length} tokens would have been refused.", "too long"
    lost = "middle" if rule == "head-tail" else "end"
    return f"{each}Texts beyond {max_length} tokens lost their {lost} ({rule}).", "cut"


def _counted(folder: RunFolder, facts: dict[str, Any]) -> int | None:
    """What label counts are shares of: rows, but entities in tagged sentences."""
    return None if folder.problem == "tagging" else facts.get("rows")


def _known_lengths(facts: dict[str, Any]) -> list[int]:
    return [length for length in facts.get("lengths") or () if length is not None]


def _length_quantiles(data: dict[str, Any]) -> Html:
    lines = []
    for split, facts in data.items():
        if _known_lengths(facts):
            marks = np.quantile(_known_lengths(facts), [0, 0.5, 0.9, 0.99, 1])
            lines.append([split, *(numbers.count(round(float(mark))) for mark in marks)])
    head = ["tokens", "shortest", "half", "90 %", "99 %", "longest"]
    remark = "Half, 90 % and 99 % of the texts are no longer than this."
    return page.element("div", page.table(head, lines), page.element("p", remark, class_="remark"))


def label_counts(counts: dict[str, int], num_rows: int | None) -> str:
    """`ok 3,611 (90.3 %) · toxic 389 (9.7 %)` of the rows; the most frequent if there are many."""
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


def making(folder: RunFolder) -> Section:
    """What another person needs to do the run again: options, versions, device, hashes."""
    run = folder.run
    options = run.get("options") or {}
    model = {k: v for k, v in (run.get("model") or {}).items() if k not in ("config", "trained")}
    total, trained = model.get("parameters"), (run.get("model") or {}).get("trained")
    if isinstance(total, int):
        model["parameters"] = numbers.count(total)
        if isinstance(trained, int):
            model["of them trained"] = numbers.count(trained)
            model["frozen"] = numbers.count(total - trained)
    when = {key: run[key] for key in ("command", "started", "finished") if run.get(key) is not None}
    if options.get("resume"):
        when["resumed"] = "yes: started with --resume"
    for key, name in (
        ("seconds", "duration"),
        ("tokenise_seconds", "of it tokenising"),
        ("training_seconds", "of it training"),
    ):
        if run.get(key) is not None:
            when[name] = numbers.seconds(run[key])
    if run.get("fingerprint"):
        when["fingerprint"] = page.element("code", run["fingerprint"])
    machine = dict(run.get("device") or {})
    if machine.get("processes", 1) > 1 and options.get("distributed"):
        machine["processes"] = f"{machine['processes']} ({options['distributed']})"
    for key in ("precision", "precision_reason"):
        if run.get(key) is not None:
            machine[key.replace("_", " ")] = run[key]
    hashes = {}
    for split, facts in (run.get("data") or {}).items():
        digest = page.element("code", facts.get("sha256", numbers.MISSING))
        hashes[split] = page.join([facts.get("path", ""), Html("<br>"), digest])
    versions = {"filbert": run.get("filbert", numbers.MISSING), **(run.get("versions") or {})}
    blocks = [
        block("Run", when),
        block("Machine", machine),
        block("Versions", versions),
        block("Model", model | ((run.get("model") or {}).get("config") or {})),
        block("Options", options),
        block("Data files, with the sha256 of their bytes", hashes),
    ]
    return page.section("How it was made", page.element("div", page.join(blocks), class_="columns"))


def block(title: str, values: dict[str, Any]) -> Html:
    """A heading and a table of name and value; nothing without values."""
    if not values:
        return Html("")
    return page.element("div", page.element("h3", title), page.pairs(_readable(values.items())))


def _readable(items: Iterable[tuple[str, Any]]) -> Iterable[tuple[str, object]]:
    for key, value in items:
        if isinstance(value, (list, tuple)):
            yield key, ", ".join(map(str, value)) or numbers.MISSING
        elif isinstance(value, dict):
            yield key, ", ".join(f"{k} {v}" for k, v in value.items()) or numbers.MISSING
        else:
            yield key, numbers.MISSING if value is None else value if value != "" else '""'


def _num_rows(run: dict[str, Any], split: str) -> str:
    return numbers.count(((run.get("data") or {}).get(split) or {}).get("rows"))
