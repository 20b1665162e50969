"""Part of a study's report: students and quantised models beside what they were made from."""

from __future__ import annotations

from typing import Any

from filbert.report import numbers, page
from filbert.report.comparison_contestant import Contestant
from filbert.report.comparison_sections import remark
from filbert.report.comparison_study import Study
from filbert.report.comparison_tables import bytes_, cost, cost_text, pair_cells
from filbert.report.comparison_words import figure, named, times
from filbert.report.page import Html, Section


def students(study: Study) -> Section | None:
    """What is kept of a teacher's quality, and what is saved; with the model that was chosen."""
    shares = {one.name: share_of(one) for one in study.measured if share_of(one)}
    if not shares:
        return None
    key, heading = study.decisive
    by_name = {one.name: one for one in study.measured}
    lines: list[list[object]] = []
    references = list(dict.fromkeys(str(share["of"]) for share in shares.values()))
    for reference in references:
        first = by_name[reference]
        lines.append([Html(f"<strong>{page.safe(first.name)}</strong>"), *_own(study, first)])
        for one in study.measured:
            if shares.get(one.name, {}).get("of") == reference:
                lines.append([one.name, *_beside(study, one, first, shares[one.name])])
    head = [
        "contestant", "made", heading, f"share, {study.level} interval", "differs by",
        f"{study.level} interval", "compute", "rows/s", "against", "one text", "on disk", "weights",
        "training in all",
    ]  # fmt: skip
    text = (
        f"The share is that of the {heading} of {' or '.join(named(r) for r in references)}: "
        "means of the seeds, on the test rows; its interval is over rows, and over seeds where "
        "there are several. The difference is of the seeds that are best on dev, tested as above. "
        "Compute: of the encoder's matrix products for a row, in whatever format, against that of "
        "the first line. One text: the median time of a single text. Weights: of the loaded "
        "model. Training in all: with that of what it is made from; without, it stands in the "
        "table of costs."
    )
    parts: list[object] = []
    choice = study.results.get("choice")
    if choice:
        parts.append(page.element("p", choice["why"], class_="verdict"))
    table = page.table(head, lines, num_text_columns=2, kind="ranking")
    return page.section("Teacher and students", *parts, table, remark(text))


def share_of(one: Contestant) -> dict[str, Any]:
    """Of whom, value, low, high; empty where it is compared with nobody so."""
    return one.entry.get("share") or {}


def _own(study: Study, one: Contestant) -> list[object]:
    value = figure(one.value(study.decisive[0]), study.digits)
    cells: list[object] = [_made(one), value, *[numbers.MISSING] * 3, cost(one, "flops_per_row")]
    cells.append(cost(one, "rows_per_second"))
    return [*cells, numbers.MISSING, *_sizes(study, one)]


def _beside(
    study: Study, one: Contestant, first: Contestant, share: dict[str, Any]
) -> list[object]:
    key = study.decisive[0]
    kept = numbers.MISSING
    if share.get("value") is not None:
        kept = numbers.percent(share["value"])
        if share.get("low") is not None:
            kept += f" [{numbers.percent(share['low'])}, {numbers.percent(share['high'])}]"
    difference, ends, _, _ = pair_cells(study.pair(one.name, first.name, key), study.digits)
    mine, theirs = (c.cost("rows_per_second") for c in (one, first))
    ratio = times(mine / theirs) if mine and theirs else numbers.MISSING
    mine, theirs = (c.cost("flops_per_row") for c in (one, first))
    compute = numbers.percent(mine / theirs) if mine and theirs else numbers.MISSING
    value = figure(one.value(key), study.digits)
    cells: list[object] = [_made(one), value, kept, difference, ends, compute]
    cells.append(cost(one, "rows_per_second"))
    return [*cells, ratio, *_sizes(study, one)]


def _sizes(study: Study, one: Contestant) -> list[object]:
    return [
        cost(one, "latency_seconds"),
        cost(one, "bytes_on_disk"),
        bytes_(one.cost("weight_bytes")),
        cost_text("training_seconds", training_in_all(study, one)),
    ]


def training_in_all(study: Study, one: Contestant) -> float | None:
    """Seconds of its training and of all that it is made from; None where one is not known."""
    by_name = {other.name: other for other in study.contestants}
    seconds = one.cost("training_seconds")
    if one.entry.get("kind") == "quantised":
        seconds = 0.0
    source = by_name.get(str(one.entry.get("source")))
    if source is None or seconds is None:
        return seconds
    before = training_in_all(study, source)
    return None if before is None else seconds + before


def _made(one: Contestant) -> str:
    """How: fine-tuned, distilled (soft), int8 by torch."""
    kind, options = str(one.entry.get("kind")), one.entry.get("options") or {}
    if kind == "distilled":
        return f"distilled, {options.get('method', 'soft')}"
    if kind == "quantised":
        return f"{options.get('precision')}, {options.get('backend')}"
    return "fine-tuned" if kind == "encoder" else kind
