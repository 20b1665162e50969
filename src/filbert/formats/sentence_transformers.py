"""How a sentence-transformers folder says its vectors are made: modules.json, pooling folder."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from reprlib import repr as short

from filbert.errors import FormatError, printable, unreadable_as
from filbert.formats.weights import load_json, read_json


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


@unreadable_as(FormatError)
def read_sentence_vectors(folder: Path) -> SentenceVectors:
    """What modules.json asks for; plain means when the folder has none.

    Raises:
        FormatError: the folder asks for something that filbert does not do, or its files are
            damaged, unreadable or not where they may be.
    """
    path = folder / "modules.json"
    if not path.is_file():
        return SentenceVectors()
    pooling, normalize = "mean", False
    modules = load_json(path)
    if not isinstance(modules, list):
        raise FormatError(f"{path}: {short(modules)}; expected a list of modules.")
    for module in modules:
        if not isinstance(module, dict) or not isinstance(module.get("type"), str):
            raise FormatError(f"{path}: {short(module)}; expected a module, an object with a type.")
        kind = module["type"].rsplit(".", 1)[-1]
        if kind == "Pooling":
            pooling = _pooling(folder / _inside(module.get("path"), path) / "config.json")
        elif kind == "Normalize":
            normalize = True
        elif kind != "Transformer":
            raise FormatError(
                f"{path}: module '{printable(kind)}' is not supported; Transformer, Pooling and "
                "Normalize are."
            )
    return SentenceVectors(pooling, normalize)


def _inside(place: object, modules: Path) -> Path:
    """A module's folder, below that of modules.json."""
    if (
        not isinstance(place, str)
        or len(place) > 255
        or Path(place).is_absolute()
        or ".." in Path(place).parts
    ):
        raise FormatError(
            f"{modules}: the path of a module is {short(place)}; expected a folder beside the file."
        )
    return Path(place)


def _pooling(path: Path) -> str:
    config = read_json(path)
    # The key of sentence-transformers 5.3 and later.
    if isinstance(config.get("pooling_mode"), str):
        asked = [config["pooling_mode"]]
    else:
        on = [
            key
            for key, value in config.items()
            if key.startswith("pooling_mode_") and value is True
        ]
        asked = [_POOLING_KEYS.get(key, key) for key in on]
    if len(asked) != 1 or asked[0] not in _POOLING_KEYS.values():
        raise FormatError(
            f"{path}: pooling {short(asked)} is not supported; one of mean, cls, max is."
        )
    return str(asked[0])
