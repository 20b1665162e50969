"""Parts of a study's report about quality: ranking, tests, curves, cost, cleaning, slices."""

from __future__ import annotations

from filbert.report import (
    comparison_curves,
    comparison_grids,
    comparison_plots,
    comparison_tables,
    numbers,
    page,
)
from filbert.report.comparison_study import FALLING, Study
from filbert.report.comparison_words import (
    NOT_TOLD,
    TOLD,
    figure,
    level_with,
    listed,
)
from filbert.report.page import Html, Section
from filbert.report.sections import drawn


def folded(summary: str, *content: object) -> Html:
    """Content that opens at a touch, for what few readers want; on paper it is always open."""
    return page.element("details", page.element("summary", summary), *content)


def remark(text: object) -> Html:
    """A quiet sentence."""
    return page.element("p", text, class_="remark")


def ranking(study: Study) -> Section | None:
    """Plots with intervals of the tested metrics, and the table of every metric."""
    if not study.measured:
        return None
    figures = []
    shown = [*(study.tested or study.metrics[:3])]
    shown += [column for column in study.metrics if column[0] == "ece" and column not in shown]
    for number, (key, heading) in enumerate(shown):
        plot = comparison_plots.whiskers(study, key, heading)
        caption = heading[0].upper() + heading[1:] + "."
        if number == 0:
            caption += (
                f" Sign and broad bar: the seed that is best on dev, and its {study.level} "
                "bootstrap interval. Small dots: all seeds. Tall stroke and number: their mean, "
                "which makes the order."
            )
            if any(one.figure(key).get("over_seeds") for one in study.measured):
                caption += " Thin line: the interval of the mean, over rows and seeds."
            if study.cleaned_pairs:
                caption += " Hollow: with cleaning."
        elif key in FALLING:
            caption += " Less is better."
        figures.append(drawn(study, f"ranking_{key}", plot, caption=caption,
                             alt=f"{heading} of every contestant, with intervals"))  # fmt: skip
    notes = comparison_tables.table_notes(study)
    if level_with(study, study.measured[0]):
        notes.append(
            f"≈ not told from the first on {study.decisive[1]}, once all comparisons are counted."
        )
    return page.section(
        "Ranking",
        page.gallery(figures),
        comparison_tables.ranking(study),
        remark(" ".join(notes)),
        folded("Every run", comparison_tables.every_seed(study)),
    )


def tests(study: Study) -> Section | None:
    """Who is ahead of whom beyond chance: against the first, as a grid, and every pair."""
    if not study.tested or len(study.measured) < 2:
        return None
    num_pairs = len(study.results.get("pairs") or ())
    figures = []
    for name, shown in study.tested[:2]:
        caption = (
            f"{shown[0].upper()}{shown[1:]}, in thousandths: by how much the row is ahead of the "
            "column. Bold and coloured: told apart (blue: the row is ahead, orange: behind)."
        )
        plot = comparison_grids.differences(study, name)
        figures.append(drawn(study, f"differences_{name}", plot, caption=caption,
                             alt=f"Differences in {shown} of every two contestants"))  # fmt: skip
    parts = [comparison_tables.against_first(study), remark(_told_means(study, num_pairs))]
    for note in (study.results.get("statistics") or {}).get("notes") or ():
        parts.append(page.element("p", note, class_="note"))
    parts.append(page.gallery(figures))
    if num_pairs > 1:
        parts.append(folded(f"All {num_pairs:,} pairs", comparison_tables.every_pair(study)))
    return page.section("Who is ahead of whom", *parts)


def _told_means(study: Study, num_pairs: int) -> str:
    key = study.decisive[0]
    over = [bool((pair.get(key) or {}).get("over_seeds")) for pair in study.results["pairs"]]
    of_which = "" if all(over) else " of a pair in which a side has several"
    return (
        f"{TOLD} and bold: told apart, that is, the {study.level} interval of the difference "
        "leaves zero out, p_holm is below 0.05"
        + (f", and the interval for the means of the seeds{of_which} says so too" * any(over))
        + f". {NOT_TOLD}: not told apart, which is no proof of being equal. p_holm is p after "
        f"Holm's correction for {'one pair' if num_pairs == 1 else f'{num_pairs:,} pairs'}. "
        "Both sides of a pair stand for their seed that is best on dev and are judged on the same "
        "resampled rows. McNemar's test looks at the rows that only one of the two calls right."
    )


def agreement(study: Study) -> Html | None:
    """How often two contestants give the same answer."""
    found = study.results.get("agreement") or {}
    names = [one.name for one in study.measured if one.name in (found.get("names") or ())]
    if len(names) < 2:
        return None
    at = [found["names"].index(name) for name in names]
    matrix = [[found["matrix"][row][column] for column in at] for row in at]
    caption = "Rows on which two contestants give the same answer, in percent."
    plot = comparison_grids.agreement(names, matrix)
    return drawn(study, "agreement", plot, caption=caption,
                 alt="Share of equal answers of every two contestants")  # fmt: skip


