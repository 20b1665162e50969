"""Parts of a study's report about its making: data, what failed, options, hashes, machine."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from filbert.report import comparison_plots, numbers, page
from filbert.report.comparison_sections import folded, remark
from filbert.report.comparison_study import Study
from filbert.report.page import Html, Section
from filbert.report.sections import block, drawn, label_counts

# What `compare` calls its findings, in words.
NEAR = {
    "rule": "near-duplicates",
    "clusters": "groups of rows that nearly repeat each other",
    "rows in clusters": "rows in such groups",
    "dev like train": "dev rows that nearly repeat a training row",
    "test like train": "test rows that nearly repeat a training row",
    "dev like train other label": "such dev rows with another label",
    "test like train other label": "such test rows with another label",
    "test like dev": "test rows that nearly repeat a dev row",
    "test like dev other label": "such test rows with another label than the dev row",
}
RULES = {
    "together": "kept together in one split",
    "together but for the test rows": "kept together in train or dev; test rows as given",
    "report": "counted, not moved",
    "ignore": "not looked for",
}
SPLITS = ("train", "dev", "test")
MOST_LISTED = 12


def data(study: Study) -> Section | None:
    """Rows and classes of the splits, and what the splits share."""
    facts = study.results.get("data") or {}
    splits = {split: facts[split] for split in SPLITS if facts.get(split)}
    if not splits:
        return None
    lines = [
        [
            split,
            label_counts(found.get("label_counts") or {}, found.get("rows")),
            numbers.count(found.get("rows")),
        ]
        for split, found in splits.items()
    ]
    labels = study.labels or list(next(iter(splits.values())).get("label_counts") or {})
    counts = {
        split: [int((found.get("label_counts") or {}).get(label, 0)) for label in labels]
        for split, found in splits.items()
    }
    figures: list[Html] = []
    if any(sum(values) for values in counts.values()):
        plot = comparison_plots.class_balance(labels, counts)
        caption = "Share of each label in the splits."
        figures.append(drawn(study, "balance", plot, caption=caption, alt="Labels of each split"))
    shared = [
        (NEAR.get(name, name), RULES.get(str(value), value) if name == "rule" else value)
        for name, value in _flat(facts.get("near_duplicates") or {})
    ]
    if shared:
        title = page.element("h3", "Near-duplicates and leakage")
        figures.append(page.element("div", title, page.pairs(shared[: 3 * MOST_LISTED])))
    table = page.table(["split", "labels", "rows"], lines, num_text_columns=2, kind="counts")
    return page.section("Data", table, page.gallery(figures))


def failures(study: Study) -> Section | None:
    """Contestants and runs that failed, with their sentence; and those that are not made yet."""
    lines: list[list[object]] = []
    for one in study.contestants:
        state = str(one.entry.get("status") or "missing")
        told = {str(run.get("error")) for run in one.seeds if run.get("error")}
        runs = [run for run in one.seeds if run.get("status") not in (None, "finished", "done")]
        if state != "finished" or not one.is_measured:
            why = one.entry.get("error") or " / ".join(sorted(told)) or _not_made(state)
            lines.append([one.name, state, why])
        else:
            for run in runs:
                status = str(run["status"])
                why = run.get("error") or _not_made(status)
                lines.append([f"{one.name}, seed {run.get('seed')}", status, why])
    if not lines:
        return None
    text = "These are no part of any figure above. The others were compared without them."
    head = ["contestant", "state", "what happened"]
    table = page.table(head, lines, num_text_columns=3, kind="failures")
    return page.section("Failed and missing", table, remark(text))


def _not_made(status: str) -> str:
    return "It failed." if status == "failed" else "Not made yet."


def making(study: Study) -> Section:
    """What another person needs to do the study again: options, hashes, versions, machine."""
    results = study.results
    facts = results.get("data") or {}
    hashes: dict[str, Any] = {}
    for source in facts.get("source") or ():
        digest = page.element("code", source.get("sha256", numbers.MISSING))
        rows = f"{numbers.count(source.get('rows'))} rows" if source.get("rows") else ""
        # Two files of one name may lie in different folders.
        name = ": ".join(str(source[key]) for key in ("of", "path") if source.get(key))
        hashes[name or "source"] = page.join([rows, page.Html("<br>"), digest])
    for split in SPLITS:
        if facts.get(split):
            hashes[split] = page.element("code", facts[split].get("sha256", numbers.MISSING))
    when = {
        "filbert": results.get("filbert"),
        "task": results.get("task"),
        "positive label": results.get("positive"),
        "labels": results.get("labels"),
        "finished": results.get("finished") or "not yet",
        **_timings(study),
    }
    shown = [
        block("Study", {key: value for key, value in when.items() if value is not None}),
        block("Machine", dict(_flat(results.get("machine") or {}))),
        block("Options", dict(_flat(results.get("options") or {}))),
        block("Data, with the sha256 of its bytes", hashes),
    ]
    for one in study.contestants:
        own = {"kind": one.entry.get("kind"), "cleaning": one.entry.get("cleaning") or "none"}
        if one.entry.get("best_seed") is not None:
            own["seed best on dev"] = one.entry["best_seed"]
        shown.append(block(one.name, own | dict(_flat(one.entry.get("options") or {}))))
    columns = page.element("div", page.join(shown), class_="columns")
    return page.section("How it was made", columns, _effective(study))


def _effective(study: Study) -> Html:
    """The options that the runs had, defaults and what was chosen on dev included."""
    known = [one for one in study.contestants if one.entry.get("effective")]
    names = list(dict.fromkeys(key for one in known for key in one.entry["effective"]))
    if not known:
        return Html("")
    lines: list[list[object]] = []
    for one in known:
        shown = dict(_flat(one.entry["effective"]))
        cells = [shown.get(name.replace("_", " "), numbers.MISSING) for name in names]
        lines.append([one.name, *cells])
    head = ["contestant", *(name.replace("_", " ") for name in names)]
    return folded("Options in effect, with defaults", page.table(head, lines, kind="dense"))


def _timings(study: Study) -> dict[str, str]:
    runs = [run for one in study.contestants for run in one.seeds]
    seconds = [(run.get("costs") or {}).get("training_seconds") for run in runs]
    known = [float(value) for value in seconds if value is not None]
    if not known:
        return {}
    return {"training of all runs": f"{numbers.seconds(sum(known))} ({len(known):,} runs)"}


def _flat(values: dict[str, Any], before: str = "") -> Iterator[tuple[str, Any]]:
    """Nested facts as (name, value), readable: "between splits: train and test"."""
    for key, value in values.items():
        name = f"{before}{str(key).replace('_', ' ')}"
        if isinstance(value, dict):
            yield from _flat(value, f"{name}: ")
        elif isinstance(value, list) and any(isinstance(item, (list, dict)) for item in value):
            yield name, f"{len(value):,} entries"
        elif isinstance(value, list) and len(value) > MOST_LISTED:
            first = ", ".join(map(str, value[:MOST_LISTED]))
            yield name, f"{first} and {len(value) - MOST_LISTED:,} more"
        elif isinstance(value, bool):
            yield name, "yes" if value else "no"
        elif isinstance(value, float):
            yield name, f"{value:g}"
        elif isinstance(value, int) and abs(value) >= 10_000:
            yield name, numbers.count(value)
        else:
            yield name, value
