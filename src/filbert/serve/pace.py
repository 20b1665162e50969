"""How fast a model has lately read."""

from __future__ import annotations

# Each batch takes this share off those before it.
_FORGOTTEN = 0.1
# Batches with less than this share of the budget, such as a probe's, say nothing of the speed.
_TELLING = 1 / 8


class Pace:
    """Seconds that a model takes for a token, over its last batches. For one thread.

    Args:
        max_batch_tokens: of a full batch.
    """

    def __init__(self, max_batch_tokens: int) -> None:
        self._least = _TELLING * max_batch_tokens
        self._tokens = self._seconds = 0.0

    def count(self, tokens: int, seconds: float) -> None:
        """A batch has been read."""
        if tokens >= self._least:
            self._tokens += tokens - _FORGOTTEN * self._tokens
            self._seconds += seconds - _FORGOTTEN * self._seconds

    @property
    def known(self) -> float:
        """Seconds a token; 0 before the first batch that tells."""
        return self._seconds / self._tokens if self._tokens else 0.0
