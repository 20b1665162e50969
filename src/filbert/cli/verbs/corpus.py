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
        threads; by default one per core, at most 4. The output does not depend on it.
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
    facts = built.manifest["counts"] | _times(built)
    if json:
        print_json(facts)
        return
    cells = {name: f"{v:,}" for name, v in facts.items() if v or name.startswith("duplicate")}
    print_table(
        ("", ""), [(name.replace("_", " "), cell) for name, cell in cells.items()], texts=(0,)
    )
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
    }


@contextmanager
def _progress(paths: Sequence[str]) -> Iterator[Callable[[BuildProgress], None]]:
    """Show megabytes, tokens and speed on stderr."""
    from filbert.train.log import progress_bar

    show = progress_printer()
    with progress_bar("seen") as bar:
        task = bar.add_task("corpus", total=size_of_text(paths), seen="hashing the input")

        def on_progress(progress: BuildProgress) -> None:
            size = progress.num_bytes / 1e6
            line = (
                f"{size:,.0f} MB, {progress.num_tokens / 1e6:,.1f} M tokens, "
                f"{size / max(progress.seconds, 1e-9):,.2f} MB/s"
            )
            bar.update(task, completed=progress.num_bytes, seen=line)
            show(line)

        yield on_progress


def size_of_text(paths: Sequence[str]) -> int | None:
    """Return the bytes of all files if they are plain text, so that the rest can be estimated."""
    from filbert.data.records import WITH_COLUMNS
    from filbert.data.streams import suffix_of

    for path in paths:
        if not suffix_of(path) == Path(path).suffix.lower() not in WITH_COLUMNS:
            return None
    return sum(Path(path).stat().st_size for path in paths if Path(path).is_file())
