"""Checks the options of a contestant before anything is trained."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path
from typing import TYPE_CHECKING, Any

from filbert.data.streams import require_file
from filbert.errors import ConfigError, FormatError, InputError
from filbert.train.distill_options import DistillOptions
from filbert.train.options import FinetuneOptions, options_in

if TYPE_CHECKING:
    from filbert.checkpoints.checkpoint import Checkpoint

# Options of each kind that is not trained by `finetune` or `distill`, with their defaults.
BIGRU: dict[str, Any] = {
    "vectors": None,
    "dim": 300,
    "hidden": 128,
    "dropout": 0.2,
    "max_words": 50_000,
    "min_count": 2,
    "pooling": "mean+max",
    "lr": 1e-3,  # a model without pre-training takes larger steps
    "batch_size": 32,
    "epochs": 4.0,
    "steps": None,
    "max_length": 256,
}
POOLINGS = ("mean+max", "mean", "max")
TFIDF: dict[str, Any] = {"C": None, "ngrams": 2, "min_df": 2}
STATIC: dict[str, Any] = {"vectors": None, "model": None, "C": None}
# Options for the length of a training; only one of them counts.
_LENGTHS = ("epochs", "steps", "time")
_BUILT_IN = ("minilm", "filbert-mini")
_COLUMNS = {name for name in options_in(FinetuneOptions) if "column" in name}
# Options of `finetune` that the study sets for every contestant.
STUDYS = {
    "task", "train", "dev", "test", "out", "overwrite", "resume", "seed", "seeds", "clean",
    "positive", "labels", "multilabel", "show_texts", "distributed", "tensorboard",
    "merge_labels", "merge_as",
} | _COLUMNS  # fmt: skip


@dataclass(frozen=True)
class Contestant:
    """One model of a comparison.

    Attributes:
        name: Display name: "minilm", "minilm, cleaned".
        folder: Its name as a folder.
        kind: One of `KINDS`.
        options: Its own options and those of all contestants.
        cleaning: As `--clean` takes it; None for unchanged texts.
        steps: Names of the steps of that cleaning.
        seeds: One training each.
        source: Its teacher, or the model that it is at another precision.
    """

    name: str
    folder: str
    kind: str
    options: dict[str, Any]
    cleaning: str | None
    steps: tuple[str, ...]
    seeds: tuple[int, ...]
    source: Contestant | None = None

    @property
    def root(self) -> Contestant:
        """The first contestant of the chain of sources; itself without a source."""
        return self if self.source is None else self.source.root

    @property
    def depth(self) -> int:
        """Number of contestants that must be finished before it."""
        return 0 if self.source is None else 1 + self.source.depth


def contestant_options(
    where: str,
    kind: str,
    said: Mapping[str, Any],
    shared: Mapping[str, Any],
    own: Mapping[str, Any],
    labels: int | None = None,
) -> dict[str, Any]:
    """Check a contestant's options and merge them with those of all contestants.

    Args:
        where: Its table, for messages.
        kind: Of the contestant.
        said: Options in its table.
        shared: Options of the study, which its own take precedence over.
        own: Flags, which take precedence over both.
        labels: Number of labels, if known.

    Raises:
        ConfigError, InputError, FormatError: An option is unknown or has a wrong value.
    """
    extra = {"bigru": BIGRU, "tfidf": TFIDF, "static": STATIC}.get(kind, {})
    trained = kind == "encoder"
    known = {*extra}
    if trained:
        known |= options_in(FinetuneOptions).keys() - STUDYS
    refuse_unknown(where, said, known, trained=trained)
    shared = {key: value for key, value in shared.items() if key in known}
    own = {key: value for key, value in own.items() if key in known}
    options = merged(extra, shared, said, own)
    with named_contestant(where, options):
        if trained:
            _check_trained(options, labels)
        elif kind == "bigru":
            _check_bigru(options, "dim" in said)
        else:
            _check_linear(kind, options)
    return options


def refuse_unknown(
    where: str, said: Collection[str], known: Collection[str], *, trained: bool
) -> None:
    """Refuse an option that the kind does not have, or that the study sets."""
    for key in said:
        if key in known:
            continue
        if key == "clean":
            raise ConfigError(f'{where}: write cleaning = ["study"], not clean.')
        if trained and key in STUDYS:
            raise ConfigError(f"{where}: {key!r} is the same for all contestants of a study.")
        raise ConfigError(f"{where}: there is no option {key!r}.{near(key, known)}")


def merged(
    extra: Mapping[str, Any],
    shared: Mapping[str, Any],
    said: Mapping[str, Any],
    own: Mapping[str, Any],
) -> dict[str, Any]:
    """Merge defaults, options of the study, of the contestant, and flags; the later win."""
    if any(name in said for name in _LENGTHS):
        # Steps of the study would silently override its own epochs.
        shared = {key: value for key, value in shared.items() if key not in _LENGTHS}
    options = {**extra, **shared, **said, **own}
    if "steps" in own or "epochs" in own:
        # A flag must override another kind of length in the recipe.
        dropped = {"time"} if "steps" in own else {"time", "steps"}
        options = {key: value for key, value in options.items() if key not in dropped}
    return options


@contextmanager
def named_contestant(where: str, options: Mapping[str, Any]) -> Iterator[None]:
    """Put the contestant's table before the message of an error."""
    try:
        yield
    except ConfigError as error:
        raise ConfigError(f"{where}: {error}") from error
    except (InputError, FormatError) as error:
        key = "student" if "student" in options else "model"
        model = str(options.get(key))
        named = "" if model in str(error) or key not in options else f"{key} {model!r}: "
        raise type(error)(f"{where}: {named}{error}{near(model, _BUILT_IN)}") from error


