"""filbert vocab."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import Any, Literal

from filbert.cli.arguments import AsJson, OutFolder, TextColumn
from filbert.cli.output import print_json, print_table, progress_printer
from filbert.errors import printable
from filbert.text.learning import Progress


def vocab(
    corpus: tuple[str, ...],
    /,
    *,
    out: OutFolder,
    kind: Literal["wordpiece", "bytebpe", "unigram"],
    size: int,
    cased: bool = False,
    min_count: int = 2,
    text_column: TextColumn = "text",
    overwrite: bool = False,
    json: AsJson = False,
) -> None:
    """Learn a vocabulary from text and measure how well it fits.

    Parameters
    ----------
    corpus:
        text files with a blank line between documents, JSONL or Parquet; compressed or not.
    kind:
        wordpiece as BERT, bytebpe as RoBERTa, unigram as ALBERT.
    size:
        entries, including special tokens.
    cased:
        keep case and accents; bytebpe always does.
    min_count:
        least number of occurrences of an entry in the text.
    overwrite:
        replace an existing vocabulary.
    """
    from filbert import api

    report = api.vocab(
        corpus,
        out=out,
        kind=kind,
        size=size,
        cased=cased,
        min_count=min_count,
        text_column=text_column,
        overwrite=overwrite,
        progress=_progress(),
    )
    for line in _warnings(report):
        print(line, file=sys.stderr)
    if json:
        print_json(report)
        return
    print(f"{report['kind']}, {report['size']:,} entries")
    fit = report["fit"] or {}
    facts = {name: v for name, v in {**report["corpus"], **fit}.items() if name != "longest"}
    rows = [(name.replace("_", " "), f"{value:,.7g}") for name, value in facts.items()]
    print_table(("", ""), rows, texts=(0,))
    for word in fit.get("longest", ()):
        print(f"{printable(word['word'], 40)}: {word['num_pieces']} pieces, {word['count']} x")
    print(f"vocabulary: {out}")


def _progress() -> Progress:
    """Return a function that reports progress on stderr."""
    stage, done = "", 0
    printed = progress_printer(terminal=True)

    def show(what: str, more: int) -> None:
        nonlocal stage, done
        done = more if what != stage else done + more
        stage = what
        printed(f"{what}: {done:,}" if done else what)

    return show


def _warnings(report: dict[str, Any]) -> Iterator[str]:
    corpus = report["corpus"]
    if corpus["dropped_count"]:
        yield (
            "The words of the whole text need more than 2 GiB of memory: words that had been seen "
            f"{corpus['dropped_count']:,} times or less were dropped while reading."
        )
    if corpus["rare_characters_left_out"]:
        yield (
            f"{corpus['rare_characters_left_out']:,} rare characters have no entry; words with "
            "them are unknown."
        )
    if report["size"] < report["options"]["size"]:
        yield (
            f"The text gave only {report['size']:,} of {report['options']['size']:,} entries. "
            "Give more text or a lower --min-count."
        )
    if report["fit"] is None:
        yield "One document only, so the fit was not measured."
