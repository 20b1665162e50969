"""filbert vocab."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal

from filbert.cli.output import progress_printer
from filbert.text.learning import Documents, Progress

_UNITS = {"": 1, "K": 2**10, "M": 2**20, "G": 2**30, "T": 2**40}


def vocab(
    corpus: tuple[str, ...],
    /,
    *,
    out: Path,
    kind: Literal["wordpiece", "bytebpe", "unigram"],
    size: int,
    cased: bool = False,
    max_memory: str = "2G",
    seed: int = 0,
    min_count: int = 2,
    max_alphabet: int | None = None,
    held_out: str | None = None,
    text_column: str = "text",
    overwrite: bool = False,
    json: bool = False,
) -> None:
    """Learn a vocabulary from text and say how well it fits.

    Parameters
    ----------
    corpus:
        text files with a blank line between documents, JSONL or Parquet; compressed or not.
    out:
        folder to write; must not be there yet.
    kind:
        wordpiece as BERT, bytebpe as RoBERTa, unigram as ALBERT.
    size:
        entries, special tokens included.
    cased:
        keep case and accents; bytebpe always does.
    max_memory:
        what the process may need, for example 500M; if the words need more, a sample of the
        documents is learnt from.
    seed:
        of that sample and of the documents that are kept back.
    min_count:
        join or keep only what stands in the text so often.
    max_alphabet:
        at most so many different characters, the most frequent ones; all when not given.
    held_out:
        text to measure the fit on; one document in a hundred of the corpus when not given.
    text_column:
        name of the column with the text.
    overwrite:
        replace a vocabulary that is already there.
    json:
        print the report as JSON.
    """
    from importlib.metadata import version

    from filbert.cli.flags import print_json
    from filbert.data.records import file_digest
    from filbert.files import replace_folder, write_json
    from filbert.text.learning import LearnOptions, learn, report_of

    options = LearnOptions(
        kind=kind,
        size=size,
        cased=cased,
        min_count=min_count,
        max_alphabet=max_alphabet,
        seed=seed,
        max_memory=bytes_of(max_memory),
    )
    refuse_existing(out, overwrite)
    files = [*corpus] if held_out is None else [*corpus, held_out]
    digests = [{"name": Path(file).name, "sha256": file_digest(file)} for file in files]
    with progress_on_stderr(size) as progress:
        learned = learn(
            documents_of(corpus, text_column),
            options,
            held_out=None if held_out is None else documents_of([held_out], text_column),
            progress=progress,
        )
    report: dict[str, Any] = report_of(learned, options)
    report["files"] = digests[: len(corpus)]
    report["held_out_file"] = None if held_out is None else digests[-1]
    report["versions"] = {name: version(name) for name in ("filbert", "tokenizers")}
    with replace_folder(out, marker="vocabulary.json") as folder:
        learned.tokenizer.save(folder)
        write_json(folder / "vocabulary.json", report)
    say_what_was_left_out(report)
    if json:
        print_json(report)
    else:
        print_report(report)
        print(f"vocabulary: {out}")


def bytes_of(text: str) -> int:
    """Bytes in "2G", "500M", "1.5 GB"; units are powers of 1024.

    Raises:
        ConfigError: it is no such number.
    """
    from filbert.errors import ConfigError

    found = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([KMGT]?)i?B?", text.strip(), re.IGNORECASE)
    if found is None:
        raise ConfigError(f"--max-memory {text} is not a size; write for example 2G or 500M.")
    return int(float(found[1]) * _UNITS[found[2].upper()])


def refuse_existing(out: Path, overwrite: bool) -> None:
    """Say so before the work begins when its result could not be put down.

    Raises:
        ConfigError: `out` is a file, or a folder that may not be replaced.
    """
    from filbert.errors import ConfigError

    if out.exists() and not out.is_dir():
        raise ConfigError(f"{out} is a file; --out names a folder.")
    if not out.is_dir() or not any(out.iterdir()):
        return
    if not (out / "vocabulary.json").is_file():
        raise ConfigError(f"{out} holds other files and no vocabulary. Name another folder.")
    if not overwrite:
        raise ConfigError(f"{out} is already there. Name another folder, or give --overwrite.")


def documents_of(files: Sequence[str], text_column: str) -> Documents:
    """The files' documents, anew at each call."""
    from filbert.data.documents import read_documents

    return lambda: (
        document.lines for document in read_documents(list(files), text_column=text_column)
    )


