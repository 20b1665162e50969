"""The help pages, and completion of commands, options and file names in a shell."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any, Literal

from cyclopts.completion import ShellDetectionError, detect_shell
from cyclopts.help import DefaultFormatter, HelpEntry, HelpPanel
from rich.console import Console, ConsoleOptions

from filbert.cli.arguments import shown_as
from filbert.errors import ConfigError

# Of a command with more options, `--help` shows the required ones and these.
_SHORT = 24
_COMMON = (
    "task model teacher data train dev test corpus tokenizer out text-column text-pair-column "
    "label-column epochs steps time lr batch-size max-length seed precision device overwrite "
    "lora resume keep-columns null-threshold backend engine workers method objective pair masking "
    "mask-rate family hidden-size num-hidden-layers models only json"
)
_OF_TASK = {
    "classification": (
        "labels label-columns multilabel positive class-weights contrast on-overflow clean"
    ),
    "regression": "",
    "tagging": "tokens-column tags-column spans-column labels repair-tags",
    "span_qa": "id-column question-column context-column answers-column stride max-answer-length",
    "multiple_choice": "context-column choices-column choice-columns",
    "embedding": "loss scale pooling",
}

_plain = DefaultFormatter()


def print_panel(
    console: Console, options: ConsoleOptions, panel: HelpPanel, words: Sequence[str]
) -> None:
    """Print one list of arguments, options or commands.

    `words` is the command line: with --help-all long lists are whole, with a task its options are
    among those that are shown.
    """
    entries = panel.entries
    if panel.format == "parameter" and len(entries) > _SHORT and "--help-all" not in words:
        task = next((word for word in words if word in _OF_TASK), "classification")
        names = f"{_COMMON} {_OF_TASK[task]}".split()
        entries = [entry for entry in entries if entry.required or _name(entry) in names]
    _plain(console, options, panel.copy(entries=entries))
    if len(entries) < len(panel.entries):
        count = len(panel.entries) - len(entries)
        of_task = " Options of a task: --task TASK --help." * ("task" in map(_name, panel.entries))
        console.print(f"{count} more options: --help-all.{of_task}")
    if panel.title == "Every command" and (examples := examples_of(words[0] if words else "")):
        print("", "Examples:", *(f"  {line}" for line in examples), sep="\n", file=console.file)


def print_usage(console: Console, line: str) -> None:
    """Print the first line of a help page, with the names of optional arguments for `[ARGS]`."""
    from filbert.cli.main import command_app

    if "[ARGS" in line:
        path = re.split(" [^a-z]", line)[0].split()[1:]
        arguments = command_app(path).assemble_argument_collection()
        names = [one.name for one in arguments if one.index is not None and not one.required]
        line = line.replace("[ARGS", f"[{'] ['.join(names)}")
    console.print(line, markup=False, highlight=False)


def examples_of(verb: str) -> list[str]:
    """Return commands that call a verb."""
    text = Path(__file__).with_name("examples.txt").read_text(encoding="utf-8")
    return [line for line in text.splitlines() if f"filbert {verb} " in f"{line} "]


def _name(entry: HelpEntry) -> str:
    return next(iter(entry.positive_names), "").removeprefix("--")


Shell = Literal["bash", "zsh", "fish"]


def install_completion(
    *, shell: Shell | None = None, out: Annotated[Path | None, shown_as("FILE")] = None
) -> None:
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
