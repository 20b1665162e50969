"""filbert corpus."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import Parameter

from filbert.cli.arguments import AsJson
from filbert.cli.output import print_json, print_table, progress_printer
from filbert.data.shards import CorpusOptions
from filbert.errors import ConfigError

if TYPE_CHECKING:
    from filbert.data.build import BuildProgress, Built

# Counts that are printed only if they are not zero.
_RARE = (
    "documents_without_tokens", "sentences_without_tokens", "cuts_in_long_documents",
)  # fmt: skip


def corpus(
    *corpus: str,
    tokenizer: str,
    out: Path,
    workers: int | None = None,
    options: Annotated[CorpusOptions | None, Parameter(name="*")] = None,
    overwrite: bool = False,
    json: AsJson = False,
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
        processes; by default one per core, at most 4. The output does not depend on it.
    overwrite:
        delete another corpus in the folder.
    """
    if not corpus:
        raise ConfigError("No text was named. Name at least one file before the options.")

    from filbert.checkpoints.opening import find_model, read_tokenizer
    from filbert.data.build import build_corpus

    with _progress(corpus) as on_progress:
        built = build_corpus(
            corpus,
            read_tokenizer(find_model(tokenizer, tokenizer_only=True)),
            out,
            options=options,
            workers=workers,
            overwrite=overwrite,
            on_progress=on_progress,
        )
    if json:
        print_json(built.manifest["counts"] | _times(built))
    else:
        _print_summary(built)
        print(f"corpus: {out}")


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
def _progress(paths: Sequence[str]) -> Iterator[Callable[[BuildProgress], None]]:
    """Print megabytes, tokens and speed on stderr."""
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
    show = progress_printer()

    def on_progress(progress: BuildProgress) -> None:
        size = progress.num_bytes / 1e6
        line = (
            f"{size:,.0f} MB, {progress.num_tokens / 1e6:,.1f} M tokens, "
            f"{size / max(progress.seconds, 1e-9):,.2f} MB/s"
        )
        bars.update(task, completed=progress.num_bytes, description=line)
        show(line)

    with bars:
        yield on_progress


def size_of_text(paths: Sequence[str]) -> int | None:
    """Return the bytes of all files if they are plain text, so that the rest can be estimated."""
    from filbert.data.records import WITH_COLUMNS
    from filbert.data.streams import suffix_of

    total = 0
    for path in paths:
        is_plain = suffix_of(path) == Path(path).suffix.lower() not in WITH_COLUMNS
        if not is_plain or not Path(path).is_file():
            return None
        total += Path(path).stat().st_size
    return total
