"""Which files make up a model: what is fetched, unpacked and uploaded, and nothing beside it."""

from __future__ import annotations

import re
from collections.abc import Iterable

SAFETENSORS = re.compile(r"model(-\d{5}-of-\d{5})?\.safetensors|model\.safetensors\.index\.json")
PICKLES = re.compile(r"pytorch_model(-\d{5}-of-\d{5})?\.bin|pytorch_model\.bin\.index\.json")
GOOGLE_CONFIGS = ("bert_config.json", "albert_config.json")
TENSOR_BUNDLE = re.compile(r"(?P<prefix>.+)\.(index|data-\d{5}-of-\d{5})")

_TOKENIZER = frozenset(
    {
        "tokenizer.json",
        "tokenizer_config.json",
        "special_tokens_map.json",
        "added_tokens.json",
        "vocab.txt",
        "vocab.json",
        "merges.txt",
        "spiece.model",
        "sentencepiece.bpe.model",
        # ALBERT's, as published by Google.
        "30k-clean.model",
    }
)
_DESCRIPTION = frozenset(
    {
        "config.json",
        "filbert.json",
        "modules.json",
        "sentence_bert_config.json",
        "config_sentence_transformers.json",
    }
)
# sentence-transformers numbers the folders of its modules: 1_Pooling, 2_Dense, 3_Normalize.
_MODULE = re.compile(r"(?P<folder>\d{1,2}_[A-Za-z]{1,40})/(?P<file>[^/]+)")


def is_small(name: str) -> bool:
    """Whether a file says what a model is, or belongs to its tokenizer: everything but tensors."""
    module = _MODULE.fullmatch(name)
    if module is not None:
        return module["file"] == "config.json"
    return name in _TOKENIZER or name in _DESCRIPTION or name in GOOGLE_CONFIGS


def is_model_file(name: str) -> bool:
    """Whether a file belongs to a model, in whatever format.

    Args:
        name: relative to the model's folder, with / between the parts.
    """
    module = _MODULE.fullmatch(name)
    if module is not None:
        return module["file"] in ("config.json", "model.safetensors", "pytorch_model.bin")
    name = name.removeprefix("generator/")
    if "/" in name:
        return False
    tensors = (SAFETENSORS, PICKLES, TENSOR_BUNDLE)
    return (
        is_small(name)
        or name == "README.md"
        or any(pattern.fullmatch(name) is not None for pattern in tensors)
    )


def is_published(name: str) -> bool:
    """Whether a file belongs into a model's repository: no state, no data, no pickle.

    Args:
        name: as `is_model_file`.
    """
    module = _MODULE.fullmatch(name)
    if module is not None:
        return module["file"] in ("config.json", "model.safetensors")
    name = name.removeprefix("generator/")
    if "/" in name or name in GOOGLE_CONFIGS:
        return False
    return is_small(name) or name == "README.md" or SAFETENSORS.fullmatch(name) is not None


def to_fetch(names: Iterable[str], *, tokenizer_only: bool = False) -> list[str]:
    """What to fetch of all that is published of a model.

    Pickles only where there is nothing better, since reading them is slower and needs more care; a
    TensorFlow checkpoint only where there is neither.

    Args:
        names: of everything there, relative to the model's folder.
        tokenizer_only: no tensors are needed.
    """
    everything = set(names)
    chosen = {name for name in everything if is_small(name)}
    if tokenizer_only:
        return sorted(chosen)
    chosen |= everything & {"README.md"}  # tells the licence, which models made from it inherit
    for module in {match["folder"] for match in map(_MODULE.fullmatch, everything) if match}:
        files = (f"{module}/model.safetensors", f"{module}/pytorch_model.bin")
        chosen.update([name for name in files if name in everything][:1])
    patterns = (SAFETENSORS, PICKLES) if "config.json" in everything else ()
    for pattern in (*patterns, TENSOR_BUNDLE):
        tensors = {name for name in everything if "/" not in name and pattern.fullmatch(name)}
        if tensors:
            return sorted(chosen | tensors)
    return sorted(chosen)
