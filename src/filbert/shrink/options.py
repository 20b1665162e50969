"""What to take away from a model."""

from __future__ import annotations

from dataclasses import dataclass

from filbert.errors import ConfigError


@dataclass(frozen=True, kw_only=True)
class ShrinkOptions:
    """What to take away: at least one thing.

    Attributes:
        keep_layers: numbers of the layers that stay, rising.
        heads: so many heads stay in all layers together, the most important for the model's task.
        keep_heads: heads that stay, as `heads.named_heads` reads them.
        embedding_size: width of the embedding tables.
        vocabulary_from: files with the text whose vocabulary stays.
        min_count: how often an entry must stand in it.
        vocabulary_size: at most so many entries.
        text_column: of those files.
        data: labelled rows, for importance and for what each step costs; of a masked-LM model
            without a task, text.
    """

    keep_layers: tuple[int, ...] | None = None
    heads: int | None = None
    keep_heads: tuple[str, ...] = ()
    embedding_size: int | None = None
    vocabulary_from: tuple[str, ...] = ()
    min_count: int = 1
    vocabulary_size: int | None = None
    text_column: str = "text"
    data: str | None = None

    def __post_init__(self) -> None:
        """Say what cannot be before anything is read.

        Raises:
            ConfigError: options that contradict each other, or nothing to do.
        """
        if "-" in (self.data, *self.vocabulary_from):
            raise ConfigError("Texts and rows are read more than once, so - cannot be one of them.")
        if self.heads is not None and self.keep_heads:
            raise ConfigError("--heads and --keep-heads both say which heads stay. Give one.")
        if self.heads is not None and self.data is None:
            raise ConfigError(
                "--heads keeps the heads that matter for the model's task: give labelled rows with "
                "--data, or name the heads yourself with --keep-heads."
            )
        if not self.vocabulary_from and (self.vocabulary_size is not None or self.min_count != 1):
            raise ConfigError(
                "--min-count and --vocabulary-size go with --vocabulary-from, the text that counts."
            )
        if self.min_count < 1 or (self.vocabulary_size is not None and self.vocabulary_size < 1):
            raise ConfigError("--min-count and --vocabulary-size are numbers from 1.")
        numbers = (self.keep_layers, self.heads, self.embedding_size)
        if numbers == (None, None, None) and not self.keep_heads and not self.vocabulary_from:
            raise ConfigError(
                "Nothing to take away: give --keep-layers, --heads, --keep-heads, "
                "--embedding-size or --vocabulary-from."
            )
