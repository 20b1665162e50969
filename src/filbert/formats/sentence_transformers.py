"""How a sentence-transformers folder says its vectors are made: modules.json, pooling folder."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from reprlib import repr as short
from typing import Any

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


def write_sentence_vectors(
    folder: Path, pooling: str, normalize: bool, max_length: int, dimension: int
) -> None:
    """Say in a model folder how sentence vectors are made, so that sentence-transformers does it.

    Written are modules.json, 1_Pooling/config.json, sentence_bert_config.json and
    config_sentence_transformers.json, with the keys that versions 2 to 6 understand.

    Args:
        folder: holds, or will hold, weights and tokenizer in Hugging Face's layout.
        pooling: "mean", "cls" or "max".
        normalize: scale to unit length.
        max_length: texts are cut to this many tokens, special tokens included.
        dimension: width of the vectors.

    Raises:
        ValueError: sentence-transformers knows no such pooling.
    """
    if pooling not in _POOLING_KEYS.values():
        raise ValueError(f"pooling {pooling!r} is not one of {list(_POOLING_KEYS.values())}")
    modules = [("", "Transformer"), ("1_Pooling", "Pooling")]
    modules += [("2_Normalize", "Normalize")] if normalize else []
    content: dict[str, Any] = {
        "modules.json": [
            {
                "idx": i,
                "name": str(i),
                "path": place,
                "type": f"sentence_transformers.models.{kind}",
            }
            for i, (place, kind) in enumerate(modules)
        ],
        "1_Pooling/config.json": {
            "word_embedding_dimension": dimension,
            # Each is named: without its key the mean is on in versions before 5.3.
            **{key: name == pooling for key, name in _POOLING_KEYS.items()},
            "pooling_mode_mean_sqrt_len_tokens": False,
        },
        # Lower-casing is the tokenizer's; here it would be a second one.
        "sentence_bert_config.json": {"max_seq_length": max_length, "do_lower_case": False},
        "config_sentence_transformers.json": {
            "model_type": "SentenceTransformer",
            "prompts": {},
            "default_prompt_name": None,
            "similarity_fn_name": "cosine",
        },
    }
    for place, _ in modules:
        (folder / place).mkdir(parents=True, exist_ok=True)
    for name, values in content.items():
        (folder / name).write_text(json.dumps(values, indent=2) + "\n", encoding="utf-8")


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