def curves(study: Study) -> Section | None:
    """ROC and PR curves laid over each other, then PR one by one; of two labels only."""
    if study.positive is None or not study.answered:
        return None
    gold = study.answers[study.answered[0].name].gold == study.positive
    if gold.all() or not gold.any():
        return None
    label = study.labels[study.positive]
    captions = {
        "pr": f"Precision over recall for {label}; dashed grey: the share of {label} "
        f"({numbers.percent(float(gold.mean()))}), which guessing reaches.",
        "roc": "True over false positive rate; dashed grey: guessing.",
    }
    figures = [
        drawn(study, kind, comparison_curves.overlay(study, kind), caption=caption,
              alt=f"{kind.upper()} curves of all contestants")
        for kind, caption in captions.items()
    ]  # fmt: skip
    figures.append(_calibration(study))
    if len(study.answered) > 2:
        caption = "Precision over recall, one model a panel, all others in grey."
        if study.cleaned_pairs:
            caption += " Dashed: with cleaning."
        plot = comparison_curves.pr_panels(study)
        figure_ = drawn(study, "pr_panels", plot, caption=caption, alt="PR curve of each model")
        figures.insert(2, figure_)
    text = "Each curve is that of the contestant's seed that is best on dev, with its area."
    return page.section("Curves and calibration", remark(text), page.gallery(figures))


def _calibration(study: Study) -> Html:
    at = study.positive
    what = study.labels[at] if at is not None else "the chosen label"
    caption = (
        f"Calibration: how often {what} came true, over its predicted probability. On the dashed "
        "grey line the probabilities mean what they say; below it they promise too much."
    )
    if study.cleaned_pairs:
        caption += " Dashed: with cleaning."
    plot = comparison_curves.reliability_panels(study)
    return drawn(study, "calibration", plot, caption=caption, alt="Calibration of each model")


def cost(study: Study) -> Section | None:
    """Quality against what it costs, and the costs in a table."""
    figures = []
    for one in comparison_plots.FRONTIERS:
        if sum(bool(c.cost(one.key)) for c in study.measured) < 2:
            continue
        better = "right" if one.more_is_better else "left"
        caption = f"Better is up and to the {better}. Ringed and bold: no other is as good and "
        caption += "cheaper." if not one.more_is_better else "faster."
        plot = comparison_plots.frontier(study, one)
        name = one.heading.partition(" (")[0]
        figures.append(drawn(study, f"cost_{one.key}", plot, caption=caption,
                             alt=f"{study.decisive[1]} against {name}"))  # fmt: skip
    if not study.measured or not any(c.entry.get("costs") for c in study.measured):
        return None
    text = "Medians over the seeds, each measured in the run's own process."
    if (study.results.get("machine") or {}).get("same_for_all_runs"):
        text += " All ran on the machine named below."
    return page.section("Quality and cost", page.gallery(figures), comparison_tables.costs(study),
                        remark(text))  # fmt: skip


def cleaning(study: Study) -> Section | None:
    """Every model without and with cleaning."""
    if not study.cleaned_pairs:
        return None
    figures = []
    for key, heading in (study.tested or study.metrics)[:3]:
        caption = f"{heading}, mean of the seeds. {TOLD}: the two are told apart; {NOT_TOLD}: not."
        plot = comparison_plots.cleaning(study, key, heading)
        figures.append(drawn(study, f"cleaning_{key}", plot, caption=caption,
                             alt=f"{heading} with and without cleaning"))  # fmt: skip
    key, heading = study.decisive
    lines: list[list[object]] = []
    for plain, cleaned in study.cleaned_pairs:
        pair = study.pair(cleaned.name, plain.name, key)
        values = [figure(one.value(key), study.digits) for one in (plain, cleaned)]
        difference, ends, _, p_holm = comparison_tables.pair_cells(pair, study.digits)
        lines.append([study.cleaned_name(cleaned), *values, difference, ends, p_holm])
    head = ["model", "without", "with", "best seeds differ by", f"{study.level} interval", "p_holm"]
    names: dict[str, list[str]] = {}
    for _, cleaned in study.cleaned_pairs:
        steps = ", ".join(map(str, cleaned.entry["cleaning"]))
        names.setdefault(steps, []).append(study.cleaned_name(cleaned))
    told = [f"Cleaned{f' ({listed(who)})' if len(names) > 1 else ''}: {steps}."
            for steps, who in sorted(names.items())]  # fmt: skip
    text = f"{heading}; without and with are means of the seeds, the difference and its test are "
    text += "of the seeds that are best on dev. " + " ".join(told)
    below = page.element("div", page.table(head, lines, kind="pairwise"), remark(text))
    return page.section("With and without cleaning", page.gallery([*figures, below]))


def decisions(study: Study) -> Section | None:
    """Confusion matrices, a small picture for each, and how often two give the same answer."""
    figures = []
    if study.answered:
        is_binary = study.positive is not None
        how = "at the threshold tuned on dev" if is_binary else "by the most probable label"
        caption = f"Confusion matrices {how}: gold by rows, answers by columns, share of the row."
        plot, alt = comparison_grids.confusions(study), "Confusion matrix of every contestant"
        figures.append(drawn(study, "confusions", plot, caption=caption, alt=alt))
        if not is_binary:
            figures.append(_calibration(study))
    same = agreement(study)
    figures += [same] if same else []
    return page.section("Decisions", page.gallery(figures)) if figures else None
