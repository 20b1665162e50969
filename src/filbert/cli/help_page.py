"""How `--help` reads: long lists of options in sections, and no default that says nothing."""

from __future__ import annotations

from dataclasses import fields
from typing import Any

from cyclopts.help import DefaultFormatter, HelpEntry, HelpPanel
from rich.console import Console, ConsoleOptions

from filbert.cli.bulk_flags import BulkFlags
from filbert.data.columns import ColumnNames
from filbert.data.masking import ObjectiveOptions
from filbert.serve.settings import Batching, Operation, Settings
from filbert.tasks.base import TaskOptions
from filbert.train.options import RunOptions, TrainOptions
from filbert.train.pretrain_options import ModelOptions

# A list that is no longer stays whole.
_SHORT = 20
# What is said about the model or the file stands first; these follow, each under its title.
_SECTIONS = {
    "A new model": (ModelOptions,),
    "Training examples out of text": (ObjectiveOptions,),
    "Training": (TrainOptions, RunOptions),
    "What the task reads and learns": (TaskOptions,),
    "Columns": (ColumnNames,),
    "How it runs": (Operation, BulkFlags),
    "What is let in": (Settings, Batching),
}
# They are among the sections' fields, but say what every user wants to know first.
_FIRST = ("model", "train", "dev", "out", "overwrite", "resume", "device", "host", "port", "json")

_plain = DefaultFormatter()


def shown_default(value: Any) -> str | None:
    """A default as the help shows it; a flag that is off and an empty list go without saying."""
    return None if value is None or value is False or value == () else str(value)


def print_panel(console: Console, options: ConsoleOptions, panel: HelpPanel) -> None:
    """Print one list of arguments, options or commands; long lists of options in sections."""
    if panel.format != "parameter" or len(panel.entries) <= _SHORT:
        _plain(console, options, panel)
        return
    rest = list(panel.entries)
    parts = []
    for title, kinds in _SECTIONS.items():
        names = {f.name.replace("_", "-") for kind in kinds for f in fields(kind)} - set(_FIRST)
        own = [entry for entry in rest if _name(entry) in names and not entry.required]
        if len(own) > 2:
            rest = [entry for entry in rest if entry not in own]
            parts.append(panel.copy(title=title, entries=own))
    for part in [panel.copy(entries=rest), *parts]:
        _plain(console, options, part)


def _name(entry: HelpEntry) -> str:
    return next(iter(entry.positive_names), "").removeprefix("--")
