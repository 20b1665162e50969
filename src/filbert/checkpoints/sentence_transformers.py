"""Reads and writes how sentence vectors are computed: modules.json and the files it names.

Source: sentence-transformers 2 to 6, the modules' load and save, and Model.save.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from reprlib import repr as short
from typing import Any

from filbert.checkpoints.families import SENTENCE_FILES, STATIC
from filbert.checkpoints.weights import open_weights, save_tensors
from filbert.errors import FormatError, printable, unreadable_as
from filbert.files import load_json, read_json
from filbert.model.pooling import ACTIVATIONS, VectorModule

# In the order in which sentence-transformers concatenates several.
_POOLING_KEYS = {
    "pooling_mode_cls_token": "cls",
    "pooling_mode_max_tokens": "max",
    "pooling_mode_mean_tokens": "mean",
    "pooling_mode_mean_sqrt_len_tokens": "mean_sqrt_len",
    "pooling_mode_weightedmean_tokens": "weightedmean",
    "pooling_mode_lasttoken": "last",
}
# Keys that the oldest versions do not know; they are written only if they are true.
_LATE_KEYS = ("pooling_mode_weightedmean_tokens", "pooling_mode_lasttoken")
# Poolings with another name in the key of version 5.3 and later.
_RENAMED = {"mean_sqrt_len_tokens": "mean_sqrt_len", "lasttoken": "last"}
# Modules that read texts, and those that follow. Until 2020 every family had a class of its own.
_INPUTS = ("Transformer", "StaticEmbedding")
_STEPS = ("Pooling", "Dense", "LayerNorm", "Normalize")
_OLD_NAMES = dict.fromkeys(
    ("BERT", "RoBERTa", "DistilBERT", "ALBERT", "CamemBERT", "XLMRoBERTa", "MLMTransformer"),
    "Transformer",
) | {"Asym": "Router"}
# Heads of bge-m3 next to its dense vectors. Pickles, which are never opened.
_BGE_M3 = ("colbert_linear.pt", "sparse_linear.pt")
_TRANSFORMERS = "Take a model whose modules.json begins with Transformer."
# Modules that are not read: why, and the nearest that is.
_UNREAD = {
    "CLIPModel": ("it reads images too", "Take clip-ViT-B-32-multilingual-v1, which reads texts."),
    "WordEmbeddings": ("it splits words in Python", "Take a model of StaticEmbedding (model2vec)."),
    "BoW": ("it counts words", "filbert compare trains TF-IDF baselines."),
    "CNN": ("it is a convolution over word vectors", _TRANSFORMERS),
    "LSTM": ("it is a recurrent network over word vectors", _TRANSFORMERS),
    "WeightedLayerPooling": ("it learns weights of layers", "Name layers: filbert embed --layers."),
    "SparseStaticEmbedding": ("it has no dense vectors", _TRANSFORMERS),
    "SparseAutoEncoder": ("its vectors are sparse", "Take the model that it was trained from."),
    "LogitScore": ("it reads the next token", "Take a reranker of an encoder (ettin-reranker)."),
}
_MAX_PROMPT = 10_000
_OLD_ACTIVATION = "sbert_ce_default_activation_function"
# What sentence-transformers 5.4 and later read of a cross-encoder with a classifier's head.
_CLASSIFIER = {
    "transformer_task": "sequence-classification",
    "modality_config": {"text": {"method": "forward", "method_output_name": "logits"}},
    "module_output_name": "scores",
}


@dataclass(frozen=True)
class SentenceVectors:
    """How sentence vectors are computed.

    Attributes:
        pooling: "mean", "cls", "max", "mean_sqrt_len", "weightedmean", "last", or several joined
            by "+", as `model.pooling.pool` takes it.
        normalize: Scale the vectors to unit length at the end.
        before: Modules applied to the vector of every token before pooling, in order.
        modules: Modules applied to the pooled vector, in order.
        include_prompt: Whether the tokens of a prompt are pooled too.
        dimensions: Keep only the first numbers (Matryoshka), before `normalize`; None for all.
        scores: The vectors are scores of pairs (a cross-encoder); a key of ACTIVATIONS, which
            `predict` applies to them.
        max_length: Texts are truncated to this many tokens, special tokens included; None for the
            model's own limit.
        prompts: Prefixes of texts, by purpose.
        default_prompt: Key of the prompt that is used for every text; None for none.
        similarity: The similarity function that the vectors were trained for: "cosine", "dot" ...
    """

    pooling: str = "mean"
    normalize: bool = False
    before: tuple[VectorModule, ...] = ()
    modules: tuple[VectorModule, ...] = ()
    include_prompt: bool = True
    dimensions: int | None = None
    scores: str | None = None
    max_length: int | None = None
    prompts: Mapping[str, str] = field(default_factory=dict)
    default_prompt: str | None = None
    similarity: str | None = "cosine"

    def dimension(self, hidden_size: int) -> int:
        """Return the width of a vector, for an encoder of width `hidden_size`."""
        width = self.token_width(hidden_size) * len(self.pooling.split("+"))
        for module in self.modules:
            width = module.width(width)
        return min(width, self.dimensions or width)

    def token_width(self, hidden_size: int) -> int:
        """Return the width of the vectors that are pooled."""
        for module in self.before:
            hidden_size = module.width(hidden_size)
        return hidden_size

    @property
    def prompt(self) -> str:
        """The text before every text; "" for none."""
        return self.prompts[self.default_prompt] if self.default_prompt is not None else ""

    def prepared(self, text: str | tuple[str, str]) -> str | tuple[str, str]:
        """Return a text, or a pair, with the prompt before its first text."""
        return self.prompt + text if isinstance(text, str) else (self.prompt + text[0], text[1])

    def facts(self) -> dict[str, Any]:
        """Return plain values; a dense layer is described by its sizes."""
        facts = {
            "pooling": self.pooling,
            "dense": [module.description for module in self.modules],
            "normalize": self.normalize,
            "max_length": self.max_length,
            "prompts": dict(self.prompts),
            "default_prompt": self.default_prompt,
        }
        seldom = {
            "dense_before": [module.description for module in self.before],
            "dimensions": self.dimensions,
            "without_prompt": not self.include_prompt,
            "scores": self.scores,
        }
        return facts | {name: value for name, value in seldom.items() if value}


@dataclass(eq=False)
class ModelFolder:
    """A folder in Hugging Face's layout; its JSON files are parsed once, when they are needed.

    Attributes:
        path: The folder, or the prefix of a TensorFlow checkpoint, which has no such files.
        route: A key of `routes`; None for the first.
        base: Of an adapter the model that it changes.
    """

    path: Path
    route: str | None = None
    base: ModelFolder | None = None

    @property
    def described(self) -> ModelFolder:
        """The folder with config.json and the tokenizer: the base's if an adapter has none."""
        return self if self.base is None or self.config is not None else self.base

    @cached_property
    def _listed(self) -> Any:
        path = self.path / "modules.json"
        return load_json(path) if path.is_file() else None

    @cached_property
    @unreadable_as(FormatError)
    def routes(self) -> dict[str, list[Any]]:
        """The modules of each route of a Router, those of its default route first; else empty."""
        first = self._listed[0] if isinstance(self._listed, list) and self._listed else None
        if not isinstance(first, dict) or _kind(first.get("type")) != "Router":
            return {}
        place = _inside(first.get("path"), self.path / "modules.json")
        names = ("router_config.json", "config.json")  # the second until version 4
        path = next((p for name in names if (p := self.path / place / name).is_file()), None)
        config = {} if path is None else read_json(path)
        options = config.get("parameters") or {}
        try:
            types = config["types"]
            routes = {
                route: [{"type": types[name], "path": str(place / name)} for name in modules]
                for route, modules in config["structure"].items()
            }
            default = options.get("default_route") or next(iter(routes))
            if options.get("route_mappings"):
                raise KeyError("route_mappings")
            return {default: routes.pop(default), **routes}
        except (AttributeError, KeyError, TypeError, StopIteration) as error:
            raise FormatError(
                f"{path or self.path / place}: the Router cannot be read. Only routes by task, "
                "with their types and structure, can be; not by kinds of media (route_mappings)."
            ) from error

    @cached_property
    def modules(self) -> Any:
        """The content of modules.json, not checked, with the modules of one route for a Router."""
        if not self.routes:
            return self._listed
        return [*self.routes[self.route or next(iter(self.routes))], *self._listed[1:]]

    @property
    def kinds(self) -> list[str]:
        """The last part of the type of every module; empty without a list of modules."""
        modules = self.modules if isinstance(self.modules, list) else []
        return [_kind(module.get("type")) if isinstance(module, dict) else "" for module in modules]

    @property
    def is_static(self) -> bool:
        """Whether texts are read by a table of word vectors without layers."""
        return self.kinds[:1] == ["StaticEmbedding"]

    @cached_property
    @unreadable_as(FormatError)
    def encoder(self) -> Path:
        """The folder of encoder and tokenizer: in old folders a subfolder, "0_Transformer"."""
        if not self.kinds or self.kinds[0] not in _INPUTS:
            return self.path
        return self.path / _inside(self.modules[0].get("path"), self.path / "modules.json")

    @cached_property
    def config(self) -> dict[str, Any] | None:
        """The content of the encoder's config.json; None without the file."""
        path = self.encoder / "config.json"
        if self.is_static:
            return _static_config(self.encoder)
        return read_json(path) if path.is_file() else None

    @property
    def notes(self) -> list[str]:
        """Sentences on heads and routes of the folder that are left out."""
        what = _other_vectors(self.kinds)
        notes = [f"left out: {what}. Vectors are the mean of the encoder's tokens."] if what else []
        if heads := [name for name in _BGE_M3 if (self.path / name).is_file()]:
            notes.append(f"left out: {' and '.join(heads)}. Vectors are the dense ones.")
        if others := list(self.routes)[1:]:
            routes = ", ".join(map(printable, others))
            notes.append(f"read by its default route; its Router has others ({routes}).")
        return notes


