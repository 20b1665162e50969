"""The log of `filbert serve`: uvicorn's, as plain or JSON lines.

This module imports nothing heavy. A worker configures its log before it answers uvicorn's health
checks; importing torch first takes longer than their timeout on a busy machine.
"""

from __future__ import annotations

import json
import logging
from typing import Any


class JsonLines(logging.Formatter):
    """One JSON object per log record; of an exception only its type, not its message."""

    def format(self, record: logging.LogRecord) -> str:
        """Return one line for a record."""
        entry = {
            "time": self.formatTime(record, "%Y-%m-%dT%H:%M:%S%z"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
        }
        if record.exc_info and record.exc_info[0] is not None:
            entry["error"] = record.exc_info[0].__name__
        return json.dumps(entry)


class WithoutQueries(logging.Filter):
    """Removes what follows "?" from the paths of uvicorn's access log: it may contain a text."""

    def filter(self, record: logging.LogRecord) -> bool:
        """Change the record, and keep it."""
        if record.name == "uvicorn.access" and isinstance(record.args, tuple):
            record.args = tuple(
                arg.partition("?")[0] if isinstance(arg, str) else arg for arg in record.args
            )
        return True


def log_config(*, as_json: bool) -> dict[str, Any]:
    """Return the logging configuration: all goes to stderr, requests as uvicorn logs them."""
    plain = {"format": "%(asctime)s %(message)s", "datefmt": "%H:%M:%S"}
    handler = {
        "class": "logging.StreamHandler",
        "formatter": "line",
        "filters": ["without_queries"],
    }
    return {
        "version": 1,
        "disable_existing_loggers": False,
        "formatters": {"line": {"()": JsonLines} if as_json else plain},
        "filters": {"without_queries": {"()": WithoutQueries}},
        "handlers": {"stderr": handler},
        "root": {"handlers": ["stderr"], "level": "WARNING"},
        "loggers": {"filbert": {"level": "INFO"}, "uvicorn": {"level": "INFO"}},
    }