def _check_trained(options: dict[str, Any], labels: int | None) -> None:
    paths = {"task": "classification", "train": "train", "dev": "dev", "out": "out"}
    chosen = FinetuneOptions.from_keywords({**options, **paths})

    from filbert.tasks.classification import Classification

    # The task checks what happens to long texts.
    task = Classification.from_options(chosen.task.options, chosen.data.columns)
    check_running(chosen.train.metric, chosen.run.precision, chosen.run.device, labels)
    _check_layers(chosen, task.head_kind)


def check_running(
    metric: str | None, precision: str, device: str | None, labels: int | None
) -> None:
    """Refuse unknown metrics, number formats and devices."""
    from filbert.model.config import PRECISIONS
    from filbert.model.precision import choose_device
    from filbert.tasks.classification import Classification

    names = tuple(map(str, range(labels))) if labels else None
    metrics = Classification(labels=names, declared=bool(names)).metric_names
    if names and metric is not None and metric not in metrics:
        raise ConfigError(
            f"metric is {metric!r}; it must be one of {list(metrics)}.{near(metric, metrics)}"
        )
    if precision not in PRECISIONS:
        raise ConfigError(
            f"precision {precision!r} is not one of {list(PRECISIONS)}."
            f"{near(precision, PRECISIONS)}"
        )
    choose_device(device)


def _check_layers(chosen: FinetuneOptions, head_kind: str | None) -> None:
    """Refuse lengths and layers that the model does not have."""
    from filbert.checkpoints.checkpoint import as_causal, meta_model, with_layers
    from filbert.checkpoints.opening import find_model, read_checkpoint
    from filbert.inference.stored_task import check_max_length
    from filbert.train.trainable import freeze, layers_to_keep, reinitialize_top

    checkpoint = read_checkpoint(find_model(chosen.model.name))
    check_max_length(chosen.data.max_length, checkpoint.config)
    if chosen.model.keep_layers is not None:
        layers = layers_to_keep(chosen.model.keep_layers, checkpoint.config.num_hidden_layers)
        checkpoint = with_layers(checkpoint, layers)
    checkpoint = as_causal(checkpoint) if chosen.model.causal else checkpoint
    model = meta_model(checkpoint.config, head_kind, 2)
    freeze(model, chosen.train.freeze)
    reinitialize_top(model, chosen.model.reinit_layers)


def _check_bigru(options: dict[str, Any], says_dim: bool) -> None:
    """Check the options of a BiGRU; by default its dimension is that of the vectors."""
    whole = ("dim", "hidden", "max_words", "min_count", "batch_size", "max_length")
    _check_numbers(options, whole if options["steps"] is None else (*whole, "steps"))
    pooling, dropout = options["pooling"], options["dropout"]
    for name in ("lr", "epochs"):
        _check_positive(options, name)
    if options["max_words"] < 3:
        raise ConfigError(f"max_words is {options['max_words']}; give at least 3.")
    if pooling not in POOLINGS:
        raise ConfigError(
            f"pooling is {pooling!r}; it must be one of {list(POOLINGS)}.{near(pooling, POOLINGS)}"
        )
    is_number = isinstance(dropout, int | float) and not isinstance(dropout, bool)
    if not is_number or not 0 <= dropout < 1:
        raise ConfigError(f"dropout is {dropout!r}; it must be in [0, 1).")
    if options["vectors"] is None:
        return
    _check_file(options["vectors"])

    from filbert.data.word_vectors import vector_dimension

    found = vector_dimension(options["vectors"])
    if not says_dim:
        options["dim"] = found
    elif options["dim"] != found:
        raise ConfigError(
            f"{options['vectors']} has {found} numbers a word, and dim is {options['dim']}. "
            f"Give dim {found}, or leave it out."
        )


