"""filbert tokenize, vocab and corpus."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any, Literal

from cyclopts import Parameter

from filbert.cli import arguments
from filbert.cli.output import cell, print_json, print_table, progress_printer
from filbert.data.columns import ColumnNames
from filbert.data.shards import CorpusOptions
from filbert.errors import ConfigError
from filbert.text.learning import Progress


def tokenize(
    model: arguments.ModelName,
    file: arguments.TextFile = "-",
    /,
    *,
    text_column: arguments.TextColumn = "text",
    text_pair_column: arguments.TextPairColumn = None,
    separator: arguments.Separator = None,
    max_length: Annotated[
        int | None, Parameter(help="truncate texts to this many tokens; by default never.")
    ] = None,
) -> None:
    """Show the tokens of texts as they are, without a model's cleaning: one JSON object a line."""
    from filbert import api
    from filbert.checkpoints.opening import find_model, read_tokenizer
    from filbert.data.texts import chunks, read_texts, text_of
    from filbert.text.tokenizer import characters_in

    tokenizer = read_tokenizer(find_model(model, tokenizer_only=True))
    names = ColumnNames(
        text_column=text_column, text_pair_column=text_pair_column, separator=separator
    )
    texts = (text_of(row) for row in read_texts(file, names))
    for chunk in chunks(texts, characters_in):
        for tokens in api.tokenize(tokenizer, chunk, max_length=max_length):
            print(json.dumps(tokens, ensure_ascii=False))


def vocab(
    corpus: tuple[str, ...],
    /,
    *,
    out: arguments.OutFolder,
    kind: Literal["wordpiece", "bytebpe", "unigram", "symbols"],
    size: int,
    cased: bool = False,
    min_count: int = 2,
    text_column: arguments.TextColumn = "text",
    overwrite: bool = False,
    json: arguments.AsJson = False,
) -> None:
    """Learn a vocabulary from text and measure how well it fits.

    Parameters
    ----------
    corpus:
        text files with a blank line between documents, JSONL or Parquet; compressed or not.
    kind:
        wordpiece as BERT, bytebpe as RoBERTa, unigram as ALBERT, or symbols: whole texts between
        white space.
    size:
        entries, including special tokens.
    cased:
        keep case and accents; bytebpe and symbols always do.
    min_count:
        least number of occurrences of an entry in the text.
    overwrite:
        replace an existing vocabulary.
    """
    from filbert import api
    from filbert.train.log import STYLES, print_line

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
        print_line(line, STYLES["warning"])
    if json:
        print_json(report)
        return
    print(f"{report['kind']}, {report['size']:,} entries")
    fit = report["fit"] or {}
    facts = {name: v for name, v in {**report["corpus"], **fit}.items() if name != "longest"}
    print_table(("", ""), [(n.replace("_", " "), cell(v)) for n, v in facts.items()], texts=(0,))
    longest = [one for one in fit.get("longest", ()) if one["num_pieces"] > 1]
    words = [(cell(w["word"], 40), cell(w["num_pieces"]), cell(w["count"])) for w in longest]
    if words:
        print_table(("words of most pieces", "pieces", "times"), words, texts=(0,))
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
    if report["kind"] != "symbols" and report["size"] < report["options"]["size"]:
        yield (
            f"The text gave only {report['size']:,} of {report['options']['size']:,} entries. "
            "Give more text or a lower --min-count."
        )
    if report["fit"] is None:
        yield "One document only, so the fit was not measured."


def corpus(
    *corpus: str,
    tokenizer: Annotated[str, arguments.shown_as("MODEL")],
    out: Annotated[Path, arguments.shown_as("FOLDER")],
    workers: int | None = None,
    options: Annotated[CorpusOptions | None, Parameter(name="*")] = None,
    overwrite: bool = False,
    json: arguments.AsJson = False,
) -> None:
    """Turn text into token shards for pre-training; after a kill the same command continues.

    Parameters
    ----------
    corpus:
        text files with a blank line between documents, or JSONL, Parquet, CSV, TSV with one
        document per row; also compressed.
    tokenizer:
        folder with a tokenizer, built-in name or Hub id.
    out:
        folder to write.
    workers:
        threads; by default one per core, at most 4. The output does not depend on it.
    overwrite:
        delete another corpus in the folder.
    """
    if not corpus:
        raise ConfigError("No text was named. Name at least one file before the options.")

    from filbert.checkpoints.opening import find_model, read_tokenizer
    from filbert.data.build import build_corpus

    with _corpus_progress(corpus) as on_progress:
        built = build_corpus(
            corpus,
            read_tokenizer(find_model(tokenizer, tokenizer_only=True)),
            out,
            options=options,
            workers=workers,
            overwrite=overwrite,
            on_progress=on_progress,
        )
    # None if nothing was left to do.
    speed = built.num_bytes / 1e6 / built.seconds if built.num_bytes else None
    facts = built.manifest["counts"] | {
        "shards": len(built.manifest["shards"]),
        "kept_shards": built.kept_shards,
        "seconds": round(built.seconds, 2),
        "workers": built.workers,
        "megabytes_per_second": speed and round(speed, 3),
    }
    if json:
        print_json(facts)
        return
    rows = [(n.replace("_", " "), cell(v)) for n, v in facts.items() if v or "duplicate" in n]
    print_table(("", ""), rows, texts=(0,))
    print(f"corpus: {out}")


@contextmanager
def _corpus_progress(paths: Sequence[str]) -> Iterator[Callable[[int, int, float], None]]:
    """Show megabytes, tokens and speed on stderr."""
    from filbert.train.log import progress_bar

    show = progress_printer()
    with progress_bar("seen") as bar:
        task = bar.add_task("corpus", total=size_of_text(paths), seen="hashing the input")

        def on_progress(num_bytes: int, num_tokens: int, seconds: float) -> None:
            size = num_bytes / 1e6
            speed = size / max(seconds, 1e-9)
            line = f"{size:,.0f} MB, {num_tokens / 1e6:,.1f} M tokens, {speed:,.2f} MB/s"
            bar.update(task, completed=num_bytes, seen=line)
            show(line)

        yield on_progress


def size_of_text(paths: Sequence[str]) -> int | None:
    """Return the bytes of all files if they are plain text, so that the rest can be estimated."""
    from filbert.data.records import has_columns
    from filbert.data.streams import suffix_of

    for path in paths:
        if has_columns(path) or suffix_of(path) != Path(path).suffix.lower():
            return None
    return sum(Path(path).stat().st_size for path in paths if Path(path).is_file())
