"""Reads and writes how sentence vectors are computed: modules.json and the files it names.

Source: sentence-transformers 2 to 6, Transformer, Pooling, Dense, Normalize and Model.save.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from reprlib import repr as short
from typing import Any

from safetensors.torch import save_file

from filbert.checkpoints.families import SENTENCE_FILES
from filbert.checkpoints.weights import open_weights
from filbert.errors import FormatError, printable, unreadable_as
from filbert.files import load_json, read_json
from filbert.model.pooling import Dense

# In the order in which sentence-transformers concatenates several.
_POOLING_KEYS = {
    "pooling_mode_cls_token": "cls",
    "pooling_mode_max_tokens": "max",
    "pooling_mode_mean_tokens": "mean",
    "pooling_mode_mean_sqrt_len_tokens": "mean_sqrt_len",
    "pooling_mode_lasttoken": "last",
}
# Keys that the oldest versions do not know; they are written only if they are true.
_LATE_KEYS = ("pooling_mode_lasttoken",)
# Poolings with another name in the key of version 5.3 and later.
_RENAMED = {"mean_sqrt_len_tokens": "mean_sqrt_len", "lasttoken": "last"}
_ACTIVATIONS = {
    "torch.nn.modules.activation.Tanh": "tanh",
    "torch.nn.modules.activation.ReLU": "relu",
    "torch.nn.modules.activation.GELU": "gelu",
    "torch.nn.modules.linear.Identity": "identity",
}
# The order in which filbert runs modules. Until 2020 every family had a class for the first.
_ORDER = ("Transformer", "Pooling", "Dense", "Normalize")
_OLD_TRANSFORMERS = ("BERT", "RoBERTa", "DistilBERT", "ALBERT", "CamemBERT", "XLMRoBERTa")
_MAX_PROMPT = 10_000


@dataclass(frozen=True)
class SentenceVectors:
    """How sentence vectors are computed.

    Attributes:
        pooling: "mean", "cls", "max", "mean_sqrt_len", "last", or several joined by "+", as
            `model.pooling.pool` takes it.
        normalize: Scale the vectors to unit length at the end.
        dense: Layers applied to the pooled vector, in order.
        max_length: Texts are truncated to this many tokens, special tokens included; None for the
            model's own limit.
        prompts: Prefixes of texts, by purpose.
        default_prompt: Key of the prompt that is used for every text; None for none.
        similarity: The similarity function that the vectors were trained for: "cosine", "dot" ...
    """

    pooling: str = "mean"
    normalize: bool = False
    dense: tuple[Dense, ...] = ()
    max_length: int | None = None
    prompts: Mapping[str, str] = field(default_factory=dict)
    default_prompt: str | None = None
    similarity: str | None = "cosine"

    def dimension(self, hidden_size: int) -> int:
        """Return the width of a vector, for an encoder of width `hidden_size`."""
        if self.dense:
            return int(self.dense[-1].weight_OI.shape[0])
        return hidden_size * len(self.pooling.split("+"))

    def prepared(self, text: str | tuple[str, str]) -> str | tuple[str, str]:
        """Return a text, or a pair, with the default prompt before its first text."""
        prompt = self.prompts[self.default_prompt] if self.default_prompt else ""
        return prompt + text if isinstance(text, str) else (prompt + text[0], text[1])

    def facts(self) -> dict[str, Any]:
        """Return plain values; a dense layer is described by its sizes."""
        return {
            "pooling": self.pooling,
            "dense": [layer.description for layer in self.dense],
            "normalize": self.normalize,
            "max_length": self.max_length,
            "prompts": dict(self.prompts),
            "default_prompt": self.default_prompt,
        }


class ModelFolder:
    """A folder in Hugging Face's layout; its JSON files are parsed once, when they are needed.

    Args:
        path: The folder, or the prefix of a TensorFlow checkpoint, which has no such files.
    """

    def __init__(self, path: Path) -> None:
        self.path = path

    @cached_property
    def modules(self) -> Any:
        """The content of modules.json, not checked; None without the file."""
        path = self.path / "modules.json"
        return load_json(path) if path.is_file() else None

    @cached_property
    @unreadable_as(FormatError)
    def encoder(self) -> Path:
        """The folder of encoder and tokenizer: in old folders a subfolder, "0_Transformer"."""
        first = self.modules[0] if isinstance(self.modules, list) and self.modules else None
        if isinstance(first, dict) and _kind(first.get("type")) == "Transformer":
            return self.path / _inside(first.get("path"), self.path / "modules.json")
        return self.path

    @cached_property
    def config(self) -> dict[str, Any] | None:
        """The content of the encoder's config.json; None without the file."""
        path = self.encoder / "config.json"
        return read_json(path) if path.is_file() else None


