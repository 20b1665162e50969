"""How a sentence-transformers folder says its vectors are made: modules.json and what it names.

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

# In the order in which sentence-transformers joins several.
_POOLING_KEYS = {
    "pooling_mode_cls_token": "cls",
    "pooling_mode_max_tokens": "max",
    "pooling_mode_mean_tokens": "mean",
    "pooling_mode_mean_sqrt_len_tokens": "mean_sqrt_len",
    "pooling_mode_lasttoken": "last",
}
# Keys that the oldest versions stumble over, so that they are written only where they are on.
_LATE_KEYS = ("pooling_mode_lasttoken",)
# Poolings that the key of version 5.3 and later calls otherwise than we do.
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
    """How sentence vectors are made.

    Attributes:
        pooling: as `model.pooling.pool` takes it: "mean", "cls", "max", "mean_sqrt_len", "last",
            or several of them with "+" between.
        normalize: scale to unit length, at the end.
        dense: layers that a pooled vector goes through, in order.
        max_length: texts are cut to this many tokens, special tokens included; None for the
            model's own limit.
        prompts: texts to put before a text, by what they are for.
        default_prompt: key of the prompt that every text gets; None for none.
        similarity: the function that the vectors were made for: "cosine", "dot" ...
    """

    pooling: str = "mean"
    normalize: bool = False
    dense: tuple[Dense, ...] = ()
    max_length: int | None = None
    prompts: Mapping[str, str] = field(default_factory=dict)
    default_prompt: str | None = None
    similarity: str | None = "cosine"

    def dimension(self, hidden_size: int) -> int:
        """Width of a vector over an encoder of this width."""
        if self.dense:
            return int(self.dense[-1].weight_OI.shape[0])
        return hidden_size * len(self.pooling.split("+"))

    def prepared(self, text: str | tuple[str, str]) -> str | tuple[str, str]:
        """What the tokenizer gets for a text, or for a pair, whose second stays as it is."""
        prompt = self.prompts[self.default_prompt] if self.default_prompt else ""
        return prompt + text if isinstance(text, str) else (prompt + text[0], text[1])

    def facts(self) -> dict[str, Any]:
        """The same as plain values, with a dense layer's sizes for its weights."""
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
    """What modules.json asks for; plain means when the folder has none.

    Args:
        place: the model folder.
        hidden_size: of its encoder, for dense layers to be compared with.

    Raises:
        FormatError: the folder asks for something that filbert does not do, or its files are
            damaged, unreadable or not where they may be.
    """
    opened_folder = opened(place)
    folder, modules = opened_folder.path, _modules(opened_folder)
    if not modules:
        return SentenceVectors()
    values: dict[str, Any] = {"similarity": None, **_prompts(folder)}
    dense = []
    for kind, place in modules:
        if kind == "Transformer":
            values |= _limits(folder / place)
        elif kind == "Pooling":
            values["pooling"] = _pooling(folder / place / "config.json", values)
        elif kind == "Dense":
            dense.append(_dense(folder / place))
        else:
            values["normalize"] = True
    vectors = SentenceVectors(**values, dense=tuple(dense))
    width = None if hidden_size is None else hidden_size * len(vectors.pooling.split("+"))
    for layer, (_, place) in zip(dense, [m for m in modules if m[0] == "Dense"], strict=True):
        wide = int(layer.weight_OI.shape[1])
        if width not in (None, wide):
            raise FormatError(
                f"{folder / place}: a dense layer over vectors of {wide}, but those before it have "
                f"{width}."
            )
        width = int(layer.weight_OI.shape[0])
    return vectors


def write_sentence_vectors(folder: Path, vectors: SentenceVectors, hidden_size: int) -> None:
    """Say in a model folder how sentence vectors are made, so that sentence-transformers does it.

    Written are modules.json, a folder a module, sentence_bert_config.json and
    config_sentence_transformers.json, with the keys that versions 2 to 6 understand.

    Args:
        folder: holds, or will hold, weights and tokenizer in Hugging Face's layout.
        vectors: what to write.
        hidden_size: width of the encoder.

    Raises:
        ValueError: sentence-transformers knows no such pooling.
    """
    names = {ours: theirs for theirs, ours in _RENAMED.items()}
    asked = vectors.pooling.split("+")
    if unknown := [name for name in asked if name not in _POOLING_KEYS.values()]:
        raise ValueError(f"pooling {unknown[0]!r} is not one of {list(_POOLING_KEYS.values())}")
    pooling: dict[str, Any] = {
        "word_embedding_dimension": hidden_size,
        # Each is named: without its key the mean is on in versions before 5.3.
        **{
            key: name in asked
            for key, name in _POOLING_KEYS.items()
            if key not in _LATE_KEYS or name in asked
        },
    }
    if asked != [name for name in _POOLING_KEYS.values() if name in asked]:
        # Only the later key can say an order of its own.
        pooling = {
            "embedding_dimension": hidden_size,
            "pooling_mode": [names.get(name, name) for name in asked],
        }
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
        "1_Pooling/config.json": pooling,
        # Lower-casing is the tokenizer's; here it would be a second one.
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
        wide, narrow = reversed(layer.weight_OI.shape)
        content[f"{i}_Dense/config.json"] = {
            "in_features": wide,
            "out_features": narrow,
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
            f"{', '.join(_ORDER)}, and of Dense only more than one."
        )
    return modules


def _kind(type_: object) -> str:
    """The last part of a module's type; the old names of the first module are renewed."""
    kind = type_.rsplit(".", 1)[-1] if isinstance(type_, str) else ""
    return "Transformer" if kind in _OLD_TRANSFORMERS else kind


def _inside(place: object, modules: Path) -> Path:
    """A module's folder, below that of modules.json."""
    if (
        not isinstance(place, str)
        or len(place) > 255
        or not place.isprintable()
        or Path(place).is_absolute()
        or ".." in Path(place).parts
    ):
        raise FormatError(
            f"{modules}: the path of a module is {short(place)}; expected a folder beside the file."
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


def _dense(folder: Path) -> Dense:
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
        found = ", ".join(f"{printable(n)} {s}" for n, s in sorted(weights.shapes.items())[:4])
        raise FormatError(
            f"{folder}: config.json says a dense layer of {short(sizes[1])} to {short(sizes[0])}, "
            f"but its weights are {found or 'none'}."
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
        raise FormatError(f"{path}: max_seq_length is {short(length)}; a whole number is wanted.")
    # Some folders hold a number beyond all texts, which is no limit.
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
        raise FormatError(f"{path}: prompts is {short(prompts)}; it must be texts by their names.")
    if default is not None and (not isinstance(default, str) or default not in prompts):
        raise FormatError(f"{path}: default_prompt_name {short(default)} is not one of prompts.")
    similarity = config.get("similarity_fn_name")
    return {
        "prompts": prompts,
        "default_prompt": default,
        "similarity": similarity if isinstance(similarity, str) else None,
    }
