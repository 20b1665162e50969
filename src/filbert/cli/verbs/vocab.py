"""filbert vocab."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any, Literal

from filbert.cli.arguments import AsJson, OutFolder, TextColumn
from filbert.cli.output import print_json, print_table, progress_printer
from filbert.errors import ConfigError, printable
from filbert.text.learning import Documents, LearnOptions, Progress

_UNITS = {"": 1, "K": 2**10, "M": 2**20, "G": 2**30, "T": 2**40}


def vocab(
    corpus: tuple[str, ...],
    /,
    *,
    out: OutFolder,
    kind: Literal["wordpiece", "bytebpe", "unigram"],
    size: int,
    cased: bool = False,
    max_memory: str = "2G",
    seed: int = 0,
    min_count: int = 2,
    max_alphabet: int | None = None,
    held_out: str | None = None,
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
    max_memory:
        memory, for example 500M; if the words need more, a sample of the documents is used.
    seed:
        random seed of that sample and of the held-out documents.
    min_count:
        least number of occurrences of an entry in the text.
    max_alphabet:
        largest number of different characters, the most frequent ones; by default all.
    held_out:
        text to measure the fit on; by default one document in a hundred of the corpus.
    overwrite:
        replace an existing vocabulary.
    """
    options = LearnOptions(
        kind=kind,
        size=size,
        cased=cased,
        min_count=min_count,
        max_alphabet=max_alphabet,
        seed=seed,
        max_memory=bytes_of(max_memory),
    )
    _check_out(out, overwrite)
    report = _learn(corpus, options, out=out, held_out=held_out, text_column=text_column)
    for line in _warnings(report):
        print(line, file=sys.stderr)
    if json:
        print_json(report)
    else:
        print_table((report["kind"], f"{report['size']:,} entries"), _rows(report), texts=(0,))
        print(f"vocabulary: {out}")


def _learn(
    corpus: Sequence[str],
    options: LearnOptions,
    *,
    out: Path,
    held_out: str | None,
    text_column: str,
) -> dict[str, Any]:
    """Learn the vocabulary, write its folder, and return the report."""
    from filbert.data.records import file_digest
    from filbert.files import replace_folder, write_json
    from filbert.text.learning import learn, report_of

    files = [*corpus] if held_out is None else [*corpus, held_out]
    digests = [{"name": Path(file).name, "sha256": file_digest(file)} for file in files]
    learned = learn(
        _documents(corpus, text_column),
        options,
        held_out=None if held_out is None else _documents([held_out], text_column),
        progress=_progress(options.size),
    )
    report: dict[str, Any] = report_of(learned, options)
    report["files"] = digests[: len(corpus)]
    report["held_out_file"] = None if held_out is None else digests[-1]
    report["versions"] = {name: version(name) for name in ("filbert", "tokenizers")}
    with replace_folder(out, marker="vocabulary.json") as folder:
        learned.tokenizer.save(folder)
        write_json(folder / "vocabulary.json", report)
    return report


def bytes_of(text: str) -> int:
    """Return the bytes in "2G", "500M", "1.5 GB"; units are powers of 1024.

    Raises:
        ConfigError: Not such a number.
    """
    match = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([KMGT]?)i?B?", text.strip(), re.IGNORECASE)
    if match is None:
        raise ConfigError(f"--max-memory {text} is not a size; write for example 2G or 500M.")
    return int(float(match[1]) * _UNITS[match[2].upper()])


def _check_out(out: Path, overwrite: bool) -> None:
    """Refuse, before any work, a folder that cannot be written or replaced."""
    if out.exists() and not out.is_dir():
        raise ConfigError(f"{out} is a file; --out names a folder.")
    if not out.is_dir() or not any(out.iterdir()):
        return
    if not (out / "vocabulary.json").is_file():
        raise ConfigError(f"{out} holds other files and no vocabulary. Name another folder.")
    if not overwrite:
        raise ConfigError(f"{out} exists. Name another folder, or add --overwrite.")


def _documents(files: Sequence[str], text_column: str) -> Documents:
    from filbert.data.documents import read_documents

    return lambda: (
        document.lines for document in read_documents(list(files), text_column=text_column)
    )


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
    if corpus["sample_rate"] < 1:
        share = corpus["used_bytes"] / corpus["bytes"]
        yield (
            "The words of the whole text need more than --max-memory: learned from a sample of "
            f"{corpus['used_documents']:,} of {corpus['documents']:,} documents, {share:.2%} of "
            "the bytes."
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
        yield "One document only, so the fit was not measured; give --held-out."


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
