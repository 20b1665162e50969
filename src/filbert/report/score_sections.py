"""Parts of the report about numbers: regression scores, cosines of pairs, ranks of own pairs."""

from __future__ import annotations

import numpy as np

from filbert.report import numbers, page, score_plots
from filbert.report.folder import RunFolder
from filbert.report.page import Html, Section
from filbert.report.prediction_sections import of_split
from filbert.report.sections import drawn

# Groups of ranks, each from its number to the next.
RANKS = (1, 2, 3, 4, 6, 11, 21, 51, 101)
DEPTHS = (1, 3, 5, 10, 50, 100)


def scores(folder: RunFolder) -> Section | None:
    """Predicted against gold, and how far off, for a regression."""
    if folder.problem != "regression" or not folder.rows:
        return None
    gold, values = wanted_and_found(folder)
    differences = values - gold
    plot = score_plots.scatter(gold, values, xlabel="gold", ylabel="predicted", identity=True)
    figures = [
        drawn(
            folder, "scores", plot, alt="Predicted over gold scores",
            caption="Each dot is a row; on the dashed line the prediction is exact.",
        ),
        drawn(
            folder, "residuals", score_plots.difference_histogram(differences),
            alt="Histogram of predicted minus gold scores",
            caption="Right of 0 the prediction is too high, left of it too low.",
        ),
    ]  # fmt: skip
    sizes = np.abs(differences)
    lines = [
        ["mean of predicted minus gold", numbers.metric(float(differences.mean()))],
        ["mean size of the error", numbers.metric(float(sizes.mean()))],
        ["half of the rows are off by at most", numbers.metric(float(np.quantile(sizes, 0.5)))],
        ["nine in ten by at most", numbers.metric(float(np.quantile(sizes, 0.9)))],
        ["always saying the mean of gold: MSE", numbers.metric(float(gold.var()))],
    ]
    content = page.join([page.gallery(figures), page.table(("", "score"), lines, kind="dense")])
    return page.section("Scores", of_split(folder), content)


def similarity(folder: RunFolder) -> Section | None:
    """Cosines of pairs against their labels, and the ranks of own pairs, for embeddings."""
    if folder.problem != "embedding" or not folder.rows:
        return None
    parts = [part for part in (*_ranks(folder), _cosines(folder)) if part is not None]
    return page.section("Similarity", of_split(folder), page.gallery(parts)) if parts else None


def wanted_and_found(folder: RunFolder) -> tuple[np.ndarray, np.ndarray]:
    """Gold scores and predicted values of the rows that have both, float64 (N,) each."""
    known = [row for row in folder.rows if row.get("gold") is not None and "value" in row]
    gold = np.array([row["gold"] for row in known], dtype=float)
    return gold, np.array([row["value"] for row in known], dtype=float)


def _cosines(folder: RunFolder) -> Html | None:
    gold, values = wanted_and_found(folder)
    if not len(gold):
        return None
    plot = score_plots.scatter(
        gold, values, xlabel="gold score of the pair", ylabel="cosine", identity=False
    )
    caption = "Each dot is a pair. Its cosine should rise with its score; the scale is free."
    return drawn(folder, "cosines", plot, alt="Cosines over gold scores", caption=caption)


def _ranks(folder: RunFolder) -> list[Html]:
    ranked = [row for row in folder.rows if "rank" in row]
    if not ranked:
        return []
    ranks = np.array([row["rank"] for row in ranked])
    pools = sorted({int(row["pool_size"]) for row in ranked})
    starts = [start for start in RANKS if start <= pools[-1]]
    counts = np.histogram(ranks, [*starts, np.inf])[0].tolist()
    names = [
        str(start) if end - start == 1 else f"{start}–{end - 1}"
        for start, end in zip(starts, RANKS[1 : len(starts)], strict=False)
    ]
    names.append(f"{starts[-1]}+" if pools[-1] > starts[-1] else str(starts[-1]))
    pool = f"{pools[-1]:,}" if len(pools) == 1 else f"{pools[0]:,} to {pools[-1]:,}"
    plot = score_plots.count_bars(names, counts, xlabel="rank of a text's own pair")
    caption = f"Where the own pair stands among {pool} neighbouring rows; 1 is found."
    figure = drawn(folder, "ranks", plot, alt="Histogram of ranks", caption=caption)
    lines = [
        [f"among the first {depth}" if depth > 1 else "first", numbers.percent(share)]
        for depth in DEPTHS
        if depth == 1 or depth < pools[-1]
        for share in [float((ranks <= depth).mean())]
    ]
    lines.append(["median rank", f"{np.median(ranks):g}"])
    return [figure, page.table(["own pair", "rows"], lines, kind="dense")]
