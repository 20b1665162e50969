"""Real texts that ship with filbert, so that the first run needs no data. Whose: LICENSE.md."""

from __future__ import annotations

from importlib.resources import files
from pathlib import Path

from filbert.errors import InputError

PARTS = ("train", "dev", "test")


def path(name: str) -> Path:
    """Return the path of a sample file, for example `path("toxic_train.csv.gz")`.

    `intents_{train,dev,test}.csv.gz` and `toxic_{train,dev,test}.csv.gz` have the columns
    `text,label`: 30 intents of a bank's customers, and comments that are "ok" or "toxic".

    Raises:
        InputError: No such sample; the message lists them.
    """
    folder = Path(str(files(__name__)))
    names = sorted(file.name for file in folder.glob("*.csv.gz"))
    if name not in names:
        raise InputError(f"there is no sample {name!r}. The samples are: {', '.join(names)}.")
    return folder / name
