"""filbert corpus."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import Parameter

from filbert.cli.arguments import AsJson
from filbert.cli.output import print_json, print_table, progress_printer
from filbert.data.masking import ObjectiveOptions
from filbert.data.shards import CorpusOptions
from filbert.errors import ConfigError

if TYPE_CHECKING:
    from filbert.data.build import BuildProgress, Built
    from filbert.errors import InputError

# Skipped lines that are printed; all are counted.
_BAD_PRINTED = 5
# Counts that are printed only if they are not zero.
_RARE = (
    "duplicate_lines", "documents_of_duplicate_lines", "documents_without_tokens",
    "sentences_without_tokens", "cuts_in_long_documents", "texts_not_remembered", "bad_lines",
)  # fmt: skip


def corpus(
    *corpus: str,
    tokenizer: str | None = None,
    out: Path | None = None,
    workers: int | None = None,
    options: Annotated[CorpusOptions | None, Parameter(name="*")] = None,
    overwrite: bool = False,
    show: int = 0,
    seed: int = 0,
    json: AsJson = False,
    objective: Annotated[ObjectiveOptions | None, Parameter(name="*")] = None,
) -> None:
    """Turn text into token shards for pre-training; after a kill the same command continues.

    Parameters
    ----------
    corpus:
        text files with a blank line between documents, or JSONL, Parquet, CSV, TSV with one
        document per row; also compressed. With --show alone: a folder that this command wrote.
    tokenizer:
        folder with a tokenizer, built-in name or Hub id.
    out:
        folder to write.
    workers:
        processes; by default one per core, at most 4. The output does not depend on it.
    overwrite:
        delete another corpus in the folder.
    show:
        number of training examples to print, with their masks.
    seed:
        random seed of these examples.
    """
    objective = objective or ObjectiveOptions()
    objective.check()
    for name, value in (("show", show), ("seed", seed)):
        if not 0 <= value < 2**63:
            raise ConfigError(f"--{name} is {value}; it must be from 0 to {2**63 - 1}.")
    if json and show:
        raise ConfigError("--json and --show both go to stdout. Leave one out.")
    if out is None and tokenizer is None and show and len(corpus) == 1 and Path(corpus[0]).is_dir():
        _print_examples(Path(corpus[0]), objective, show, seed)
        return
    built, out = _build(corpus, tokenizer, out, options, workers, overwrite)
    if json:
        print_json(built.manifest["counts"] | _times(built))
    else:
        _print_summary(built)
        print(f"corpus: {out}")
    if show:
        _print_examples(out, objective, show, seed)


def _build(
    corpus: Sequence[str],
    tokenizer: str | None,
    out: Path | None,
    options: CorpusOptions | None,
    workers: int | None,
    overwrite: bool,
) -> tuple[Built, Path]:
    if tokenizer is None or out is None:
        missing = "--tokenizer" if tokenizer is None else "--out"
        raise ConfigError(
            f"{missing} is missing. To print examples of a corpus, give its folder and --show 3."
        )
    if not corpus:
        raise ConfigError("No text was named. Name at least one file before the options.")

    from filbert.checkpoints.opening import find_model, read_tokenizer
    from filbert.data.blocks import default_workers
    from filbert.data.build import build_corpus
    from filbert.data.streams import BadRow

    try:
        with _progress(corpus) as (on_progress, on_bad):
            built = build_corpus(
                corpus,
                read_tokenizer(find_model(tokenizer, tokenizer_only=True)),
                out,
                options=options,
                workers=default_workers() if workers is None else workers,
                overwrite=overwrite,
                on_progress=on_progress,
                on_bad=on_bad,
            )
    except BadRow as error:
        raise BadRow(f"{error} --skip-bad-lines leaves such lines out.") from error
    return built, out


def _print_examples(folder: Path, objective: ObjectiveOptions, count: int, seed: int) -> None:
    from filbert.data.instances import show_examples
    from filbert.data.shards import TOKENIZER, Corpus
    from filbert.text.tokenizer import Tokenizer

    opened = Corpus.open(folder)
    tokenizer = Tokenizer.load(folder / TOKENIZER)
    for text in show_examples(opened, tokenizer, objective, count, seed):
        print(text)


def _times(built: Built) -> dict[str, Any]:
    """Return seconds and speed of a build; the speed is None if nothing was left to do."""
    speed = built.num_bytes / 1e6 / built.seconds if built.num_bytes else None
    return {
        "shards": len(built.manifest["shards"]),
        "kept_shards": built.kept_shards,
        "seconds": round(built.seconds, 2),
        "workers": built.workers,
        "megabytes_per_second": speed and round(speed, 3),
        "megabytes_per_second_per_worker": speed and round(speed / built.workers, 3),
    }


def _print_summary(built: Built) -> None:
    counts, times = built.manifest["counts"], _times(built)
    finished = f", {built.kept_shards:,} of them were finished before" if built.kept_shards else ""
    rows = [
        *((key, f"{counts[key]:,}") for key in ("documents", "sentences", "tokens")),
        ("unknown tokens", f"{counts['unknown_tokens'] / counts['tokens']:.3%}"),
        ("duplicate documents", f"{counts['duplicate_documents']:,}"),
        *((key.replace("_", " "), f"{counts[key]:,}") for key in _RARE if counts[key]),
        ("shards", f"{times['shards']:,}{finished}"),
        ("seconds", f"{built.seconds:,.1f}"),
    ]
    if built.num_bytes:
        speed, each = times["megabytes_per_second"], times["megabytes_per_second_per_worker"]
        rows += [
            ("text", f"{counts['read_bytes'] / 1e6:,.1f} MB"),
            ("speed", f"{speed:,.2f} MB/s, {each:,.2f} MB/s per worker"),
        ]
    print_table(("", ""), rows, texts=(0,))


@contextmanager
def _progress(
    paths: Sequence[str],
) -> Iterator[tuple[Callable[[BuildProgress], None], Callable[[InputError], None]]]:
    """Print megabytes, tokens and speed on stderr, and the first bad lines."""
    from rich.console import Console
    from rich.progress import BarColumn, SpinnerColumn, TextColumn, TimeRemainingColumn
    from rich.progress import Progress as Bars

    console = Console(stderr=True)
    bars = Bars(
        SpinnerColumn(),
        BarColumn(),
        TextColumn("{task.description}"),
        TimeRemainingColumn(),
        console=console,
        disable=not console.is_terminal,
        transient=True,
    )
    task = bars.add_task("hashing the input", total=size_of_text(paths))
    num_bad, show = 0, progress_printer()

    def on_progress(progress: BuildProgress) -> None:
        size = progress.num_bytes / 1e6
        line = (
            f"{size:,.0f} MB, {progress.num_tokens / 1e6:,.1f} M tokens, "
            f"{size / max(progress.seconds, 1e-9):,.2f} MB/s"
        )
        bars.update(task, completed=progress.num_bytes, description=line)
        show(line)

    def on_bad(error: InputError) -> None:
        nonlocal num_bad
        num_bad += 1
        if num_bad <= _BAD_PRINTED:
            console.print(f"left out: {error}", markup=False, highlight=False, soft_wrap=True)
        elif num_bad == _BAD_PRINTED + 1:
            console.print("left out: further lines, which are only counted.")

    with bars:
        yield on_progress, on_bad


def size_of_text(paths: Sequence[str]) -> int | None:
    """Return the bytes of all files if they are plain text, so that the rest can be estimated."""
    from filbert.data.records import WITH_COLUMNS
    from filbert.data.streams import kind_of

    total = 0
    for path in paths:
        suffix, packed = kind_of(path)
        if packed or suffix in WITH_COLUMNS or not Path(path).is_file():
            return None
        total += Path(path).stat().st_size
    return total
