"""The run folder: made late, replaced whole, and found again by a run that was interrupted."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from filbert.errors import ConfigError, InputError, RunError
from filbert.files import write_json
from filbert.model.config import PRECISIONS
from filbert.model.precision import Precision, choose_precision
from filbert.train.distributed import Parallel
from filbert.train.log import say
from filbert.train.options import RunOptions

# Saved states of a run, of the first of its two stages, and of several seeds what is done.
_STATES = (
    "state/step-*", "stage-1/state/step-*", "seeds/*/state/step-*", "seeds/*/model/config.json",
    "folds/*/state/step-*", "folds/*/model/config.json",
)  # fmt: skip
# What a kill leaves while run.json is written for the first time.
_UNFINISHED = re.compile(r"\.run\.json\.[0-9a-f]{12}\.tmp")


def check_out(options: RunOptions) -> None:
    """Refuse an output folder that holds something."""
    out = Path(options.out)
    if not out.exists():
        return
    if not out.is_dir():
        raise ConfigError(f"{out} is a file; --out names the run folder to make.")
    if all(_UNFINISHED.fullmatch(path.name) for path in out.iterdir()):
        return
    if not (out / "run.json").is_file():
        raise ConfigError(f"{out} is not empty and holds no run; name a new folder with --out.")
    if not options.overwrite and not options.resume:
        is_done = _is_done(read_run(out))
        kind, way = ("run", "") if is_done else ("unfinished run", "continue it with --resume, ")
        raise ConfigError(
            f"{out} already holds {'a' if is_done else 'an'} {kind}. "
            f"Name another --out, {way}or replace it with --overwrite."
        )


def read_run(folder: Path) -> dict[str, Any] | None:
    """Return the content of run.json; None where there is none, or none that can be read."""
    try:
        content = json.loads((folder / "run.json").read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    return content if isinstance(content, dict) else None


def finished_run(out: Path) -> dict[str, Any] | None:
    """Return run.json of a finished run in `out`, for a --resume that has nothing to do.

    A replacement that was complete but not yet in its place is put there.
    """
    new = _replacement(out)
    if _is_done(read_run(new)):
        _swap(new, out)
    run = None if new.exists() else read_run(out)
    return run if _is_done(run) else None


def settle_precision(options: RunOptions, parallel: Parallel) -> Precision:
    """Return the number format of a run: as asked, as before the interruption, or the fast one.

    "auto" goes by the clock, and a resumed run must not change its format because of that.
    """
    chosen = choose_precision(options.precision, parallel.device)
    if parallel.is_first and options.resume and options.precision == "auto" and options.out:
        place = Path(options.out).absolute()
        new = _replacement(place)
        run = read_run(new if new.exists() else place)
        if run is not None and not _is_done(run) and run.get("precision") in PRECISIONS:
            chosen = Precision(run["precision"], "as in the interrupted run")
    return Precision(*parallel.broadcast(tuple(chosen)))


def already_finished(
    options: RunOptions, fingerprint: str, parallel: Parallel
) -> dict[str, Any] | None:
    """Return run.json of this very run if --resume finds it finished; {} on other ranks."""
    if not options.resume:
        return None
    out = options.out
    place = Path(out).absolute()
    finished: dict[str, Any] | None
    finished = parallel.broadcast(finished_run(place) if parallel.is_first else None)
    if finished is not None and finished.get("fingerprint") == fingerprint:
        say(f"{out} holds this run, and it is finished; nothing was done.")
        return finished if parallel.is_first else {}
    if finished is not None:
        raise finished_otherwise(out)
    return None


def finished_otherwise(out: str) -> ConfigError:
    """Return the error of a --resume that finds another, finished run."""
    return ConfigError(
        f"{out} holds a finished run with other options, data or model. "
        f"Name another --out, or give --overwrite in place of --resume."
    )


@contextmanager
def folder_of_all(run: RunOptions, facts: dict[str, Any], parallel: Parallel) -> Iterator[Path]:
    """Yield the run folder on all ranks; its run.json records how the block ended.

    `facts` is run.json before the first step; the block adds that of the end. The saved states of a
    finished run are removed, unless `run.keep_states`.

    Raises:
        ConfigError: The disk has too little space for the files of the run.
    """
    if not parallel.is_first:
        yield Path(parallel.broadcast(None))
        return
    out = Path(run.out).absolute()
    _check_space(out, facts["model"], saves=run.save_every != 0)
    with run_folder(out, resume=run.resume) as folder:
        write_json(folder / "run.json", facts | {"status": "running"})
        try:
            yield Path(parallel.broadcast(str(folder)))
        except BaseException as error:
            stopped = "interrupted" if isinstance(error, KeyboardInterrupt) else "failed"
            write_json(folder / "run.json", facts | {"status": stopped})
            raise
        write_json(folder / "run.json", facts)
    if not run.keep_states:
        shutil.rmtree(out / "state", ignore_errors=True)


def _check_space(out: Path, model: Mapping[str, Any], *, saves: bool) -> None:
    """Refuse a run whose model and first saved state do not fit on the disk."""
    # float32; a state has the trained weights, the best ones, and two moments of each.
    states = 4 * model["trained"] if saves else 0
    needed = 4 * (model["parameters"] + states)
    folder = next(path for path in out.parents if path.exists())
    free = shutil.disk_usage(folder).free
    if free < needed:
        hint = ", or save no states with --save-every 0" if saves else ""
        raise ConfigError(
            f"The run needs {needed / 1e6:,.0f} MB or more in {folder}, and {free / 1e6:,.0f} MB "
            f"are free. Free some space, name another --out{hint}."
        )


@contextmanager
def run_folder(out: Path, *, resume: bool = False) -> Iterator[Path]:
    """Yield the folder to write a run in: `out`, or a hidden sibling if `out` holds an earlier run.

    The sibling takes the earlier run's place at the end. When the block fails, what it wrote is
    removed, except after an interruption or a RunError: there the log is what the user needs to
    see, and the states are what --resume needs.

    Raises:
        InputError: the folder cannot be made.
    """
    new = _replacement(out)
    run = read_run(out)
    continues = resume and (new.exists() or (run is not None and not _is_done(run)))
    replaces = new.exists() if continues else run is not None
    folder = new if replaces else out
    if not continues:
        shutil.rmtree(new, ignore_errors=True)
    made = [path for path in (folder, *folder.parents) if not path.exists()]
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(
            f"The run folder {out} cannot be made: {error.strerror}. Name another --out."
        ) from error
    try:
        yield folder
    except BaseException as error:
        keeps_log = isinstance(error, KeyboardInterrupt | RunError) and not replaces
        has_states = any(any(folder.glob(pattern)) for pattern in _STATES)
        if not continues and not keeps_log and not has_states:
            shutil.rmtree(folder, ignore_errors=True)
            for path in made[1:]:
                path.rmdir()
        raise
    if replaces:
        _swap(folder, out)


def _is_done(run: dict[str, Any] | None) -> bool:
    return run is not None and run.get("status") in ("done", "stopped early")


def _replacement(out: Path) -> Path:
    """Return the folder of the new run that will replace the one in `out`."""
    return out.with_name(f".{out.name}.new")


def _swap(new: Path, out: Path) -> None:
    old = out.with_name(f".{out.name}.old")
    shutil.rmtree(old, ignore_errors=True)
    if out.exists():
        out.rename(old)
    new.rename(out)
    shutil.rmtree(old, ignore_errors=True)
