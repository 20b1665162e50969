"""Texts on their way to a model: counted, with a bar; at the end a word on empty and cut ones."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterable, Iterator
from types import TracebackType

from filbert.data.records import Row
from filbert.data.texts import Text, holds_text
from filbert.train.log import progress_bar

# Seconds between two lines where there is no terminal for a bar.
_BETWEEN_LINES = 60
# A shorter run has no speed worth telling.
_WORTH_TELLING = 10


class Counts:
    """Counts rows, empty and cut texts as they pass; says at the end what a user should know.

    Args:
        what: the verb.
        max_length: tokens that a text is cut to.
        expected: how many rows there will be in all, told how many have been read; None if nobody
            knows.
    """

    def __init__(
        self,
        what: str,
        max_length: int,
        expected: Callable[[int], int | None] = lambda rows: None,
    ) -> None:
        self.max_length = max_length
        self.num_rows = self.num_empty = self.num_answered = self.num_truncated = 0
        self.num_emptied = 0
        self._what, self._expected = what, expected
        self._num_kept = 0
        self._progress = progress_bar("seen")
        self._bar = self._progress.add_task(what, total=None, seen="")
        self._start = self._told = time.monotonic()

    def __enter__(self) -> Counts:
        self._progress.start()
        self._start = self._told = time.monotonic()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._progress.stop()
        if error is None:
            for line in self._summary():
                print(line, file=sys.stderr)

    def rows(self, rows: Iterable[Row], sequences: Callable[[Row], list[Text]]) -> Iterator[Row]:
        """The same rows, counted."""
        for row in rows:
            self.num_rows += 1
            if not any(map(_has_content, sequences(row))):
                self.num_emptied += holds_text(row)
                self.num_empty += not holds_text(row)
            yield row

    def answered(self, truncated: bool) -> None:
        """One answer has left."""
        self.num_answered += 1
        self.num_truncated += truncated
        if self.num_answered % 256 == 0:
            self._show(self.num_answered)

    def kept(self, rows: int, truncated: int) -> None:
        """An earlier run has answered these."""
        self._num_kept += rows
        self.done(rows, truncated)

    def done(self, rows: int, truncated: int) -> None:
        """Further rows are answered."""
        self.num_answered += rows
        self.num_truncated += truncated
        self._show(self.num_answered)

    def share(self, rows: int, share: float) -> None:
        """Of the next `rows` rows, this share is done."""
        self._show(self.num_answered + int(rows * share))

    def rate(self, answered: int) -> float:
        """Rows per second, without those that an earlier run has answered."""
        return (answered - self._num_kept) / max(time.monotonic() - self._start, 1e-9)

    def _show(self, answered: int) -> None:
        total = self._expected(self.num_rows)
        rate = self.rate(answered)
        self._progress.update(
            self._bar, completed=answered, total=total, seen=f"{rate:,.0f} rows/s"
        )
        now = time.monotonic()
        if self._progress.disable and now - self._told >= _BETWEEN_LINES:
            self._told = now
            print(self._line(answered, total, rate), file=sys.stderr, flush=True)

    def _line(self, answered: int, total: int | None, rate: float) -> str:
        line = f"{self._what}: {answered:,} rows"
        if total is not None:
            line += f" of about {total:,}"
        line += f", {rate:,.0f} rows/s"
        if total is not None and rate:
            line += f", {_minutes(max(0, total - answered) / rate)} left"
        return line

    def _summary(self) -> list[str]:
        rows = f"{self.num_rows:,} row{'' if self.num_rows == 1 else 's'}"
        seconds = time.monotonic() - self._start
        if seconds >= _WORTH_TELLING:
            # An earlier run's rows took no time now.
            now = f", {self.num_answered - self._num_kept:,} of them" if self._num_kept else ""
            rows += f"{now} in {_minutes(seconds)}, {self.rate(self.num_answered):,.0f} rows/s"
        lines = [rows]
        if self.num_empty:
            lines.append(f"{self.num_empty:,} of them hold an empty text")
        if self.num_emptied:
            lines.append(f"cleaning leaves nothing of {self.num_emptied:,} of them")
        if self.num_truncated:
            lines.append(
                f"{self.num_truncated:,} of them are longer than {self.max_length} tokens "
                f"and were cut"
            )
        return lines


def _minutes(seconds: float) -> str:
    if seconds < 60:
        return f"{seconds:.0f} s"
    minutes = round(seconds / 60)
    return f"{minutes} min" if minutes < 120 else f"{minutes // 60} h {minutes % 60:02} min"


def _has_content(text: Text) -> bool:
    return bool((text if isinstance(text, str) else "".join(text)).strip())
