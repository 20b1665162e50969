"""filbert check, and its report on the terminal."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from filbert.cli import arguments
from filbert.cli.output import print_json, print_table
from filbert.data.streams import require_file
from filbert.errors import ConfigError
from filbert.tasks.base import task_class
from filbert.train.options import LabelledFileOptions, from_flat

if TYPE_CHECKING:
    from filbert.tasks.doctor import Problem, Report, SplitReport

_LABELS_SHOWN = 6


def check(
    files: tuple[str, ...],
    /,
    *,
    task: Annotated[str, arguments.shown_as("TASK", f"task of the rows: {arguments.TASKS}")],
    model: arguments.OptionalModel = None,
    max_length: arguments.MaxLength = None,
    near_duplicates: bool = False,
    options: arguments.LabelledFile = None,
    json: arguments.AsJson = False,
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

    data = from_flat(LabelledFileOptions, vars(options) if options else {})
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
