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
    """An empty folder at `out`; an earlier run there is moved aside and deleted at the end.

    When the block fails, the earlier run is put back. Without one, what the block wrote is removed,
    except after an interruption or a RunError: then the log is what the user needs to see.

    Raises:
        InputError: the folder cannot be made.
    """
    old = out.with_name(f".{out.name}.{token_hex(4)}.old") if out.is_dir() else None
    try:
        if old:
            out.rename(old)
        out.mkdir(parents=True)
    except OSError as error:
        raise InputError(f"The run folder {out} cannot be made: {error.strerror}.") from error
    try:
        yield out
    except BaseException as error:
        if old is not None:
            shutil.rmtree(out, ignore_errors=True)
            old.rename(out)
        elif not isinstance(error, KeyboardInterrupt | RunError):
            shutil.rmtree(out, ignore_errors=True)
        raise
    if old is not None:
        shutil.rmtree(old, ignore_errors=True)
