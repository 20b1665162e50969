"""The run folder: made late, put back as it was when the run comes to nothing."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from secrets import token_hex

from filbert.errors import ConfigError, InputError, RunError


def check_out(out: Path, overwrite: bool) -> None:
    """Refuse an output folder that holds something.

    Raises:
        ConfigError: it holds a run and `overwrite` is off, or it holds something that is no run.
    """
    if not out.exists():
        return
    if not out.is_dir():
        raise ConfigError(f"{out} is a file; --out names the run folder to make.")
    if not any(out.iterdir()):
        return
    if not (out / "run.json").is_file():
        raise ConfigError(f"{out} is not empty and holds no run; name a new folder with --out.")
    if not overwrite:
        raise ConfigError(
            f"{out} already holds a run. Name another --out, or replace it with --overwrite."
        )


@contextmanager
def run_folder(out: Path) -> Iterator[Path]:
    """The folder to write a run in: `out`, or a hidden sibling while an earlier run stands there.

    The sibling takes the earlier run's place at the end. When the block fails, what it wrote is
    removed, except in a new run after an interruption or a RunError: there the log is what the user
    needs to see.

    Raises:
        InputError: the folder cannot be made.
    """
    replaces = (out / "run.json").is_file()
    folder = out.with_name(f".{out.name}.{token_hex(4)}.new") if replaces else out
    made = [path for path in (folder, *folder.parents) if not path.exists()]
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(f"The run folder {out} cannot be made: {error.strerror}.") from error
    try:
        yield folder
    except BaseException as error:
        if replaces or not isinstance(error, KeyboardInterrupt | RunError):
            shutil.rmtree(folder, ignore_errors=True)
            for path in made[1:]:
                path.rmdir()
        raise
    if replaces:
        old = out.with_name(f".{out.name}.{token_hex(4)}.old")
        out.rename(old)
        folder.rename(out)
        shutil.rmtree(old, ignore_errors=True)