def opened(place: Path | ModelFolder) -> ModelFolder:
    """Return a place as a ModelFolder, whose files may have been parsed already."""
    return place if isinstance(place, ModelFolder) else ModelFolder(place)


@unreadable_as(FormatError)
def read_sentence_vectors(place: Path | ModelFolder, hidden_size: int) -> SentenceVectors:
    """Read how sentence vectors are computed; mean pooling without a modules.json.

    Raises:
        FormatError: An unsupported module, or a file that is damaged, unreadable or outside the
            folder.
    """
    opened_folder = opened(place).described
    folder, modules = opened_folder.path, _modules(opened_folder)
    if not modules:
        return SentenceVectors()
    values: dict[str, Any] = {"similarity": None, **_limits(opened_folder.encoder)}
    if _other_vectors(opened_folder.kinds):
        return SentenceVectors(max_length=values.get("max_length"))
    values |= _settings(folder)
    # Every route can be named as a prompt, whether it has one or not.
    values["prompts"] = dict.fromkeys(opened_folder.routes, "") | values.get("prompts", {})
    at_tokens, width = not opened_folder.is_static, hidden_size
    steps: dict[bool, list[VectorModule]] = {True: [], False: []}
    is_scored = False
    for kind, module in modules[1:]:
        path = folder / module / "config.json"
        if kind == "Pooling":
            if not at_tokens:
                raise FormatError(f"{path}: there are no vectors of tokens left to pool.")
            values |= _pooling(path)
            at_tokens, width = False, width * len(values["pooling"].split("+"))
            continue
        if is_scored:
            raise FormatError(f"{path}: a module after the scores of a reranker.")
        step, is_scored = _vector_module(kind, path, at_tokens=at_tokens, width=width)
        steps[at_tokens].append(step)
        width = step.width(width)
    if is_scored or "scores" in values:
        values.setdefault("scores", "Sigmoid")
        if values.get("default_prompt") or (is_scored and (steps[True] or width != 1)):
            raise FormatError(f"{folder}: only rerankers with one score and no prompt can be read.")
    if normalize := bool(steps[False]) and steps[False][-1].kind == "Normalize":
        steps[False].pop()
    before, after = tuple(steps[True]), tuple(steps[False])
    return SentenceVectors(**values, normalize=normalize, before=before, modules=after)


