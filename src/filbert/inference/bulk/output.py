"""Where answers go: a stream, or a file that a killed run can be continued from."""

from __future__ import annotations

import os
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any, Protocol

from filbert.data.build import locked
from filbert.errors import ConfigError, InputError
from filbert.files import flush
from filbert.inference.bulk.journal import Entry, append, read_journal, whole_entries, write_journal
from filbert.inference.bulk.work import Part, Work, plan_of

ANSWERS, JOURNAL = "answers", "journal.jsonl"
_WORDS = {"made_by": "version of filbert or torch", "model": "model"}


class Output(Protocol):
    """Takes the answers to one chunk after the other.

    Attributes:
        kept: the chunks that an earlier run did; what is added comes behind them.
    """

    @property
    def kept(self) -> list[Entry]: ...  # noqa: D102

    def add(self, part: Part) -> None:
        """The next chunk's answers."""
        ...


class Stream:
    """Standard output or a pipe: answers leave at once, and nothing is kept."""

    def __init__(self, stream: IO[str]) -> None:
        self.kept: list[Entry] = []
        self._stream = stream

    def add(self, part: Part) -> None:
        """Write the answers."""
        self._stream.write(part.content.decode())


class Unfinished:
    """A file in the making: a folder beside it, with the answers so far and their journal.

    Attributes:
        folder: that folder, NAME.unfinished.
        kept: chunks that are done, in order.
    """

    def __init__(self, out: Path, work: Work, *, is_resumable: bool) -> None:
        self.out, self.work, self.is_resumable = out, work, is_resumable
        self.folder = folder_of(out)
        self.kept: list[Entry] = []
        self._file: IO[bytes] | None = None

    @property
    def num_rows(self) -> int:
        """Rows that are done."""
        return sum(entry.rows for entry in self.kept)

    def begin(self) -> None:
        """From nothing."""
        self.clear()
        self._file = (self.folder / ANSWERS).open("wb")
        self._file.write(self.work.beginning)

    def go_on(self, plan: dict[str, Any], entries: list[Entry]) -> int:
        """From what an earlier run left; how many of its rows were damaged and are dropped.

        Raises:
            ConfigError: it had another model or other options.
        """
        other = _differences(plan, plan_of(self.work))
        if other:
            raise ConfigError(
                f"{self.folder} was begun with another {' and another '.join(other)}. Give the "
                "same as then, or --overwrite to begin anew."
            )
        path, start = self.folder / ANSWERS, len(self.work.beginning)
        self.kept = whole_entries(path, start, entries)
        self._file = path.open("r+b")
        self._file.truncate(start + sum(entry.size for entry in self.kept))
        self._file.seek(0, os.SEEK_END)
        write_journal(self.folder / JOURNAL, plan, self.kept)
        return sum(entry.rows for entry in entries) - self.num_rows

    def add(self, part: Part) -> None:
        """Write the answers; once this returns they outlive a kill."""
        assert self._file is not None
        self._file.write(part.content)
        crc = zlib.crc32(part.content)
        entry = Entry(part.num_rows, part.num_truncated, part.digest, len(part.content), crc)
        if self.is_resumable:
            self._file.flush()
            os.fsync(self._file.fileno())
            if self.kept:
                append(self.folder / JOURNAL, entry)
            else:
                write_journal(self.folder / JOURNAL, plan_of(self.work), [entry])
        self.kept.append(entry)

    def finish(self) -> None:
        """The file gets its name."""
        self.close()
        sizes = [entry.size for entry in self.kept]
        done = self.work.complete(self.folder / ANSWERS, sizes, self.num_rows)
        flush(done)
        os.replace(done, self.out)
        flush(self.out.parent)
        self.clear()
        self.folder.rmdir()

    def close(self) -> None:
        """Let go of the file."""
        if self._file is not None:
            self._file.close()

    def clear(self) -> None:
        """Delete what is ours: the answers first, so that a journal without them says: finished."""
        for name in (ANSWERS, f"{ANSWERS}.parquet", JOURNAL, f"{JOURNAL}.tmp"):
            (self.folder / name).unlink(missing_ok=True)


def folder_of(out: Path) -> Path:
    """Where the unfinished work for a file lies."""
    return out.with_name(f"{out.name}.unfinished")


