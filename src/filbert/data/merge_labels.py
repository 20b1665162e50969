"""Several 0/1 columns as one label: malicious where any of toxic, obscene and threat is 1."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from filbert.data.labels import is_set, label_name, listed
from filbert.data.records import Row
from filbert.data.streams import OnError
from filbert.errors import ConfigError, InputError, printable


@dataclass(frozen=True)
class Merge:
    """Which columns make which label.

    The labels are words, "malicious" and "not malicious", and not 1 and 0: predictions, confusion
    matrices and reports then say what they mean by themselves.

    Attributes:
        columns: of zeros and ones.
        name: the label of a row with a 1 in any of them, without blanks around it.
    """

    columns: tuple[str, ...]
    name: str

    def __post_init__(self) -> None:
        object.__setattr__(self, "name", self.name.strip(" "))
        if not self.columns:
            raise ConfigError("--merge-labels names no column.")
        if len(set(self.columns)) < len(self.columns):
            twice = next(name for name in self.columns if self.columns.count(name) > 1)
            raise ConfigError(f"--merge-labels names the column {printable(twice)!r} twice.")
        try:
            is_label = bool(self.name.strip()) and bool(label_name(self.name))
        except ValueError:
            is_label = False
        if not is_label:
            raise ConfigError(f"--as {printable(self.name)!r} is no label; give a word.")

    @property
    def labels(self) -> tuple[str, str]:
        """Both labels, the one of the merged columns second: that is the positive class."""
        return (f"not {self.name}", self.name)

    def require_labels(self, labels: Sequence[str] | None) -> None:
        """Make sure that a model's labels are these two.

        Args:
            labels: of the model; None where a row has any number of them.

        Raises:
            ConfigError: they are not.
        """
        if labels is None or set(labels) != set(self.labels):
            found = (
                "any number of its labels a row" if labels is None else f"one of {listed(labels)}"
            )
            raise ConfigError(
                f"--merge-labels makes one label of {listed(self.labels)}; this model gives "
                f"{found}. Name the merged label with --as as it was in training."
            )

    def label_of(self, row: Row) -> str:
        """The label of a row.

        Raises:
            InputError: a column holds something else than 0 and 1; with file and line.
        """
        # All columns are looked at, whether or not the first one decides.
        return self.labels[max(is_set(row, column) for column in self.columns)]


def merge_labels(
    rows: Iterable[Row],
    columns: Sequence[str],
    as_: str,
    *,
    keep: Sequence[str] = (),
    on_error: OnError | None = None,
) -> Iterator[Row]:
    """The rows with one column `label` in place of several 0/1 columns.

    Args:
        rows: with these columns under their own names.
        columns: of zeros and ones.
        as_: the label of a row with a 1 in any of them; the others get "not " before it.
        keep: those of the columns that the rows keep beside the label.
        on_error: is given each bad row instead of it being raised.

    Raises:
        ConfigError: no column, one twice, or a name that cannot be a label.
        InputError: a value is neither 0 nor 1; with file, line and column.
    """
    merge = Merge(tuple(columns), as_)
    return _merged(rows, merge, frozenset(columns) - frozenset(keep), on_error)


def _merged(
    rows: Iterable[Row], merge: Merge, dropped: frozenset[str], on_error: OnError | None
) -> Iterator[Row]:
    for row in rows:
        try:
            label = merge.label_of(row)
        except InputError as error:
            if on_error is None:
                raise
            on_error(error)
            continue
        kept = {name: value for name, value in row.values.items() if name not in dropped}
        yield Row(kept | {"label": label}, row.path, row.line)