def write_sentence_vectors(
    folder: Path, vectors: SentenceVectors, hidden_size: int, *, static: bool = False
) -> None:
    """Write the files from which sentence-transformers computes the same vectors.

    These are modules.json, a folder for each module, sentence_bert_config.json and
    config_sentence_transformers.json, with the keys of versions 2 to 6. The encoder of a `static`
    model is a table of word vectors.
    """
    steps: list[VectorModule | None] = [*vectors.before, None, *vectors.modules]
    steps += [VectorModule("Normalize")] if vectors.normalize else []
    # The head of a classifier needs no modules, and a table of word vectors is pooled already.
    if static or (vectors.scores and not vectors.modules):
        steps.remove(None)
    kinds = [_INPUTS[static], *("Pooling" if step is None else step.kind for step in steps)]
    places = ["", *(f"{i}_{kind}" for i, kind in enumerate(kinds) if i)]
    # The tokenizer does the lower-casing.
    limits: dict[str, Any] = {"max_seq_length": vectors.max_length, "do_lower_case": False}
    if vectors.scores is not None and not vectors.modules:
        limits |= _CLASSIFIER
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
        "sentence_bert_config.json": limits,
        "config_sentence_transformers.json": _settings_of(vectors),
    }
    for place, step in zip(places[1:], steps, strict=True):
        (folder / place).mkdir(parents=True, exist_ok=True)
        if step is None:
            config = _pooling_config(vectors, vectors.token_width(hidden_size))
            content[f"{place}/config.json"] = config
            continue
        content[f"{place}/config.json"] = dict(step.config)
        if step.tensors:
            tensors = {n: t.detach().cpu().contiguous() for n, t in step.tensors.items()}
            save_tensors(tensors, folder / place / "model.safetensors")
    for name, value in content.items():
        text = json.dumps(value, indent=2, ensure_ascii=False) + "\n"
        (folder / name).write_text(text, encoding="utf-8")


