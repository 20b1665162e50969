"""How near the vectors of all sides are to each other."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

import numpy as np

from filbert.errors import RunError
from sides.turns import Child


def cosines(first: np.ndarray, second: np.ndarray) -> np.ndarray:
    """Between the vectors of two matrices (N, H), row by row: (N,)."""
    norms = np.linalg.norm(first, axis=1) * np.linalg.norm(second, axis=1)
    return np.asarray((first * second).sum(1) / norms)


def least_cosines(sides: Mapping[str, Child], place: Path) -> dict[str, float]:
    """The smallest cosine of each side's vectors to those of the first float32 side.

    Args:
        sides: ready to encode, by name.
        place: a folder for the vectors.

    Returns:
        By side, without those that break off; nothing where none computes in float32.
    """
    vectors = {}
    for name, child in sides.items():
        path = place / f"{name}.npy"
        # Who breaks off here does so in its next turn too, and is named there.
        with suppress(RunError):
            child.ask({"do": "vectors", "out": str(path)})
            vectors[name] = np.load(path).astype(np.float64)
    judge = next((vectors[name] for name in vectors if name.endswith("float32")), None)
    if judge is None:
        return {}
    return {name: float(cosines(mine, judge).min()) for name, mine in vectors.items()}