def _check_linear(kind: str, options: dict[str, Any]) -> None:
    if options["C"] is not None:
        _check_positive(options, "C")
    if kind == "tfidf":
        _check_numbers(options, ("ngrams", "min_df"))
        return
    if options["vectors"] is not None and options["model"] is not None:
        raise ConfigError("vectors and model both name the word vectors; give one of them.")
    if options["vectors"] is not None:
        _check_file(options["vectors"])

        from filbert.data.word_vectors import vector_dimension

        vector_dimension(options["vectors"])
        return
    options["model"] = options["model"] or "minilm"
    if not isinstance(options["model"], str):
        raise ConfigError(f"model is {options['model']!r}; it must be the name of a model.")

    from filbert.checkpoints.opening import find_model

    find_model(options["model"])


def _check_numbers(options: Mapping[str, Any], names: Sequence[str]) -> None:
    for name in names:
        if type(options[name]) is not int or options[name] < 1:
            raise ConfigError(f"{name} is {options[name]!r}; it must be a whole number from 1.")


def _check_positive(options: Mapping[str, Any], name: str) -> None:
    value = options[name]
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    if not (is_number and 0 < value < math.inf):
        raise ConfigError(f"{name} is {value!r}; give a finite number above zero.")


def _check_file(path: Any) -> None:
    if not isinstance(path, str) or not Path(path).is_file():
        raise InputError(f"vectors: there is no file {path}.")


def near(given: Any, known: Collection[str]) -> str:
    """Return a suggestion as a sentence; empty without a similar name."""
    close = get_close_matches(str(given), sorted(known), 1)
    return f" Did you mean {close[0]!r}?" if close and close[0] != given else ""


# Option that names the source, by kind.
SOURCE_KEYS = {"distilled": "teacher", "quantised": "of"}
# Kinds that can be the source, by kind.
_SOURCES = {"distilled": ("encoder", "distilled"), "quantised": ("encoder", "distilled")}
KINDS = ("encoder", "bigru", "tfidf", "static", *SOURCE_KEYS)
# Kinds that take optimiser steps.
TRAINED = ("encoder", "distilled")
QUANTISED: dict[str, Any] = {"precision": "int8", "backend": "torch"}
# Number formats other than the source's own, by backend.
_PRECISIONS = {"torch": ("int8", "bf16"), "onnxruntime": ("int8", "float32")}


def title_of(name: str, titles: Collection[str]) -> str:
    """Return the table of a contestant's folder: "minilm" of "minilm-cleaned"."""
    fits = [title for title in titles if name == title or name.startswith(f"{title}-")]
    return max(fits, key=len, default=name)


def source_of(
    where: str, kind: str, said: Mapping[str, Any], others: Sequence[Contestant]
) -> Contestant:
    """Find the contestant that another one is made from.

    Args:
        where: The other's table, for messages.
        kind: One of `SOURCE_KEYS`.
        said: Options in that table.
        others: Candidates; named by folder, or by title if that has a single cleaning.

    Raises:
        ConfigError: No contestant has that name, or it is of a kind that cannot be a source.
    """
    key = SOURCE_KEYS[kind]
    name = said.get(key)
    if name is None:
        raise ConfigError(f"{where}: {key!r} is missing; name another contestant of this study.")
    fits = [one for one in others if one.folder == name]
    fits = fits or [one for one in others if one.name.split(",")[0] == name]
    if len(fits) != 1:
        names = [one.folder for one in others if one.kind in _SOURCES[kind]]
        raise ConfigError(
            f"{where}: {key} {name!r} is not one contestant of this study. Give one of {names}."
            f"{near(name, names)}"
        )
    if fits[0].kind not in _SOURCES[kind]:
        raise ConfigError(
            f"{where}: {key} {name!r} is of kind {fits[0].kind!r}; it must be one of "
            f"{[*_SOURCES[kind]]}."
        )
    return fits[0]


