"""Rows on their way through a model: counted, with a progress bar and a summary at the end."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any

from filbert.cli.flags import output
from filbert.data.records import ExpectedRows, Row
from filbert.data.texts import Text, holds_text
from filbert.train.log import progress_bar

if TYPE_CHECKING:
    from filbert.inference.predictor import Predictor
    from filbert.text.tokenizer import Tokenizer

# Seconds between two lines where no terminal shows a bar, and of a run whose speed is printed.
_BETWEEN_LINES = 60
_WORTH_TELLING = 10


def expected_rows(source: str) -> Callable[[int], int | None]:
    """A function from the rows read so far to the number of all rows, None if it is unknown."""
    return ExpectedRows(source).after if Path(source).is_file() else lambda rows: None


def answer_texts(
    verb: str,
    predictor: Predictor,
    rows: Iterable[Row],
    *,
    check: Callable[[str, Tokenizer, str], str],
    run: Callable[[Iterator[str], Counts], Iterator[dict[str, Any]]],
    source: str,
    out: str | None,
) -> Iterator[dict[str, Any]]:
    """Answer the texts of a file; write one JSON object a line, and yield it.

    Args:
        verb: for the progress bar.
        predictor: the model.
        rows: of the file.
        check: returns a text as `run` expects it; its last argument is the text's place.
        run: answers texts.
        source: the file, for its number of rows.
        out: where the lines go.
    """
    with (
        Counts(verb, predictor.max_length, expected_rows(source)) as counts,
        output(out) as stream,
    ):
        counted = counts.rows(rows, lambda row: [row.values["text"]])
        texts = (check(row.values["text"], predictor.tokenizer, row.where) for row in counted)
        for answer in run(texts, counts):
            counts.done(1, answer["truncated"])
            stream.write(json.dumps(answer, ensure_ascii=False) + "\n")
            yield answer


class Counts:
    """Counts rows, empty and truncated texts as they pass.

    Args:
        verb: for the progress bar.
        max_length: tokens that a text is cut to.
        expected: see `expected_rows`.
    """

    def __init__(
        self, verb: str, max_length: int, expected: Callable[[int], int | None] = lambda rows: None
    ) -> None:
        self.max_length = max_length
        self.num_rows = self.num_empty = self.num_emptied = 0
        self.num_answered = self.num_truncated = self.num_kept = 0
        self._verb, self._expected = verb, expected
        self._progress = progress_bar("seen")
        self._bar = self._progress.add_task(verb, total=None, seen="")
        self._start = self._last_line = time.monotonic()

    def __enter__(self) -> Counts:
        self._progress.start()
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
            texts = sequences(row)
            if not any(
                (text if isinstance(text, str) else "".join(text)).strip() for text in texts
            ):
                self.num_emptied += holds_text(row)
                self.num_empty += not holds_text(row)
            yield row

    def kept(self, rows: int, truncated: int) -> None:
        """Count rows that an earlier run has answered."""
        self.num_kept += rows
        self.done(rows, truncated)

    def done(self, rows: int, truncated: int) -> None:
        """Count answered rows."""
        before, self.num_answered = self.num_answered, self.num_answered + rows
        self.num_truncated += truncated
        if rows > 1 or before // 256 < self.num_answered // 256:
            self._show(self.num_answered)

    def share(self, rows: int, share: float) -> None:
        """Show that this share of the next `rows` rows is answered."""
        self._show(self.num_answered + int(rows * share))

    def _rate(self, answered: int) -> float:
        """Rows per second, without those that an earlier run has answered."""
        return (answered - self.num_kept) / max(time.monotonic() - self._start, 1e-9)

    def _show(self, answered: int) -> None:
        total, rate = self._expected(self.num_rows), self._rate(answered)
        seen = f"{rate:,.0f} rows/s"
        self._progress.update(self._bar, completed=answered, total=total, seen=seen)
        now = time.monotonic()
        if self._progress.disable and now - self._last_line >= _BETWEEN_LINES:
            self._last_line = now
            line = f"{self._verb}: {answered:,} rows"
            line += f", {seen}" if total is None else f" of about {total:,}, {seen}"
            if total is not None and rate:
                line += f", {_minutes(max(0, total - answered) / rate)} left"
            print(line, file=sys.stderr, flush=True)

    def _summary(self) -> list[str]:
        lines = [f"{self.num_rows:,} row{'' if self.num_rows == 1 else 's'}"]
        seconds = time.monotonic() - self._start
        if seconds >= _WORTH_TELLING:
            if self.num_kept:
                lines[0] += f", {self.num_answered - self.num_kept:,} of them"
            lines[0] += f" in {_minutes(seconds)}, {self._rate(self.num_answered):,.0f} rows/s"
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
