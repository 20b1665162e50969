"""A teacher's answers on the disk: written once, read row by row.

    manifest.json                 of which teacher, to which rows
    answers-00000.safetensors     of the first rows: their answers end to end, and where each ends

A file appears when it is whole, so an interrupted writing goes on behind the last one. Nothing is
ever pickled.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby
from pathlib import Path
from typing import Any

import safetensors.torch
import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor

from filbert.data.examples import Example
from filbert.errors import ConfigError, FormatError
from filbert.files import read_json, write_atomically, write_json
from filbert.train.log import progress_bar
from filbert.train.teacher import StreamedAnswers

_ROWS = 2_048
_MANIFEST = "manifest.json"


def check_cache(folder: Path, key: str, examples: Sequence[Example]) -> None:
    """Make sure that answers can be written to a folder, or are there; writes nothing.

    Args:
        folder: may be missing.
        key: of teacher and rows; a folder of another one is refused.
        examples: of all rows, which count from 0.

    Raises:
        ConfigError: the folder holds something else.
    """
    manifest = folder / _MANIFEST
    if manifest.is_file():
        if read_json(manifest) != _wanted(key, examples):
            raise ConfigError(
                f"{folder} holds the answers of another teacher, or to other rows or lengths. Name "
                "another folder with --cache, or delete that one."
            )
    elif folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise ConfigError(f"{folder} holds something else; name a new folder with --cache.")


def write_answers(
    folder: Path, key: str, examples: Sequence[Example], answers: StreamedAnswers
) -> None:
    """Write what is not there yet.

    Args:
        folder: made when missing; the other arguments are those of `check_cache`.
        answers: the teacher's.

    Raises:
        ConfigError: the folder holds something else.
        InputError: the disk is full, or the folder cannot be made.
    """
    check_cache(folder, key, examples)
    rows = [list(row) for _, row in groupby(examples, key=lambda example: example.row)]
    assert [row[0].row for row in rows] == [*range(len(rows))]
    if not (folder / _MANIFEST).is_file():
        write_json(folder / _MANIFEST, _wanted(key, examples))
    with progress_bar() as bar:
        shown = bar.add_task("teacher's answers", total=len(rows))
        for start in range(0, len(rows), _ROWS):
            part = rows[start : start + _ROWS]
            path = _file(folder, start)
            if not path.is_file():
                found = answers.by_row([example for row in part for example in row])
                ends = torch.tensor([len(answer) for answer in found]).cumsum(0)
                content = {"answers": torch.cat(found).contiguous(), "ends": ends}
                write_atomically(path, safetensors.torch.save(content))
            bar.update(shown, advance=len(part))


class CachedAnswers:
    """A teacher's answers, read from what `write_answers` wrote.

    Raises:
        FormatError: a file is missing or damaged.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._open: dict[int, tuple[Any, list[int]]] = {}

    def __call__(self, examples: Sequence[Example]) -> Tensor:
        """The answers to whole rows, one after the other; see `SoftLabels`."""
        return torch.cat([self._read(row) for row, _ in groupby(examples, key=lambda e: e.row)])

    def _read(self, row: int) -> Tensor:
        start, inside = row - row % _ROWS, row % _ROWS
        path = _file(self.folder, start)
        try:
            if start not in self._open:
                file: Any = safe_open(path, "pt")
                self._open[start] = (file.get_slice("answers"), file.get_tensor("ends").tolist())
            answers, ends = self._open[start]
            return answers[ends[inside - 1] if inside else 0 : ends[inside]]  # type: ignore[no-any-return]
        except (OSError, SafetensorError, IndexError) as error:
            raise FormatError(
                f"{path}: the teacher's answers cannot be read: {error}. Delete the file, and they "
                "are computed again."
            ) from error


def _wanted(key: str, examples: Sequence[Example]) -> dict[str, Any]:
    return {"key": key, "rows": examples[-1].row + 1, "rows_per_file": _ROWS}


def _file(folder: Path, first_row: int) -> Path:
    return folder / f"answers-{first_row // _ROWS:05d}.safetensors"
