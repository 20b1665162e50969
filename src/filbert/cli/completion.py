"""filbert --install-completion: the Tab key completes commands, options and file names."""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import Literal, cast, get_args

from cyclopts import App

from filbert.errors import ConfigError

Shell = Literal["bash", "zsh", "fish"]

# Below the user's home: where each shell looks, or can be told to look.
_PLACES = {
    "bash": ".local/share/bash-completion/completions/filbert",
    "zsh": ".zsh/completions/_filbert",
    "fish": ".config/fish/completions/filbert.fish",
}
_NEXT = {
    "bash": (
        "New bash windows load it if the package bash-completion is there.\n"
        "If it is not, add this line to ~/.bashrc:\n"
        "  source {path}"
    ),
    "zsh": (
        "Add these lines to ~/.zshrc, unless they are there, and open a new window:\n"
        "  fpath=({folder} $fpath)\n"
        "  autoload -Uz compinit && compinit"
    ),
    "fish": "New fish windows load it.",
}


def completion_command(app: App) -> Callable[..., None]:
    """Return the command that installs the completion script of `app`."""

    def install_completion(*, shell: Shell | None = None, out: Path | None = None) -> None:
        """Let the Tab key complete commands, options and file names in bash, zsh and fish.

        Parameters
        ----------
        shell:
            when not given, what $SHELL names.
        out:
            file to write; when not given, where the shell looks for it.
        """
        name = Path(os.environ.get("SHELL", "")).name if shell is None else shell
        if name not in get_args(Shell):
            raise ConfigError("$SHELL names none of these shells. Add --shell bash, zsh or fish.")
        path = (out or Path.home() / _PLACES[name]).absolute()
        path.parent.mkdir(parents=True, exist_ok=True)
        script = app.generate_completion(shell=cast(Shell, name))
        path.write_text(with_file_names(script, cast(Shell, name)), encoding="utf-8")
        print(f"Wrote {path}")
        if out is None:
            print(_NEXT[name].format(path=path, folder=path.parent))

    return install_completion


def with_file_names(script: str, shell: Shell) -> str:
    """A script of cyclopts, which completes file names only where a type says `Path`.

    A model may be a file, a folder or a name, so its type is `str`; fish offers files by itself.
    """
    if shell == "bash":
        return script.replace("complete -F ", "complete -o bashdefault -o default -F ")
    if shell == "zsh":
        lines = map(_zsh_line, script.replace("_cyclopts_filbert", "_filbert").split("\n"))
        return "\n".join(lines)
    return script


def _zsh_line(line: str) -> str:
    """'--option[its help]:value' and '1:argument' with the action that is missing."""
    found = re.fullmatch(r"(\s+'(?:\*?-|\d+:|\*:).*)('(?: \\)?)", line)
    if found is None:
        return line
    without_help = re.sub(r"\[.*\]", "", re.sub(r"\\.", "", found[1]))
    return f"{found[1]}:_files{found[2]}" if without_help.count(":") == 1 else line
