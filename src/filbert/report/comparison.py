"""The one-file report of a study: who is best, by how much, how surely, at what price."""

from __future__ import annotations

import os
from functools import partial
from pathlib import Path

from filbert.report import comparison_making, comparison_sections, comparison_tables, numbers, page
from filbert.report.comparison_rows import hard_rows
from filbert.report.comparison_slices import slices
from filbert.report.comparison_students import students
from filbert.report.comparison_study import Study, read_study
from filbert.report.comparison_words import figure, headline, listed
from filbert.report.page import Html

# Each gives None where it does not concern the study, or lacks what it needs.
PARTS = (
    comparison_sections.ranking,
    comparison_sections.tests,
    comparison_sections.curves,
    comparison_sections.cost,
    students,
    comparison_sections.cleaning,
    comparison_sections.decisions,
    slices,
)
LAST_PARTS = (comparison_making.data, comparison_making.failures, comparison_making.making)

CSS = """
main { max-width: 74rem; }
.dim { color: var(--quiet); font-size: .8125em; font-weight: 400; white-space: nowrap; }
.level { color: var(--quiet); }
.ranking { font-size: .875rem; }
.ranking td, .ranking th { padding-left: .35rem; padding-right: .35rem; }
.ranking th { white-space: normal; min-width: 5rem; vertical-align: bottom; }
.ranking td:first-child, .pairwise td:first-child { white-space: nowrap; }
.ranking td:first-child, .ranking th:first-child { position: sticky; left: 0; background: #fff;
  box-shadow: 1px 0 0 var(--line); }
.pairwise th, .dense th { white-space: normal; vertical-align: bottom; }
.pairwise td { padding-top: .25rem; padding-bottom: .25rem; font-size: .875rem;
  white-space: nowrap; }
.failures td:last-child { min-width: 14rem; overflow-wrap: anywhere; }
.failures td:nth-child(-n+2) { white-space: nowrap; }
.verdict + .verdict { font-size: 1.05rem; margin-top: .6rem; }
details .dense td:first-child { white-space: nowrap; }
details { margin: 1rem 0; }
summary { cursor: pointer; color: var(--accent); }
@media (max-width: 40rem) {
  .ranking td:first-child { white-space: normal; min-width: 6.5rem; max-width: 8rem;
    overflow-wrap: anywhere; }
  .verdict + .verdict { font-size: 1rem; }
}
@media print {
  details::details-content { content-visibility: visible; block-size: auto; }
  summary { list-style: none; color: var(--quiet); }
  .ranking, .pairwise, .dense { font-size: 7.5pt; }
  .ranking th, .pairwise th, .dense th { font-size: 7pt; min-width: 0; }
  .ranking td, .ranking th, .pairwise td, .pairwise th, .dense td, .dense th {
    padding-left: .2rem; padding-right: .2rem; font-size: 7.5pt; }
}
"""


def write_comparison_report(folder: Path, *, show_texts: bool = False) -> Path:
    """Write report.html, table.md and plots/*.png into a study's folder; gives the page's path.

    All statistics are those of results.json; predictions are read for curves and counts only. What
    is missing (seeds, contestants, predictions, slices) is left out and named. The page is one
    file: images inside, no script, no outside address.

    Args:
        folder: as `filbert compare --out` wrote it, finished or not.
        show_texts: also show the texts of the rows that contestants disagree on, and of those that
            all get wrong. Without it no text of the data is shown.

    Raises:
        InputError: there is no results.json.
        FormatError: a file is damaged.
    """
    study = read_study(Path(folder))
    rows = partial(hard_rows, show_texts=show_texts)
    made = [make(study) for make in (*PARTS, rows, *LAST_PARTS)]
    parts = [part for part in made if part is not None]
    title = str(study.results.get("name") or study.path.resolve().name)
    top = head(study, title, [part.link for part in parts])
    html = page.page(f"{title} · filbert", top, *(part.html for part in parts), css=CSS)
    _replace(study.path / "table.md", comparison_tables.markdown(study))
    return _replace(study.path / "report.html", html)


def _replace(path: Path, content: str) -> Path:
    # Renamed when whole, so that a full disk leaves the old file.
    unfinished = path.with_name(f"{path.name}.part")
    try:
        unfinished.write_text(content, encoding="utf-8")
        os.replace(unfinished, path)
    finally:
        unfinished.unlink(missing_ok=True)
    return path


def head(study: Study, title: str, links: list[Html]) -> Html:
    """Name, what the study shows, what is wrong with it, the few figures that everyone asks for."""
    about = [f"filbert {study.results.get('filbert', '')}".strip(), "comparison",
             study.results.get("finished")]  # fmt: skip
    facts = [
        page.element("div", page.element("dt", name), page.element("dd", value))
        for name, value in headline_facts(study)
    ]
    first, *others = paragraphs(headline(study))
    return page.element(
        "header",
        page.element("p", " · ".join(str(part) for part in about if part), class_="eyebrow"),
        page.element("h1", title),
        page.element("p", first, class_="verdict"),
        *(page.element("p", text, class_="verdict") for text in others),
        *(page.element("p", note, class_="note") for note in [*state(study), *study.notes]),
        page.element("dl", *facts, class_="facts") if facts else "",
        page.element("nav", page.join(links)),
    )


def paragraphs(sentences: list[str]) -> list[str]:
    """The first two sentences together, as the second says how sure the first is; then the rest."""
    texts = [" ".join(sentences[:2]), " ".join(sentences[2:])]
    return [text for text in texts if text]


def state(study: Study) -> list[str]:
    """What a reader must know of an unfinished study, or one in which something failed."""
    runs = [run for one in study.contestants for run in one.seeds]
    done = sum(run.get("status") in ("finished", "done") for run in runs)
    failed = sum(run.get("status") == "failed" for run in runs)
    notes = []
    if not study.results.get("finished") or done + failed < len(runs):
        notes.append(
            f"Unfinished: {done:,} of {len(runs):,} runs are there. All figures are of those only, "
            "and may change."
        )
    lost = [one.name for one in study.contestants if one.entry.get("status") == "failed"]
    if lost:
        is_one = len(lost) == 1
        notes.append(
            f"{listed(lost)} failed and {'is' if is_one else 'are'} compared with nobody; "
            f"{'its' if is_one else 'their'} errors stand under “Failed and missing”."
        )
    elif failed:
        notes.append(f"{failed:,} {'run' if failed == 1 else 'runs'} failed.")
    return notes


def headline_facts(study: Study) -> list[tuple[str, str]]:
    """(name, value) of the best figure, the rows, and how many were compared."""
    facts = []
    if study.measured:
        key, heading = study.decisive
        facts.append((f"best {heading}", figure(study.measured[0].value(key), study.digits)))
    rows = ((study.results.get("data") or {}).get("test") or {}).get("rows")
    if rows is not None:
        facts.append(("test rows", numbers.count(rows)))
    facts.append(("contestants", numbers.count(len(study.measured))))
    seeds = {len(one.figure(study.decisive[0]).get("seeds") or ()) for one in study.measured}
    if seeds - {0}:
        shown = f"{min(seeds)} to {max(seeds)}" if len(seeds) > 1 else str(max(seeds))
        facts.append(("seeds each", shown))
    if study.results.get("pairs"):
        facts.append(("pairs tested", numbers.count(len(study.results["pairs"]))))
    return facts
