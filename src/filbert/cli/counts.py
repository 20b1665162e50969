"""Texts on their way to a model: counted, with a bar; at the end a word on empty and cut ones."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator
from types import TracebackType

from filbert.data.records import Row
from filbert.data.texts import Text
from filbert.train.log import progress_bar


class Counts:
    """Counts rows, empty and cut texts as they pass; says at the end what a user should know."""

    def __init__(self, what: str, max_length: int) -> None:
        self.max_length = max_length
        self.num_rows = self.num_empty = self.num_answered = self.num_truncated = 0
        self._progress = progress_bar("seen")
        self._bar = self._progress.add_task(what, total=None, seen="")

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
            self.num_empty += not any(map(_has_content, sequences(row)))
            yield row

    def answered(self, truncated: bool) -> None:
        """One answer has left."""
        self.num_answered += 1
        self.num_truncated += truncated
        if self.num_answered % 256 == 0:
            self._progress.update(self._bar, completed=self.num_answered)

    def _summary(self) -> list[str]:
        lines = [f"{self.num_rows:,} row{'' if self.num_rows == 1 else 's'}"]
        if self.num_empty:
            lines.append(f"{self.num_empty:,} of them hold an empty text")
        if self.num_truncated:
            lines.append(
                f"{self.num_truncated:,} of them are longer than {self.max_length} tokens "
                f"and were cut"
            )
        return lines


def _has_content(text: Text) -> bool:
    return bool((text if isinstance(text, str) else "".join(text)).strip())