def opened(place: Path | ModelFolder) -> ModelFolder:
    """Return a place as a ModelFolder, whose files may have been parsed already."""
    return place if isinstance(place, ModelFolder) else ModelFolder(place)


@unreadable_as(FormatError)
def read_sentence_vectors(
    place: Path | ModelFolder, hidden_size: int | None = None
) -> SentenceVectors:
    """Read how sentence vectors are computed; mean pooling without a modules.json.

    Args:
        place: The model folder.
        hidden_size: Width of the encoder, with which dense layers are compared.

    Raises:
        FormatError: An unsupported module, or a file that is damaged, unreadable or outside the
            folder.
    """
    opened_folder = opened(place)
    folder, modules = opened_folder.path, _modules(opened_folder)
    if not modules:
        return SentenceVectors()
    values: dict[str, Any] = {"similarity": None, **_prompts(folder)}
    dense: list[Dense] = []
    width = None
    for kind, module in modules:
        if kind == "Transformer":
            values |= _limits(folder / module)
        elif kind == "Pooling":
            values["pooling"] = _pooling(folder / module / "config.json", values)
        elif kind == "Dense":
            if not dense and hidden_size is not None:
                width = SentenceVectors(values.get("pooling", "mean")).dimension(hidden_size)
            dense.append(_dense(folder / module, width))
            width = int(dense[-1].weight_OI.shape[0])
        else:
            values["normalize"] = True
    return SentenceVectors(**values, dense=tuple(dense))


def write_sentence_vectors(folder: Path, vectors: SentenceVectors, hidden_size: int) -> None:
    """Write the files from which sentence-transformers computes the same vectors.

    These are modules.json, a folder for each module, sentence_bert_config.json and
    config_sentence_transformers.json, with the keys of versions 2 to 6.

    Args:
        folder: The model folder, in Hugging Face's layout.
        vectors: How the vectors are computed.
        hidden_size: Width of the encoder.

    Raises:
        ValueError: sentence-transformers has no such pooling.
    """
    kinds = ["Transformer", "Pooling", *["Dense"] * len(vectors.dense)]
    kinds += ["Normalize"] if vectors.normalize else []
    places = ["", *(f"{i}_{kind}" for i, kind in enumerate(kinds) if i)]
    content: dict[str, Any] = {
        "modules.json": [
            {
                "idx": i,
                "name": str(i),
                "path": place,
                "type": f"sentence_transformers.models.{kind}",
            }
            for i, (place, kind) in enumerate(zip(places, kinds, strict=True))
        ],
        "1_Pooling/config.json": _pooling_config(vectors.pooling, hidden_size),
        # The tokenizer does the lower-casing.
        "sentence_bert_config.json": {
            "max_seq_length": vectors.max_length,
            "do_lower_case": False,
        },
        "config_sentence_transformers.json": {
            "model_type": "SentenceTransformer",
            "prompts": dict(vectors.prompts),
            "default_prompt_name": vectors.default_prompt,
            "similarity_fn_name": vectors.similarity,
        },
    }
    for place in places:
        (folder / place).mkdir(parents=True, exist_ok=True)
    for i, layer in enumerate(vectors.dense, start=2):
        content[f"{i}_Dense/config.json"] = {
            "in_features": layer.weight_OI.shape[1],
            "out_features": layer.weight_OI.shape[0],
            "bias": layer.bias_O is not None,
            "activation_function": next(
                k for k, v in _ACTIVATIONS.items() if v == layer.activation
            ),
        }
        tensors = {"linear.weight": layer.weight_OI.detach().cpu().contiguous()}
        if layer.bias_O is not None:
            tensors["linear.bias"] = layer.bias_O.detach().cpu().contiguous()
        save_file(tensors, folder / f"{i}_Dense" / "model.safetensors", metadata={"format": "pt"})
    for name, value in content.items():
        text = json.dumps(value, indent=2, ensure_ascii=False) + "\n"
        (folder / name).write_text(text, encoding="utf-8")


