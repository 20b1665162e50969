"""Ctrl-C and SIGTERM: the first signal ends a run after its step, the second one immediately."""

from __future__ import annotations

import signal
import threading
from types import FrameType
from typing import Any

_SIGNALS = (signal.SIGINT, signal.SIGTERM)


class Stop:
    """Context manager that records the first signal and raises KeyboardInterrupt on the second.

    Attributes:
        name: Name of the signal that arrived, or None.
    """

    def __init__(self) -> None:
        self.name: str | None = None
        self._before: dict[int, Any] = {}

    def __enter__(self) -> Stop:
        # Python delivers signals to the main thread, and only that thread may set handlers.
        if threading.current_thread() is threading.main_thread():
            self._before = {number: signal.signal(number, self._note) for number in _SIGNALS}
        return self

    def __exit__(self, *error: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def _note(self, number: int, frame: FrameType | None) -> None:
        if self.name is not None:
            raise KeyboardInterrupt
        self.name = "Ctrl-C" if number == signal.SIGINT else signal.Signals(number).name
