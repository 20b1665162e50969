"""The errors that filbert raises on purpose; everything else is a mistake of ours."""

from __future__ import annotations


class FilbertError(Exception):
    """Base of all deliberate errors. `exit_status` is what the command line returns for it."""

    exit_status = 1


class InputError(FilbertError):
    """The user's data is wrong: a bad row, a missing file or column, an unknown label."""

    exit_status = 2


class ConfigError(FilbertError):
    """The user's options contradict each other, the model or the machine."""

    exit_status = 2


class FormatError(FilbertError):
    """A model folder, checkpoint or vocabulary is damaged or not what it says it is."""

    exit_status = 2


class RunError(FilbertError):
    """A run could not go on: a non-finite loss, a lost process."""