def _pooling_config(pooling: str, hidden_size: int) -> dict[str, Any]:
    asked = pooling.split("+")
    if unknown := [name for name in asked if name not in _POOLING_KEYS.values()]:
        raise ValueError(f"pooling {unknown[0]!r} is not one of {list(_POOLING_KEYS.values())}")
    if asked != [name for name in _POOLING_KEYS.values() if name in asked]:
        # Only the later key can express another order.
        names = {ours: theirs for theirs, ours in _RENAMED.items()}
        modes = [names.get(name, name) for name in asked]
        return {"embedding_dimension": hidden_size, "pooling_mode": modes}
    # Versions before 5.3 use the mean if its key is missing.
    keys = {
        key: name in asked
        for key, name in _POOLING_KEYS.items()
        if key not in _LATE_KEYS or name in asked
    }
    return {"word_embedding_dimension": hidden_size, **keys}


def _modules(folder: ModelFolder) -> list[tuple[str, Path]]:
    """Return kind and place of every module, in order; empty without a modules.json."""
    path, given = folder.path / "modules.json", folder.modules
    if given is None and not path.is_file():
        return []
    if not isinstance(given, list) or len(given) > 100:
        raise FormatError(f"{path}: {short(given)}; expected a list of modules.")
    modules = []
    for module in given:
        if not isinstance(module, dict) or not isinstance(module.get("type"), str):
            raise FormatError(f"{path}: {short(module)}; expected a module, an object with a type.")
        kind = _kind(module["type"])
        if kind not in _ORDER:
            raise FormatError(
                f"{path}: module '{printable(kind)}' is not supported; {', '.join(_ORDER)} are."
            )
        place = Path() if kind == "Normalize" else _inside(module.get("path"), path)
        modules.append((kind, place))
    kinds = [kind for kind, _ in modules]
    if kinds != sorted(kinds, key=_ORDER.index) or any(
        kinds.count(kind) > 1 for kind in _ORDER if kind != "Dense"
    ):
        raise FormatError(
            f"{path}: the modules are {short(kinds)}; filbert runs them in the order "
            f"{', '.join(_ORDER)}, and only Dense may occur more than once."
        )
    return modules


def _kind(type_: object) -> str:
    """Return the last part of a module's type; "Transformer" for its names before 2020."""
    kind = type_.rsplit(".", 1)[-1] if isinstance(type_, str) else ""
    return "Transformer" if kind in _OLD_TRANSFORMERS else kind


def _inside(place: object, modules: Path) -> Path:
    """Return a module's folder, relative to that of modules.json."""
    if (
        not isinstance(place, str)
        or len(place) > 255
        or not place.isprintable()
        or Path(place).is_absolute()
        or ".." in Path(place).parts
    ):
        raise FormatError(
            f"{modules}: the path of a module is {short(place)}; expected a folder next to it."
        )
    return Path(place)