@contextmanager
def progress_on_stderr(size: int) -> Iterator[Progress]:
    """What is going on, on stderr: in a bar, or now and then."""
    from rich.console import Console
    from rich.progress import Progress as Bars
    from rich.progress import SpinnerColumn, TextColumn, TimeElapsedColumn

    console = Console(stderr=True)
    bars = Bars(
        SpinnerColumn(),
        TextColumn("{task.description}"),
        TextColumn("{task.fields[amount]}"),
        TimeElapsedColumn(),
        console=console,
        disable=not console.is_terminal,
        transient=True,
    )
    task = bars.add_task("", total=None, amount="")
    stage, done = "", 0
    tell = progress_printer()

    def show(what: str, more: int) -> None:
        nonlocal stage, done
        done = more if what != stage else done + more
        stage = what
        amount = f"{done:,} of {size:,}" if what.startswith("learning") else f"{done / 1e6:,.1f} MB"
        bars.update(task, description=what, amount=amount if done else "")
        tell(f"{what}: {amount}" if done else what)

    with bars:
        yield show


def say_what_was_left_out(report: dict[str, Any]) -> None:
    """Whatever the user would not expect, one line each on stderr."""
    import sys

    corpus = report["corpus"]
    if corpus["sample_rate"] < 1:
        share = corpus["used_bytes"] / corpus["bytes"]
        print(
            f"The words of the whole text need more than --max-memory: learnt from a sample of "
            f"{corpus['used_documents']:,} of {corpus['documents']:,} documents, {share:.2%} of "
            "the bytes.",
            file=sys.stderr,
        )
    if corpus["rare_characters_left_out"]:
        print(
            f"{corpus['rare_characters_left_out']:,} rare characters have no entry; words with "
            "them are unknown.",
            file=sys.stderr,
        )
    if report["size"] < report["options"]["size"]:
        print(
            f"The text gave only {report['size']:,} of {report['options']['size']:,} entries. "
            "Give more text or a lower --min-count.",
            file=sys.stderr,
        )
    if report["fit"] is None:
        print("One document only, so the fit was not measured; give --held-out.", file=sys.stderr)


def print_report(report: dict[str, Any]) -> None:
    """The fit as a table on stdout."""
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    corpus, fit = report["corpus"], report["fit"]
    table = Table(title=f"{report['kind']}, {report['size']:,} entries", show_header=False)
    table.add_column()
    table.add_column(justify="right")
    table.add_row("learnt from", f"{corpus['used_bytes']:,} bytes")
    table.add_row("documents", f"{corpus['used_documents']:,} of {corpus['documents']:,}")
    table.add_row("different words", f"{corpus['different_words']:,}")
    table.add_row("alphabet", f"{corpus['alphabet']:,}")
    if fit is not None:
        table.add_section()
        table.add_row("measured on", f"{fit['num_bytes']:,} bytes, {fit['num_words']:,} words")
        table.add_row("unknown rate", f"{fit['unknown_rate']:.4%} of the words")
        table.add_row("pieces per word", f"{fit['pieces_per_word']:.3f}")
        table.add_row("tokens per byte", f"{fit['tokens_per_byte']:.4f}")
        table.add_row("entries used", f"{fit['used_share']:.1%}")
        table.add_section()
        for word in fit["longest"]:
            shown = word["word"] if len(word["word"]) <= 40 else word["word"][:37] + "..."
            table.add_row(Text(shown), f"{word['num_pieces']} pieces, {word['count']} x")
    Console(emoji=False).print(table)