def _settings_of(vectors: SentenceVectors) -> dict[str, Any]:
    settings: dict[str, Any] = {
        "model_type": "SentenceTransformer",
        "prompts": dict(vectors.prompts),
        "default_prompt_name": vectors.default_prompt,
        "similarity_fn_name": vectors.similarity,
    }
    if vectors.dimensions is not None:
        settings["truncate_dim"] = vectors.dimensions
    if vectors.scores is not None:
        module = "linear" if vectors.scores == "Identity" else "activation"
        name = f"torch.nn.modules.{module}.{vectors.scores}"
        settings |= {"model_type": "CrossEncoder", "activation_fn": name}
    return settings


def _pooling_config(vectors: SentenceVectors, width: int) -> dict[str, Any]:
    asked = vectors.pooling.split("+")
    if unknown := [name for name in asked if name not in _POOLING_KEYS.values()]:
        raise ValueError(f"pooling {unknown[0]!r} is not one of {list(_POOLING_KEYS.values())}")
    excluded = {} if vectors.include_prompt else {"include_prompt": False}
    if asked != [name for name in _POOLING_KEYS.values() if name in asked]:
        # Only the later key can express another order.
        names = {ours: theirs for theirs, ours in _RENAMED.items()}
        modes = [names.get(name, name) for name in asked]
        return {"embedding_dimension": width, "pooling_mode": modes, **excluded}
    # Versions before 5.3 use the mean if its key is missing.
    keys = {
        key: name in asked
        for key, name in _POOLING_KEYS.items()
        if key not in _LATE_KEYS or name in asked
    }
    return {"word_embedding_dimension": width, **keys, **excluded}


