"""The study's figures in rows: the ranking, every pair, the costs; on the page and as Markdown."""

from __future__ import annotations

from collections.abc import Iterable

from filbert.report import numbers, page
from filbert.report.comparison_contestant import Contestant
from filbert.report.comparison_study import FALLING, Pair, Study
from filbert.report.comparison_words import (
    NOT_TOLD,
    TOLD,
    figure,
    interval,
    level_with,
    probability,
    signed,
)
from filbert.report.page import Html

# Of an interval beside the mean only these have room; the others stand under "every figure".
COSTS = (
    ("training_seconds", "training"),
    ("cpu_seconds", "processor time"),
    ("rows_per_second", "rows/s"),
    ("latency_seconds", "one text"),
    ("flops_per_row", "compute"),
    ("parameters", "parameters"),
    ("bytes_on_disk", "on disk"),
    ("weight_bytes", "weights"),
    ("peak_bytes", "peak memory"),
)


def bytes_(value: float | None) -> str:
    """90.9 MB, 1.2 GB, 640 B: decimal units, as disks are sold."""
    if value is None:
        return numbers.MISSING
    for unit, size in (("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if value >= size:
            return f"{value / size:,.1f} {unit}"
    return f"{value:.0f} B"


def pace(value: float | None) -> str:
    """31,000, 412, 3.6: three digits are enough for a speed."""
    if value is None:
        return numbers.MISSING
    return f"{float(f'{value:.3g}'):,.{0 if value >= 100 else 1}f}"


def cost(one: Contestant, name: str) -> str:
    """A contestant's cost in its unit."""
    return cost_text(name, one.cost(name))


def cost_text(name: str, value: float | None) -> str:
    """A cost in the unit of its name."""
    if name in ("training_seconds", "cpu_seconds"):
        return numbers.seconds(value)
    if name == "rows_per_second":
        return pace(value)
    if name == "latency_seconds":
        return numbers.MISSING if value is None else f"{1e3 * value:.3g} ms"
    if name == "flops_per_row":
        return numbers.MISSING if value is None else f"{value / 1e9:.3g} GFLOP"
    if name == "parameters":
        return numbers.parameters(None if value is None else round(value))
    return bytes_(value)


def best_values(study: Study) -> dict[str, float]:
    """The best mean of every metric."""
    found = {}
    for key, _ in study.metrics:
        values = [value for one in study.measured if (value := one.value(key)) is not None]
        found[key] = min(values) if key in FALLING else max(values)
    return found


def ranking(study: Study) -> Html:
    """The ranking: a place, a name, and every metric with its deviation and interval."""
    best, digits = best_values(study), study.digits
    level = {one.name for one in level_with(study, study.measured[0])}
    lines = []
    for place, one in enumerate(study.measured, start=1):
        mark = page.element("span", " ≈", title="not told from the first", class_="level")
        name = Html(f"{place}. {page.safe(one.name)}{mark if one.name in level else ''}")
        lines.append([name, *(_cell(one, column, best[column], digits)
                                         for column, _ in study.metrics)])  # fmt: skip
    head = ["contestant", *(page.safe(heading) for _, heading in study.metrics)]
    return page.table(head, lines, kind="ranking")


def _cell(one: Contestant, key: str, best: float, digits: int) -> Html:
    found = one.figure(key)
    value = found.get("value")
    shown: object = figure(value, digits)
    if value == best:
        shown = page.element("strong", shown)
    parts: list[object] = [shown]
    if found.get("deviation") is not None:
        parts.append(page.element("span", f" ± {figure(found['deviation'], digits)}", class_="dim"))
    ends = interval(*one.interval(key), digits)
    if ends:
        parts.append(page.element("div", ends, class_="dim"))
    return page.Html("".join(page.safe(part) for part in parts))


def pair_cells(pair: Pair | None, digits: int) -> list[object]:
    """Difference, interval, p, corrected p and the sign of a pair; bold where it is told."""
    if pair is None:
        return [numbers.MISSING] * 4
    shown: object = signed(pair.difference, digits)
    mark = NOT_TOLD
    if pair.is_told:
        shown, mark = page.element("strong", shown), TOLD
    return [
        Html(f"{page.safe(shown)}&nbsp;{mark}"),
        interval(pair.low, pair.high, digits, sign=True),
        probability(pair.p),
        probability(pair.p_holm),
    ]


def against_first(study: Study) -> Html:
    """The first of the ranking against every other one, in the decisive metric and in calls."""
    first, (key, heading) = study.measured[0], study.decisive
    lines = []
    for other in study.measured[1:]:
        pair = study.pair(first.name, other.name, key)
        told = numbers.MISSING if pair is None else verdict(pair)
        calls = study.mcnemar(first.name, other.name)
        lines.append([other.name, told, *pair_cells(pair, study.digits), *mcnemar_cells(calls)])
    head = [
        f"{first.name} against",
        "verdict",
        f"{heading} more by",
        f"{study.level} interval",
        "p",
        "p_holm",
    ]
    return page.table([*head, *CALLS], lines, num_text_columns=2, kind="pairwise")


def verdict(pair: Pair) -> str:
    """ahead, behind or not told: from the side of `pair.one`."""
    if not pair.is_told:
        return "not told apart"
    return "ahead" if pair.difference > 0 else "behind"


CALLS = ["only it right", "only other right", "McNemar p", "p_holm"]


def mcnemar_cells(found: dict[str, object] | None) -> list[object]:
    """Rows that only one side called right, and the test's p values."""
    if not found:
        return [numbers.MISSING] * 4
    counts = [found.get("only_one"), found.get("only_other")]
    values = [found.get("p"), found.get("p_holm")]
    shown = [probability(v if isinstance(v, float | int) else None) for v in values]
    if isinstance(values[1], float | int) and values[1] < 0.05:
        shown[1] = Html(f"<strong>{page.safe(shown[1])}</strong>&nbsp;{TOLD}")
    return [*(numbers.count(c) if isinstance(c, int) else numbers.MISSING for c in counts), *shown]


def every_pair(study: Study) -> Html:
    """All pairs in all tested metrics; a row says which side is ahead by the difference's sign."""
    lines = []
    names = [one.name for one in study.measured]
    for place, one in enumerate(names):
        for other in names[place + 1 :]:
            cells: list[object] = [one, other]
            for key, _ in study.tested:
                difference, ends, _, p_holm = pair_cells(study.pair(one, other, key), study.digits)
                cells += [difference, ends, p_holm]
            lines.append([*cells, *mcnemar_cells(study.mcnemar(one, other))])
    head: list[object] = ["one", "other"]
    for _, heading in study.tested:
        head += [f"{_short(heading)} more by", f"{study.level} interval", "p_holm"]
    calls = ["only one right", *CALLS[1:]]
    return page.table([*head, *calls], lines, num_text_columns=2, kind="pairwise")


def _short(heading: str) -> str:
    return heading.partition(",")[0]


def costs(study: Study) -> Html:
    """What each contestant cost, median over its seeds."""
    known = known_costs(study)
    lines = [[one.name, *(cost(one, key) for key, _ in known)] for one in study.measured]
    return page.table(["contestant", *(h for _, h in known)], lines, kind="pairwise")


def known_costs(study: Study) -> list[tuple[str, str]]:
    """(key, heading) of the costs that somebody has; earlier versions measured fewer."""
    return [(k, h) for k, h in COSTS if any(one.cost(k) is not None for one in study.measured)]


def every_seed(study: Study) -> Html:
    """Every run: its test figures and its duration; the seed that the curves show is marked."""
    lines: list[list[object]] = []
    for one in study.contestants:
        for run in one.seeds:
            measured = run.get("test") or {}
            name = f"{one.name}, seed {run.get('seed')}"
            is_best = run.get("seed") == one.entry.get("best_seed") and one.is_measured
            lines.append(
                [
                    Html(f"<strong>{page.safe(name)}</strong>, best on dev") if is_best else name,
                    *(figure(measured.get(key), study.digits) for key, _ in study.metrics),
                    figure(measured.get("threshold"), 3),
                    cost_text("training_seconds", (run.get("costs") or {}).get("training_seconds")),
                    run.get("status", numbers.MISSING),
                ]
            )
    head = ["run", *(heading for _, heading in study.metrics), "threshold", "training", "state"]
    return page.table(head, lines, kind="dense")


# Markdown


def markdown(study: Study) -> str:
    """The ranking as a Markdown table for a paper, with what its figures mean below."""
    known = known_costs(study)
    columns = [*(heading for _, heading in study.metrics), *(heading for _, heading in known)]
    lines = [_row(["contestant", *columns]), _row(["---", *["---:"] * len(columns)])]
    best, key = best_values(study) if study.measured else {}, study.decisive[0]
    for one in study.measured:
        cells = [_markdown_cell(study, one, column, best[column], with_interval=column == key)
                 for column, _ in study.metrics]  # fmt: skip
        lines.append(_row([one.name, *cells, *(cost(one, name) for name, _ in known)]))
    for one in study.contestants:
        if not one.is_measured:
            state = str(one.entry.get("status") or "missing")
            lines.append(_row([one.name, state, *[numbers.MISSING] * (len(columns) - 1)]))
    return "\n".join([*lines, "", *(f"{note}  " for note in table_notes(study))]).rstrip() + "\n"


def _markdown_cell(
    study: Study, one: Contestant, key: str, best: float, *, with_interval: bool
) -> str:
    found, digits = one.figure(key), study.digits
    value = figure(found.get("value"), digits)
    text = f"**{value}**" if found.get("value") == best else value
    if found.get("deviation") is not None:
        text += f" ± {figure(found['deviation'], digits)}"
    if with_interval:
        text += f" {interval(*one.interval(key), digits)}"
    return text.rstrip()


def _row(cells: Iterable[object]) -> str:
    return "| " + " | ".join(_escaped(cell) for cell in cells) + " |"


def _escaped(cell: object) -> str:
    text = " ".join(str(cell).split())
    for sign in "\\|<>`_[":
        # The figures hold brackets of their own, which no link follows.
        if sign != "[" or "](" in text:
            text = text.replace(sign, f"\\{sign}")
    return text


def table_notes(study: Study) -> list[str]:
    """What the ranking's figures mean."""
    seeds = {len(one.figure(study.decisive[0]).get("seeds") or ()) for one in study.measured}
    notes = []
    if seeds and max(seeds) > 1:
        many = f"{max(seeds)}" if len(seeds) == 1 else f"up to {max(seeds)}"
        notes.append(
            f"Mean ± standard deviation of {many} seeds. In brackets: {study.level} bootstrap "
            "interval of the mean, over test rows and seeds; with one seed, over test rows. "
            "Costs are medians of the seeds."
        )
    elif seeds:
        notes.append(
            f"One seed each. In brackets: {study.level} bootstrap interval over the test rows."
        )
    falling = [heading for key, heading in study.metrics if key in FALLING]
    text = "The best of a column is bold"
    if falling:
        text += f"; of {' and '.join(falling)} the lowest"
    notes.append(text + ".")
    return notes