def _pooling(path: Path, values: Mapping[str, Any]) -> str:
    config = read_json(path)
    asked: Any = config.get("pooling_mode")  # the key of sentence-transformers 5.3 and later
    if asked is None:
        on = {k for k, value in config.items() if k.startswith("pooling_mode_") and value is True}
        asked = [name for key, name in _POOLING_KEYS.items() if key in on]
        asked += sorted(on - _POOLING_KEYS.keys())
    asked = [asked] if isinstance(asked, str) else asked
    known = [*_POOLING_KEYS.values(), *_RENAMED]
    if not isinstance(asked, list) or not asked or not all(name in known for name in asked[:9]):
        raise FormatError(
            f"{path}: pooling {short(asked)} is not supported; {', '.join(_POOLING_KEYS.values())} "
            "are, and several of them at once."
        )
    if len(asked) > 8:
        raise FormatError(f"{path}: {len(asked)} poolings at once; at most 8 are joined.")
    if config.get("include_prompt") is False and values.get("default_prompt"):
        raise FormatError(
            f"{path}: include_prompt is false and there is a default prompt; filbert pools prompts "
            "with the text."
        )
    return "+".join(_RENAMED.get(str(name), str(name)) for name in asked)


def _dense(folder: Path, width: int | None) -> Dense:
    """Read a dense layer over vectors of a width; None if that is unknown."""
    path = folder / "config.json"
    config = read_json(path)
    name = config.get("activation_function", "torch.nn.modules.activation.Tanh")
    activation = _ACTIVATIONS.get(name) if isinstance(name, str) else None
    if activation is None:
        listed = ", ".join(key.rpartition(".")[2] for key in _ACTIVATIONS)
        raise FormatError(f"{path}: activation_function is {short(name)}, not one of {listed}.")
    for key, allowed in {
        "module_input_name": "sentence_embedding",
        "module_output_name": "sentence_embedding",
        "use_residual": False,
    }.items():
        if config.get(key, allowed) not in (allowed, None):
            raise FormatError(f"{path}: {key} is {short(config[key])}; only {allowed} can be run.")
    weights = open_weights(folder)
    sizes = (config.get("out_features"), config.get("in_features"))
    wanted: dict[str, tuple[Any, ...]] = {"linear.weight": sizes}
    if config.get("bias", True) is not False:
        wanted["linear.bias"] = sizes[:1]
    if wanted != weights.shapes:
        listed = ", ".join(f"{printable(n)} {s}" for n, s in sorted(weights.shapes.items())[:4])
        raise FormatError(
            f"{folder}: config.json says a dense layer of {short(sizes[1])} to {short(sizes[0])}, "
            f"but its weights are {listed or 'none'}."
        )
    if width not in (None, sizes[1]):
        raise FormatError(
            f"{folder}: a dense layer over vectors of {sizes[1]}, but those before it have {width}."
        )
    tensors = {name: weights.read(name).float() for name in wanted}
    return Dense(tensors["linear.weight"], tensors.get("linear.bias"), activation)


def _limits(folder: Path) -> dict[str, Any]:
    path = next((folder / name for name in SENTENCE_FILES if (folder / name).is_file()), None)
    if path is None:
        return {}
    config = read_json(path)
    length = config.get("max_seq_length")
    if length is not None and (isinstance(length, bool) or not isinstance(length, int)):
        raise FormatError(f"{path}: max_seq_length is {short(length)}; it must be a whole number.")
    # Some folders hold a very large number, which means no limit.
    return {"max_length": length if length is not None and 3 <= length <= 2**20 else None}


def _prompts(folder: Path) -> dict[str, Any]:
    path = folder / "config_sentence_transformers.json"
    if not path.is_file():
        return {}
    config = read_json(path)
    prompts, default = config.get("prompts") or {}, config.get("default_prompt_name")
    if not isinstance(prompts, dict) or not all(
        isinstance(text, str) and len(text) <= _MAX_PROMPT for text in prompts.values()
    ):
        raise FormatError(f"{path}: prompts is {short(prompts)}; it must be an object of texts.")
    if default is not None and (not isinstance(default, str) or default not in prompts):
        raise FormatError(f"{path}: default_prompt_name {short(default)} is not one of prompts.")
    similarity = config.get("similarity_fn_name")
    return {
        "prompts": prompts,
        "default_prompt": default,
        "similarity": similarity if isinstance(similarity, str) else None,
    }