def derived_options(
    where: str,
    kind: str,
    said: Mapping[str, Any],
    shared: Mapping[str, Any],
    own: Mapping[str, Any],
    source: Contestant,
    labels: int | None,
) -> dict[str, Any]:
    """Check the options of a distilled or quantised contestant; see `contestant_options`.

    Raises:
        ConfigError, InputError, FormatError: An option is unknown or has a wrong value, or teacher
            and student do not fit.
    """
    if "cleaning" in said:
        raise ConfigError(
            f"{where}: it reads texts as {source.name} does; leave cleaning out, or name the one "
            f"with that cleaning as {SOURCE_KEYS[kind]}."
        )
    said = {**said, SOURCE_KEYS[kind]: source.folder}
    if kind == "quantised":
        return _quantised(where, said, shared, own, source)
    known = options_in(DistillOptions).keys() - STUDYS - {"corpus", "cache"}
    if "cache" in said:
        raise ConfigError(
            f"{where}: the teacher predicts during the training, so that a student's costs are "
            "complete; leave cache out."
        )
    refuse_unknown(where, said, known, trained=True)
    options = merged({}, shared, said, own)
    with named_contestant(where, options):
        _check_distilled(options, source, labels)
    return options


def _quantised(
    where: str,
    said: Mapping[str, Any],
    shared: Mapping[str, Any],
    own: Mapping[str, Any],
    source: Contestant,
) -> dict[str, Any]:
    refuse_unknown(where, said, {"of", "device", *QUANTISED}, trained=False)
    # The precision of the source's training does not apply.
    device = {k: v for k, v in {**shared, **own}.items() if k == "device"}
    options = {**QUANTISED, **device, **said}
    backend, precision = options["backend"], options["precision"]
    if backend not in _PRECISIONS:
        raise ConfigError(
            f"{where}: backend {backend!r} is not one of {[*_PRECISIONS]}."
            f"{near(backend, _PRECISIONS)}"
        )
    if precision not in _PRECISIONS[backend]:
        raise ConfigError(
            f"{where}: precision {precision!r} is not one of {[*_PRECISIONS[backend]]}, those that "
            f"{backend} adds.{near(precision, _PRECISIONS[backend])}"
        )
    if precision == "int8" and "device" not in said and options.get("device") != "cpu":
        # int8 runs on CPUs, wherever the source was trained.
        options.pop("device", None)
    with named_contestant(where, options):
        from filbert.model.precision import choose_device

        place = choose_device(options.get("device"))
        if precision == "int8" and place.type != "cpu" and "device" in options:
            raise ConfigError(f"int8 runs on CPUs only, and device is {place}. Leave it out.")
        if backend == "onnxruntime":
            from filbert.checkpoints.onnx_folder import check_installed

            check_installed()
    return options


def _check_distilled(options: dict[str, Any], source: Contestant, labels: int | None) -> None:
    """Refuse what `distill` would refuse, before the teacher is trained."""
    if options.get("student") is None and options.get("keep_layers") is None:
        raise ConfigError(
            'It needs a student: some of the teacher\'s layers (keep_layers = "0,2,4") or another '
            'model (student = "...").'
        )
    given = {key: value for key, value in options.items() if key != "teacher"}
    places = {"teacher": source.folder, "train": "train", "dev": "dev", "out": "out"}
    chosen = DistillOptions.from_keywords({**given, **places})
    check_running(chosen.train.metric, chosen.run.precision, chosen.run.device, labels)
    if chosen.augment.augment_with is not None:
        from filbert.checkpoints.opening import find_model

        find_model(chosen.augment.augment_with)
    if chosen.data.extra is not None:
        require_file(chosen.data.extra)
    teacher = _start_of(source.kind, source.options, source.source)
    student = _start_of("distilled", options, source)

    from filbert.inference.stored_task import check_max_length

    check_max_length(chosen.data.max_length, student.config)
    if chosen.loss.method == "soft":
        return

    from filbert.train.distill import layer_losses_of

    layer_losses_of(chosen.loss, student.config, teacher.config)


def _start_of(kind: str, options: Mapping[str, Any], source: Contestant | None) -> Checkpoint:
    """Return the checkpoint that a contestant's training starts from.

    Raises:
        ConfigError: A layer to keep does not exist.
    """
    from filbert.checkpoints.checkpoint import with_layers
    from filbert.checkpoints.opening import find_model, read_checkpoint
    from filbert.train.trainable import layers_to_keep

    named = options.get("model") if kind == "encoder" else options.get("student")
    if named is not None:
        checkpoint = read_checkpoint(find_model(str(named)))
    else:
        assert source is not None
        checkpoint = _start_of(source.kind, source.options, source.source)
    if options.get("keep_layers") is None:
        return checkpoint
    layers = layers_to_keep(options["keep_layers"], checkpoint.config.num_hidden_layers)
    return with_layers(checkpoint, layers)
