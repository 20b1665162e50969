"""Which files make up a model: what is fetched, unpacked and uploaded, and nothing beside it."""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path

SAFETENSORS = re.compile(r"model(-\d{5}-of-\d{5})?\.safetensors|model\.safetensors\.index\.json")
PICKLES = re.compile(r"pytorch_model(-\d{5}-of-\d{5})?\.bin|pytorch_model\.bin\.index\.json")
GOOGLE_CONFIGS = ("bert_config.json", "albert_config.json", "electra_config.json")
# Names that begin with ._ are macOS's notes on the file of that name, in archives and on disks.
TENSOR_BUNDLE = re.compile(r"(?!\._)(?P<prefix>.+)\.(index|data-\d{5}-of-\d{5})")
# Where sentence-transformers keeps its limits: a name a family until 2020, the first for all since.
SENTENCE_FILES = tuple(
    f"sentence_{name}_config.json"
    for name in ("bert", "roberta", "distilbert", "albert", "camembert", "xlm-roberta")
)
# Names of their own, which only count beside a tensor bundle.
BUNDLE_CONFIG = re.compile(r"(?!\._)[^/]*config[^/]*\.json")
BUNDLE_VOCABULARY = re.compile(r"(?!\._)[^/]*(vocab[^/]*\.txt|\.model)")

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
        *SENTENCE_FILES,
        "config_sentence_transformers.json",
    }
)
# sentence-transformers numbers the folders of its modules: 1_Pooling, 2_Dense, 3_Normalize.
_MODULE = re.compile(r"(?P<folder>\d{1,2}_[A-Za-z]{1,40})/(?P<file>[^/]+)")
# Until 2020 the encoder was one of them, the first: 0_Transformer, 0_BERT.
_ENCODER = re.compile(r"0_[A-Za-z]{1,40}/(?P<file>[^/]+)")


def beside_encoder(name: str) -> str:
    """A name relative to the encoder's folder, for what lies in it; others as they are."""
    match = _ENCODER.fullmatch(name)
    return match["file"] if match else name


def is_small(name: str) -> bool:
    """Whether a file says what a model is, or belongs to its tokenizer: everything but tensors."""
    module = _MODULE.fullmatch(name)
    if module is not None and module["file"] == "config.json":
        return True
    name = beside_encoder(name)
    return name in _TOKENIZER or name in _DESCRIPTION or name in GOOGLE_CONFIGS


def is_model_file(name: str) -> bool:
    """Whether a file belongs to a model, in whatever format.

    Args:
        name: relative to the model's folder, with / between the parts.
    """
    module = _MODULE.fullmatch(name)
    if module is not None:
        return is_small(name) or module["file"] in ("model.safetensors", "pytorch_model.bin")
    name = name.removeprefix("generator/")
    if "/" in name:
        return False
    tensors = (SAFETENSORS, PICKLES, TENSOR_BUNDLE)
    return (
        is_small(name)
        or name == "README.md"
        or any(pattern.fullmatch(name) is not None for pattern in tensors)
    )


def beside_bundle(names: Iterable[str]) -> set[str]:
    """Configurations and vocabularies under names of their own, if a whole tensor bundle is there.

    Args:
        names: of everything in the model's folder, relative to it.
    """
    here = {name for name in names if "/" not in name}
    parts = [part for part in map(TENSOR_BUNDLE.fullmatch, here) if part]
    if not any(
        f"{part['prefix']}.index" in here for part in parts if not part[0].endswith(".index")
    ):
        return set()
    patterns = (BUNDLE_CONFIG, BUNDLE_VOCABULARY)
    return {name for name in here if any(pattern.fullmatch(name) for pattern in patterns)}


def matching(folder: Path, pattern: re.Pattern[str]) -> list[Path]:
    """What lies in a folder under names of a pattern, in order."""
    return sorted(path for path in folder.glob("*") if pattern.fullmatch(path.name))


def module_weights(names: Iterable[str]) -> set[str]:
    """The file of each module that its tensors are read from."""
    everything = set(names)
    weights = set()
    for module in {match["folder"] for match in map(_MODULE.fullmatch, everything) if match}:
        files = (f"{module}/model.safetensors", f"{module}/pytorch_model.bin")
        weights.update([name for name in files if name in everything][:1])
    return weights


def is_published(name: str) -> bool:
    """Whether a file belongs into a model's repository: no state, no data, no pickle.

    Args:
        name: as `is_model_file`.
    """
    module = _MODULE.fullmatch(name)
    if module is not None:
        return is_small(name) or module["file"] == "model.safetensors"
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
    chosen |= module_weights(everything)
    patterns = (SAFETENSORS, PICKLES) if "config.json" in everything else ()
    for pattern in (*patterns, TENSOR_BUNDLE):
        tensors = {name for name in everything if "/" not in name and pattern.fullmatch(name)}
        if tensors:
            chosen |= beside_bundle(everything) if pattern is TENSOR_BUNDLE else set()
            return sorted(chosen | tensors)
    return sorted(chosen)