def _modules(folder: ModelFolder) -> list[tuple[str, Path]]:
    """Return kind and place of every module, in order; empty without a modules.json."""
    path, given = folder.path / "modules.json", folder.modules
    if given is None and not path.is_file():
        return []
    if not isinstance(given, list) or len(given) > 100:
        raise FormatError(f"{path}: {short(given)}; expected a list of modules.")
    modules = []
    is_left_out = _other_vectors(folder.kinds) is not None
    for number, (module, kind) in enumerate(zip(given, folder.kinds, strict=True)):
        if not isinstance(module, dict) or not isinstance(module.get("type"), str):
            raise FormatError(f"{path}: {short(module)}; expected a module, an object with a type.")
        read = _STEPS if number else _INPUTS
        if kind not in read and not (is_left_out and number):
            why, nearest = _UNREAD.get(kind, ("", ""))
            place = "here" if number else "as the first"
            raise FormatError(
                f"{path}: module '{printable(kind)}' is not supported{why and f', because {why}'}; "
                f"{', '.join(read)} are, {place}.{nearest and f' {nearest}'}"
            )
        modules.append((kind, _inside(module.get("path"), path)))
    return modules


def _other_vectors(kinds: list[str]) -> str | None:
    """Return what a model of SPLADE or ColBERT gives for a text; None for other models.

    As in sentence-transformers, the dense vectors of such an encoder are the mean of its tokens.
    """
    if "SpladePooling" in kinds:
        return "the weights of vocabulary entries (SPLADE: SpladePooling)"
    has_tokens = "Dense" in kinds and "Pooling" not in kinds and kinds[0] == "Transformer"
    if has_tokens or "MultiVectorMask" in kinds:
        return f"one vector a token (ColBERT: {', '.join(map(printable, kinds[1:8]))})"
    return None


def _kind(type_: object) -> str:
    """Return the last part of a module's type, by its present name."""
    kind = type_.rsplit(".", 1)[-1] if isinstance(type_, str) else ""
    return _OLD_NAMES.get(kind, kind)


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


def _static_config(folder: Path) -> dict[str, Any]:
    """Return a config.json for a table of word vectors, with one more row for empty texts."""
    shapes = open_weights(folder).shapes
    tables = [shape for name, shape in shapes.items() if name in ("embedding.weight", "embeddings")]
    if len(shapes) > 1 or len(tables) != 1 or len(tables[0]) != 2:
        raise FormatError(
            f"{folder}: the tensors are {short(sorted(shapes))}; a StaticEmbedding has one table, "
            "embedding.weight. Load a quantised model2vec with sentence-transformers, and save it."
        )
    rows, width = tables[0]
    sizes = {"vocab_size": rows + 1, "hidden_size": width}
    return {"model_type": STATIC, "architectures": ["StaticEmbedding"], **sizes}


def _pooling(path: Path) -> dict[str, Any]:
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
    pooling = "+".join(_RENAMED.get(str(name), str(name)) for name in asked)
    return {"pooling": pooling, "include_prompt": config.get("include_prompt") is not False}


