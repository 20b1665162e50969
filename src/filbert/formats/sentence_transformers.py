"""How a sentence-transformers folder says its vectors are made: modules.json, pooling folder."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from filbert.errors import FormatError


@dataclass(frozen=True)
class SentenceVectors:
    """How sentence vectors are made.

    Attributes:
        pooling: "mean", "cls" or "max" over the tokens.
        normalize: scale to unit length.
    """

    pooling: str = "mean"
    normalize: bool = False


_POOLING_KEYS = {
    "pooling_mode_mean_tokens": "mean",
    "pooling_mode_cls_token": "cls",
    "pooling_mode_max_tokens": "max",
}


def read_sentence_vectors(folder: Path) -> SentenceVectors:
    """What modules.json asks for; plain means when the folder has none.

    Raises:
        FormatError: the folder asks for something that filbert does not do.
    """
    path = folder / "modules.json"
    if not path.is_file():
        return SentenceVectors()
    pooling, normalize = "mean", False
    for module in _read(path):
        kind = str(module.get("type", "")).rsplit(".", 1)[-1]
        if kind == "Pooling":
            pooling = _pooling(folder / str(module["path"]) / "config.json")
        elif kind == "Normalize":
            normalize = True
        elif kind != "Transformer":
            raise FormatError(
                f"{path}: module {kind!r} is not supported; Transformer, Pooling, Normalize are."
            )
    return SentenceVectors(pooling, normalize)


def _read(path: Path) -> Any:
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise FormatError(f"{path}: cannot be read as JSON: {error}.") from error


def _pooling(path: Path) -> str:
    config = _read(path)
    if isinstance(
        config.get("pooling_mode"), str
    ):  # the key of sentence-transformers 5.3 and later
        asked = [config["pooling_mode"]]
    else:
        on = [
            key
            for key, value in config.items()
            if key.startswith("pooling_mode_") and value is True
        ]
        asked = [_POOLING_KEYS.get(key, key) for key in on]
    if len(asked) != 1 or asked[0] not in _POOLING_KEYS.values():
        raise FormatError(f"{path}: pooling {asked} is not supported; one of mean, cls, max is.")
    return str(asked[0])
