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
        progress=_progress(size),
    )
    for line in _warnings(report):
        print(line, file=sys.stderr)
    if json:
        print_json(report)
    else:
        print_table((report["kind"], f"{report['size']:,} entries"), _rows(report), texts=(0,))
        print(f"vocabulary: {out}")


def _progress(size: int) -> Progress:
    """Return a function that reports progress on stderr."""
    stage, done = "", 0
    printed = progress_printer(terminal=True)

    def show(what: str, more: int) -> None:
        nonlocal stage, done
        done = more if what != stage else done + more
        stage = what
        amount = f"{done:,} of {size:,}" if what.startswith("learning") else f"{done / 1e6:,.1f} MB"
        printed(f"{what}: {amount}" if done else what)

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


def _rows(report: dict[str, Any]) -> list[tuple[str, str]]:
    corpus, fit = report["corpus"], report["fit"]
    rows = [
        ("learned from", f"{corpus['used_bytes']:,} bytes"),
        ("documents", f"{corpus['used_documents']:,} of {corpus['documents']:,}"),
        ("different words", f"{corpus['different_words']:,}"),
        ("alphabet", f"{corpus['alphabet']:,}"),
    ]
    if fit is None:
        return rows
    return [
        *rows,
        ("measured on", f"{fit['num_bytes']:,} bytes, {fit['num_words']:,} words"),
        ("unknown rate", f"{fit['unknown_rate']:.4%} of the words"),
        ("pieces per word", f"{fit['pieces_per_word']:.3f}"),
        ("tokens per byte", f"{fit['tokens_per_byte']:.4f}"),
        ("entries used", f"{fit['used_share']:.1%}"),
        *(
            (printable(word["word"], 40), f"{word['num_pieces']} pieces, {word['count']} x")
            for word in fit["longest"]
        ),
    ]