def _vector_module(
    kind: str, path: Path, *, at_tokens: bool, width: int
) -> tuple[VectorModule, bool]:
    """Read a module over vectors of a width from its config.json, and whether it gives scores.

    That of Normalize may be missing. With `at_tokens` the vectors are those of tokens.
    """
    config = read_json(path) if kind != "Normalize" or path.is_file() else {}
    key = "token_embeddings" if at_tokens else "sentence_embedding"
    source = config.get("module_input_name") or "sentence_embedding"
    target = config.get("module_output_name") or source
    is_scored = kind == "Dense" and target == "scores"
    if source != key or not (is_scored or target == key) or config.get("use_residual"):
        raise FormatError(
            f"{path}: a module from {short(source)} to {short(target)}, or with use_residual; "
            f"here filbert runs those that change {key}."
        )
    if kind == "Normalize":
        return VectorModule(kind, config=config), False
    if kind == "LayerNorm":
        sizes, activation = (config.get("dimension"),) * 2, "Identity"
        wanted: dict[str, tuple[Any, ...]] = {"norm.weight": sizes[:1], "norm.bias": sizes[:1]}
    else:
        activation = _activation(config.get("activation_function", "torch.nn.Tanh"), path)
        sizes = (config.get("out_features"), config.get("in_features"))
        wanted = {"linear.weight": sizes}
        if config.get("bias", True) is not False:
            wanted["linear.bias"] = sizes[:1]
    weights = open_weights(path.parent)
    if wanted != weights.shapes:
        listed = ", ".join(f"{printable(n)} {s}" for n, s in sorted(weights.shapes.items())[:4])
        raise FormatError(
            f"{path.parent}: config.json says a {kind} of {short(sizes[1])} to {short(sizes[0])}, "
            f"but its weights are {listed or 'none'}."
        )
    if width != sizes[1]:
        raise FormatError(
            f"{path.parent}: a {kind} over vectors of {sizes[1]}, but those before it have {width}."
        )
    tensors = {name: weights.read(name).float() for name in wanted}
    return VectorModule(kind, tensors, activation, config), is_scored


def _activation(name: object, path: Path) -> str:
    """Return the name of an activation by the path of torch's class."""
    module, _, last = name.rpartition(".") if isinstance(name, str) else ("", "", "")
    if last not in ACTIVATIONS or module.split(".")[0] != "torch":
        known = ", ".join(ACTIVATIONS)
        raise FormatError(f"{path}: activation {short(name)} is not one of {known}.")
    return last


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


def _settings(folder: Path) -> dict[str, Any]:
    """Return the settings of config_sentence_transformers.json, by fields of SentenceVectors."""
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
    similarity, dimensions = config.get("similarity_fn_name"), config.get("truncate_dim")
    if dimensions is not None and (type(dimensions) is not int or dimensions < 1):
        raise FormatError(f"{path}: truncate_dim is {short(dimensions)}; it must be above zero.")
    values = {
        "prompts": prompts,
        "default_prompt": default,
        "similarity": similarity if isinstance(similarity, str) else None,
        "dimensions": dimensions,
    }
    if config.get("model_type") == "CrossEncoder":
        name = config.get("activation_fn")
        values["scores"] = "Sigmoid" if name is None else _activation(name, path)
    return values


def score_activation(place: Path | ModelFolder) -> str | None:
    """Return the activation of a cross-encoder's score, a key of ACTIVATIONS; None for others.

    Versions from 5.4 on write it to config_sentence_transformers.json, and earlier ones, if at
    all, to config.json.
    """
    folder = opened(place)
    if (scores := _settings(folder.path).get("scores")) is not None:
        return str(scores)
    config = score_settings(folder)
    nested = config.get("sentence_transformers")
    name = nested.get("activation_fn") if isinstance(nested, dict) else None
    name = name or config.get(_OLD_ACTIVATION)
    return None if name is None else _activation(name, folder.encoder / "config.json")


def score_settings(place: Path | ModelFolder) -> dict[str, Any]:
    """Return the entries of config.json that set how a cross-encoder's scores are activated."""
    config, keys = opened(place).config or {}, ("sentence_transformers", _OLD_ACTIVATION)
    return {key: config[key] for key in keys if config.get(key) is not None}
