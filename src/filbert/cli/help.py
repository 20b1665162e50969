"""The help pages, and completion of commands, options and file names in a shell."""

from __future__ import annotations

import re
from dataclasses import fields
from pathlib import Path
from typing import Any, Literal

from cyclopts.completion import ShellDetectionError, detect_shell
from cyclopts.help import DefaultFormatter, HelpEntry, HelpPanel
from rich.console import Console, ConsoleOptions

from filbert.errors import ConfigError

# A longer list of options is divided into sections.
_SHORT = 20
# Options of these classes that come before the sections, because every user needs them.
_FIRST = ("model", "train", "dev", "out", "overwrite", "resume", "device", "host", "port", "json")

_plain = DefaultFormatter()


def _sections() -> dict[str, tuple[type, ...]]:
    """Titles of sections, and the classes whose options belong there."""
    from filbert.cli.bulk import BulkFlags
    from filbert.data.columns import ColumnNames
    from filbert.data.masking import ObjectiveOptions
    from filbert.serve.settings import Batching, Operation, Settings
    from filbert.tasks.base import TaskOptions
    from filbert.train.options import RunOptions, TrainOptions
    from filbert.train.pretrain_options import ModelOptions

    return {
        "A new model": (ModelOptions,),
        "Training examples out of text": (ObjectiveOptions,),
        "Training": (TrainOptions, RunOptions),
        "What the task reads and learns": (TaskOptions,),
        "Columns": (ColumnNames,),
        "How it runs": (Operation, BulkFlags),
        "What is let in": (Settings, Batching),
    }


def print_panel(console: Console, options: ConsoleOptions, panel: HelpPanel) -> None:
    """Print one list of arguments, options or commands; long lists of options in sections."""
    if panel.format != "parameter" or len(panel.entries) <= _SHORT:
        _plain(console, options, panel)
        return
    rest = list(panel.entries)
    parts = []
    for title, kinds in _sections().items():
        names = {f.name.replace("_", "-") for kind in kinds for f in fields(kind)} - set(_FIRST)
        own = [entry for entry in rest if _name(entry) in names and not entry.required]
        if len(own) > 2:
            rest = [entry for entry in rest if entry not in own]
            parts.append(panel.copy(title=title, entries=own))
    for part in [panel.copy(entries=rest), *parts]:
        _plain(console, options, part)


def _name(entry: HelpEntry) -> str:
    return next(iter(entry.positive_names), "").removeprefix("--")


Shell = Literal["bash", "zsh", "fish"]


def install_completion(*, shell: Shell | None = None, out: Path | None = None) -> None:
    """Let the Tab key complete commands, options and file names in bash, zsh and fish.

    Parameters
    ----------
    shell:
        by default the one that runs this command.
    out:
        file to write; by default the place where the shell looks for it.
    """
    from filbert.cli.main import app

    try:
        kind: Any = shell or detect_shell()
    except ShellDetectionError as error:
        raise ConfigError("Which shell? Add --shell bash, zsh or fish.") from error
    path = app.install_completion(shell=kind, output=out, add_to_startup=out is None)
    path.write_text(_with_file_names(path.read_text("utf-8"), kind), encoding="utf-8")
    print(f"Wrote {path}. Open a new window to use it.")


def _with_file_names(script: str, shell: str) -> str:
    """Return a completion script that offers file names for every value.

    cyclopts offers them only for the type `Path`. A model may be a file, a folder or a name, so its
    type is `str`; fish offers files by itself.
    """
    if shell == "bash":
        return script.replace("complete -F ", "complete -o bashdefault -o default -F ")
    if shell == "zsh":
        lines = map(_zsh_line, script.replace("_cyclopts_filbert", "_filbert").split("\n"))
        return "\n".join(lines)
    return script


def _zsh_line(line: str) -> str:
    """Add the missing action to '--option[its help]:value' and '1:argument'."""
    match = re.fullmatch(r"(\s+'(?:\*?-|\d+:|\*:).*)('(?: \\)?)", line)
    if match is None:
        return line
    without_help = re.sub(r"\[.*\]", "", re.sub(r"\\.", "", match[1]))
    return f"{match[1]}:_files{match[2]}" if without_help.count(":") == 1 else line
