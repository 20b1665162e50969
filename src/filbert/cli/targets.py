"""Where a verb may write a folder."""

from __future__ import annotations

from pathlib import Path

from filbert.errors import InputError


def check_target(target: Path, place: Path, *, overwrite: bool, markers: tuple[str, ...]) -> str:
    """The file that shows a folder to be replaceable.

    Args:
        target: the folder to write.
        place: of the model that it is made from.
        overwrite: it may be there already.
        markers: files of which such a folder has one.

    Raises:
        InputError: the target is taken, or it is the source.
    """
    home = (place if place.is_dir() else place.parent).resolve()
    resolved = target.resolve()
    if home == resolved or resolved in home.parents:
        raise InputError(f"{target} holds the source. Name another folder to write to.")
    if not target.exists() or (target.is_dir() and not any(target.iterdir())):
        return markers[0]
    if not overwrite:
        raise InputError(f"{target} exists. Name another folder, or add --overwrite.")
    return next((name for name in markers if (target / name).is_file()), markers[0])
