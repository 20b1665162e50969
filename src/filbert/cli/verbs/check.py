"""filbert check."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import Parameter

from filbert.cli.flags import flags_of
from filbert.train.options import LabelledFileOptions, from_flat

if TYPE_CHECKING:
    FileFlags = Any
else:
    FileFlags = flags_of(LabelledFileOptions)


def check(
    files: tuple[str, ...],
    /,
    *,
    task: str,
    model: str | None = None,
    max_length: int | None = None,
    near_duplicates: bool = False,
    similarity: float | None = None,
    options: Annotated[FileFlags | None, Parameter(name="*")] = None,
    json: bool = False,
) -> int:
    """Say what is wrong with a data set before anything is trained.

    Exit status 2 when an error was found; warnings and notes leave it at 0.

    Parameters
    ----------
    files:
        the training rows, then dev and test rows when there are any.
    task:
        what the rows are for: classification, regression, tagging, span_qa, multiple_choice or
        embedding.
    model:
        folder, built-in name or Hub id: count its tokens, cuts and unknown tokens instead of words,
        of texts that are cleaned as it cleans them unless --clean says otherwise.
    max_length:
        texts longer than this many tokens count as cut; the model's own limit when not given.
    near_duplicates:
        also look for texts that are almost the same, within and between files; they are then kept
        in memory.
    similarity:
        with --near-duplicates: share of the character 5-grams that both texts have, from 0.6 to 1;
        0.8 when not given.
    options:
        columns and what the task is to read in them.
    json:
        print JSON.
    """
    from filbert.cli.flags import STDIO
    from filbert.data.streams import require_file
    from filbert.errors import ConfigError
    from filbert.tasks.base import check_name

    check_name(task)
    if similarity is not None and not near_duplicates:
        raise ConfigError("--similarity is for --near-duplicates. Add it, or leave this out.")
    if max_length is not None and max_length < 3:
        raise ConfigError(f"max_length is {max_length}; it must be at least 3.")
    if files.count(STDIO) > 1:
        raise ConfigError("stdin is given twice, and can be read once. Save it as a file.")
    for file in files:
        if file != STDIO:
            require_file(file, once=True)

    from rich.console import Console

    from filbert.cli.findings import print_report
    from filbert.cli.flags import print_json
    from filbert.data.doctor import NEAR_THRESHOLD
    from filbert.data.doctor import check as look_through
    from filbert.tasks.base import Task, task_class
    from filbert.tasks.checking import RowCheck
    from filbert.train.log import progress_bar

    data = from_flat(LabelledFileOptions, vars(options) if options else {})
    checked: Task = task_class(task).from_options(data.task, data.columns)
    tokenizer, limit = None, max_length or 512
    if model is not None:
        from filbert.checkpoints.opening import find_model, read_tokenizer
        from filbert.inference.stored_task import with_cleaning_of

        place = find_model(model)
        tokenizer = read_tokenizer(place)
        limit = max_length or tokenizer.max_length or 512
        if data.task.clean is None:
            checked = with_cleaning_of(checked, place)
    threshold = NEAR_THRESHOLD if similarity is None else similarity
    with progress_bar() as bar:
        shown = bar.add_task("check", total=None)
        report = look_through(
            list(zip(split_names(files), files, strict=True)),
            RowCheck(checked),
            data.columns,
            tokenizer=tokenizer,
            max_length=limit,
            near_threshold=threshold if near_duplicates else None,
            progress=lambda count: bar.update(shown, advance=count),
        )
    if json:
        print_json(report.to_dict())
    else:
        print_report(report, Console(emoji=False))
    return 2 if report.worst == "error" else 0


def split_names(files: Sequence[str]) -> list[str]:
    """The first file is train; the others are called by their file names."""
    others = [Path(file).name.split(".")[0] for file in files[1:]]
    names = ["train"]
    for name in others:
        unique, number = name, 1
        while unique in names:
            number += 1
            unique = f"{name}{number}"
        names.append(unique)
    return names