def begun_precision(out: Path) -> str | None:
    """What an unfinished file was begun in, float32 or bf16; None where there is neither.

    Raises:
        InputError: the place cannot be written to.
        FormatError: its journal is damaged.
    """
    found = read_journal(folder_of(_checked(out)) / JOURNAL)
    noted = None if found is None else (found[0].get("options") or {}).get("precision")
    # Weights that are bf16 themselves run as "float32": they need no casts.
    known = {
        "float32": ["float32", "torch.float32"],
        "bf16": ["float32", "torch.bfloat16"],
    }
    return next((name for name, content in known.items() if content == noted), None)


@contextmanager
def unfinished(
    out: Path,
    work: Work,
    *,
    is_resumable: bool,
    resume: bool = False,
    overwrite: bool = False,
    say: Callable[[str], None] = lambda line: None,
) -> Iterator[Unfinished | None]:
    """A file in the making, which appears under its name when the block succeeds.

    After a failure what is done is kept, for `resume`; the old file, if any, is as it was.

    Args:
        out: the file to make.
        work: what is done to the rows.
        is_resumable: the rows can be read again.
        resume: go on where an earlier run ended; None is given where it had ended well.
        overwrite: drop what an earlier run left.
        say: is told what is kept.

    Raises:
        ConfigError: there is unfinished work and neither option, another's work, or none to resume.
        InputError: the place cannot be written to.
    """
    out = _checked(out)
    with locked(folder_of(out)) as folder:
        file = Unfinished(out, work, is_resumable=is_resumable)
        _refuse_others(folder)
        found = None if overwrite else read_journal(folder / JOURNAL)
        if found and not (folder / ANSWERS).exists():
            found = None  # it was killed after the file had got its name
            if resume:
                file.clear()
                folder.rmdir()
                say(f"{out} is complete; there is nothing left to do.")
                yield None
                return
        try:
            _start(file, found, resume, say)
        except BaseException:
            file.close()
            if not found:
                file.clear()
                folder.rmdir()
            raise
        try:
            yield file
            file.finish()
        except BaseException:
            file.close()
            if not (is_resumable and file.kept):
                file.clear()
                folder.rmdir()
            elif folder.exists():
                say(f"{file.num_rows:,} rows are kept; with --resume the same command goes on.")
            raise


def _start(
    file: Unfinished,
    found: tuple[dict[str, Any], list[Entry]] | None,
    resume: bool,
    say: Callable[[str], None],
) -> None:
    if found and not resume:
        rows = sum(entry.rows for entry in found[1])
        raise ConfigError(
            f"{file.folder} holds {rows:,} rows of an unfinished run. Go on with --resume, or "
            "begin anew with --overwrite."
        )
    # Answers without a journal: a run that ended before its first chunk was whole.
    was_begun = (file.folder / ANSWERS).exists()
    if resume and not found and not was_begun and file.out.exists():
        raise ConfigError(
            f"{file.out} is there and no unfinished work beside it, so there is nothing to "
            "resume. Leave out --resume to make it anew."
        )
    if not found:
        file.begin()
        return
    damaged = file.go_on(*found)
    if damaged:
        say(f"{damaged:,} rows of the unfinished run are damaged; they are answered again.")
    say(f"going on after {file.num_rows:,} rows.")


def _checked(out: Path) -> Path:
    """The file itself, behind all links; refused where no file can be."""
    try:
        out = Path(os.path.realpath(out))
        if out.is_dir():
            raise InputError(f"{out} is a folder; --out names a file.")
        if not out.parent.is_dir():
            raise InputError(f"{out} cannot be written. Make the folder {out.parent} first.")
        if not os.access(out.parent, os.W_OK):
            raise InputError(f"{out} cannot be written: permission denied.")
    except OSError as error:
        raise InputError(
            f"{out} cannot be written: {error.strerror}. Name another place."
        ) from error
    return out


def _refuse_others(folder: Path) -> None:
    ours = (ANSWERS, f"{ANSWERS}.parquet", JOURNAL, f"{JOURNAL}.tmp")
    if any(path.name not in ours for path in folder.iterdir()):
        raise ConfigError(
            f"{folder} holds other files. Move them away: unfinished answers are kept there."
        )


def _differences(found: dict[str, Any], plan: dict[str, Any]) -> list[str]:
    """What differs between the work of a journal and ours, in words."""
    other = [word for key, word in _WORDS.items() if found.get(key) != plan[key]]
    ours, theirs = plan["options"], found.get("options") or {}
    return other + [f"--{name}" for name in ours if theirs.get(name) != ours[name]]
