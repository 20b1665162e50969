"""filbert check, tokenize, vocab and corpus."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from cyclopts import Parameter

from filbert.cli import arguments
from filbert.cli.output import cell, print_json, print_table, progress_printer
from filbert.data.columns import ColumnNames
from filbert.data.shards import CorpusOptions
from filbert.data.streams import require_file
from filbert.errors import ConfigError
from filbert.tasks.base import task_class
from filbert.text.learning import Progress
from filbert.train.options import LabelledFileOptions, from_flat

if TYPE_CHECKING:
    from filbert.tasks.doctor import Problem, Report, SplitReport

_LABELS_SHOWN = 6


@arguments.flags_of(LabelledFileOptions)
def check(
    files: tuple[str, ...],
    /,
    *,
    task: Annotated[str, arguments.shown_as("TASK", f"task of the rows: {arguments.TASKS}")],
    model: arguments.OptionalModel = None,
    max_length: arguments.MaxLength = None,
    near_duplicates: bool = False,
    json: arguments.AsJson = False,
    **options: Any,
) -> int:
    """Report what is wrong with a data set before anything is trained.

    Exit status 2 if there is an error; warnings and notes leave it at 0.

    Parameters
    ----------
    files:
        the training rows, then dev and test rows if there are any.
    model:
        count this model's tokens, truncated texts and unknown tokens instead of words; texts are
        cleaned as it does, unless --clean is given.
    near_duplicates:
        also look for texts that are almost the same; this keeps all texts in memory.
    """
    if max_length is not None and max_length < 3:
        raise ConfigError(f"max_length is {max_length}; it must be at least 3.")
    if files.count(arguments.STDIO) > 1:
        raise ConfigError("stdin is given twice, and can be read once. Save it as a file.")
    for file in files:
        if file != arguments.STDIO:
            require_file(file, once=True)

    from filbert.tasks.doctor import check as check_rows
    from filbert.train.log import progress_bar

    data = from_flat(LabelledFileOptions, options)
    checked = task_class(task).from_options(data.task, data.columns)
    tokenizer = None
    if model is not None:
        # torch is only imported for a model.
        from filbert.inference.stored_task import as_model_reads

        is_given = data.task.clean is not None
        tokenizer, checked = as_model_reads(model, checked, keeps_cleaning=is_given)
        max_length = max_length or tokenizer.max_length
    with progress_bar() as bar:
        progress = bar.add_task("check", total=None)
        report = check_rows(
            list(zip(split_names(files), files, strict=True)),
            checked,
            data.columns,
            tokenizer=tokenizer,
            max_length=max_length or 512,
            near=near_duplicates,
            progress=lambda count: bar.update(progress, advance=count),
        )
    print_json(report.to_dict()) if json else print_report(report)
    return 2 * (report.worst == "error")


def split_names(files: Sequence[str]) -> list[str]:
    """Return train for the first file, and for the others different names from their files."""
    names = ["train"]
    for file in files[1:]:
        name = unique = Path(file).name.split(".")[0]
        number = 1
        while unique in names:
            number += 1
            unique = f"{name}{number}"
        names.append(unique)
    return names


def print_report(report: Report) -> None:
    """Print counts and lengths per file, then the findings, the most serious first."""
    from filbert.train.log import STYLES, console

    stdout = console()
    _print_splits(report)
    # Files without their folders, if their names are different; --json keeps the folders.
    times = Counter(Path(split.path).name for split in report.splits)
    unique = {split.path for split in report.splits if times[Path(split.path).name] == 1}
    wrap: dict[str, Any] = {"soft_wrap": not stdout.is_terminal}
    for problem in report.problems:
        stdout.print(problem.level, style=STYLES[problem.level], end=" ")
        stdout.print(_sentence(problem, unique), **wrap)
    if not report.problems:
        stdout.print("No problems.", style="green")


def _print_splits(report: Report) -> None:
    rows = []
    for split in report.splits:
        lengths = split.lengths
        sizes = (lengths.p50, lengths.p95, lengths.max) if lengths else ()
        cells = [f"{size:,}" for size in sizes] or ["", "", ""]
        cut = "" if split.truncated is None else f"{split.truncated / max(1, split.rows):.1%}"
        rows.append([split.name, f"{split.rows:,}", _labels(split), *cells, cut])
    headings = ["", "rows", "labels", "length: median", "95 %", "longest", "cut"]
    # A column that is empty for all files, such as labels, is left out.
    used = [column for column in range(len(headings)) if any(row[column] for row in rows)]
    print_table(
        [headings[column] for column in used],
        [[row[column] for column in used] for row in rows],
        texts=[number for number, column in enumerate(used) if column in (0, 2)],
    )
    units = {split.lengths.unit for split in report.splits if split.lengths}
    if units:
        what = "cut at" if any(row[-1] for row in rows) else "longer rows are read in windows of"
        limit = f"; {what} {report.max_length}" if "tokens" in units else ""
        print(f"Lengths are in {units.pop()}{limit}.")


def _labels(split: SplitReport) -> str:
    counts = [f"{name} {count:,}" for name, count in split.label_counts.items()]
    more = len(counts) - _LABELS_SHOWN
    return ", ".join(counts[:_LABELS_SHOWN]) + (f", {more} more" if more > 0 else "")


def _sentence(problem: Problem, paths: set[str]) -> str:
    """Return a problem with its count and places; `paths` are shortened to file names."""
    times = f" ({problem.count:,} times)" if problem.count > 1 else ""
    places = [place.rstrip(".") for place in problem.where]
    # Longer paths first: one may be the end of another.
    for path in sorted(paths, key=len, reverse=True):
        places = [place.replace(f"{path}:", f"{Path(path).name}:") for place in places]
    more = problem.count - len(places)
    listed = f": {'; '.join(places)}" if places else ""
    listed += f"; and {more:,} more" if places and more > 0 else ""
    return f"{problem.message.rstrip('.')}{times}{listed}."


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
    overwrite: arguments.Overwrite = False,
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
