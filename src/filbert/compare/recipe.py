"""Reads and checks the recipe of a study before anything is trained.

A recipe names the rows, options for all contestants, and a table for each contestant.
"""

from __future__ import annotations

import math
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, fields
from difflib import get_close_matches
from pathlib import Path
from typing import TYPE_CHECKING, Any

from filbert.compare.options import SHARED, StudyOptions
from filbert.errors import ConfigError, FormatError, InputError
from filbert.text.clean import Cleaning
from filbert.train.distill_options import DistillOptions
from filbert.train.options import FinetuneOptions, flat, names_of, options_in

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
DEFAULTS: dict[str, dict[str, Any]] = {
    "encoder": {},
    "bigru": BIGRU,
    "tfidf": {"C": None, "ngrams": 2, "min_df": 2},
    "static": {"vectors": None, "model": None, "C": None},
    "distilled": {},
    "quantised": {"precision": "int8", "backend": "torch"},
}
KINDS = tuple(DEFAULTS)
# Kinds that take optimiser steps.
TRAINED = ("encoder", "distilled")
# Option that names the contestant whose model it starts from, by kind.
SOURCE_KEYS = {"distilled": "teacher", "quantised": "of"}
POOLINGS = ("mean+max", "mean", "max")
# Number formats other than the source's own, by backend.
_PRECISIONS = {"torch": ("int8", "bf16"), "onnxruntime": ("int8", "float32")}
_WHOLE_NUMBERS = (
    "dim", "hidden", "max_words", "min_count", "batch_size", "max_length", "ngrams", "min_df",
    "steps",
)  # fmt: skip
_POSITIVE_NUMBERS = ("lr", "epochs", "C")
# Options for the length of a training; only one of them counts.
_LENGTHS = ("epochs", "steps", "time")
_BUILT_IN = ("minilm", "filbert-mini")
# Options of `finetune` that are the same for every contestant.
_COMMON = {
    "task", "train", "dev", "test", "out", "overwrite", "resume", "seed", "seeds", "clean",
    "positive", "labels", "multilabel", "show_texts", "distributed", "tensorboard",
    "merge_labels", "merge_as",
} | {name for name in options_in(FinetuneOptions) if "column" in name}  # fmt: skip
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._+-]{0,59}")


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
    def title(self) -> str:
        """The name of its table in the recipe."""
        return self.name.split(",")[0]

    @property
    def root(self) -> Contestant:
        """The first contestant of the chain of sources; itself without a source."""
        return self if self.source is None else self.source.root

    @property
    def depth(self) -> int:
        """Number of contestants that must be finished before it."""
        return 0 if self.source is None else 1 + self.source.depth


@dataclass(frozen=True)
class Target:
    """Conditions for the choice of a model.

    Attributes:
        quality: Least share of another contestant's metric; None for any.
        of: Name of that contestant.
        latency_seconds: Longest time for a single text; None for any.
    """

    quality: float | None
    of: str | None
    latency_seconds: float | None


@dataclass(frozen=True)
class Study:
    """A study; the fields without a description are those of `StudyOptions`.

    Attributes:
        sources: {"data": path}, or paths of "train", "test" and optionally "dev".
        contestants: In the order of the recipe.
        target: What the chosen model must reach, if anything.
        options: All given options, for study.json.
    """

    name: str
    sources: dict[str, str]
    contestants: tuple[Contestant, ...]
    split: tuple[float, ...] = (0.7, 0.15, 0.15)
    seed: int = 0
    text_column: str = "text"
    text_pair_column: str | None = None
    label_column: str = "label"
    separator: str | None = None
    merge_labels: tuple[str, ...] | None = None
    merge_as: str | None = None
    keep_columns: tuple[str, ...] = ()
    positive: str | None = None
    near_duplicates: str = "together"
    resamples: int = 2000
    target: Target | None = None
    options: dict[str, Any] = field(default_factory=dict)


def read_study(recipe: Mapping[str, Any], flags: StudyOptions, *, name: str = "study") -> Study:
    """Return the study of a recipe.

    Args:
        recipe: Content of the TOML file, with a table "contestants".
        flags: They take precedence over the recipe and over the contestants' tables.
        name: Default name of the study.

    Raises:
        ConfigError: An unknown key, kind or value; the nearest name is suggested.
        InputError, FormatError: A contestant's model cannot be read.
    """
    keys = {key: value for key, value in recipe.items() if key != "contestants"}
    tables = recipe.get("contestants")
    known = [*options_in(StudyOptions)]
    for key, value in keys.items():
        if key not in known:
            hint = " Contestants are tables: [contestants.NAME]." * isinstance(value, dict)
            raise ConfigError(
                f"The recipe's key {key!r} is unknown.{near(key, [*known, 'contestants'])}{hint}"
            )
    given = StudyOptions.from_keywords(keys | flags.given()).given()
    if not isinstance(tables, Mapping) or not tables:
        raise ConfigError("The recipe names no contestant; add a table such as [contestants.bert].")
    sources = _sources(given)
    reader = _Reader(given, flags.given())
    by_title: dict[str, list[Contestant]] = {}
    for title in _sources_first(tables):
        others = [one for variants in by_title.values() for one in variants]
        by_title[title] = reader.contestants(title, tables[title], others)
    contestants = [one for title in tables for one in by_title[title]]
    _refuse_shared_folders(contestants)
    plain = {f.name for f in fields(Study)} & given.keys() - {"name"}
    return Study(
        name=given.get("name", name),
        sources=sources,
        contestants=tuple(contestants),
        target=target_of(given, contestants),
        options=given,
        **{key: given[key] for key in plain},
    )


def chosen(contestants: Sequence[Contestant], only: Collection[str]) -> list[Contestant]:
    """Select contestants by title ("minilm": all its variants) or folder name.

    Raises:
        ConfigError: No contestant has that name.
    """
    selected: list[Contestant] = []
    for asked in only:
        fits = [c for c in contestants if asked in (c.folder, c.title)]
        if not fits:
            names = [c.folder for c in contestants]
            raise ConfigError(
                f"--only {asked}: there is no such contestant. Give names of folders, of "
                f"{names}, or a name without its cleaning.{near(asked, names)}"
            )
        selected += fits
    return [c for c in contestants if c in selected]


def training_options(contestant: Contestant) -> dict[str, Any]:
    """Return the options that `finetune` or `distill` takes."""
    own = "teacher" if contestant.kind == "distilled" else None
    return {key: value for key, value in contestant.options.items() if key != own}


def near(given: Any, known: Collection[str]) -> str:
    """Return a suggestion as a sentence; empty without a similar name."""
    close = get_close_matches(str(given), sorted(known), 1)
    return f" Did you mean {close[0]!r}?" if close and close[0] != given else ""


def _sources(given: Mapping[str, Any]) -> dict[str, str]:
    named = {key: given[key] for key in ("data", "train", "dev", "test") if key in given}
    if ("data" in named) == ("train" in named) or ("data" in named and len(named) > 1):
        raise ConfigError("Give either data, which is split, or train and test (and dev).")
    if "train" in named and "test" not in named:
        raise ConfigError("train is given without test, which all contestants are measured on.")
    if "-" in named.values():
        raise ConfigError("A study reads files; standard input cannot be read twice.")
    return named


def _sources_first(tables: Mapping[str, Any]) -> list[str]:
    """Return the titles in an order in which teachers come before what is made from them.

    Raises:
        ConfigError: Contestants are made from each other in a circle.
    """
    waiting = {}
    for title, table in tables.items():
        key = SOURCE_KEYS.get(str(table.get("kind"))) if isinstance(table, Mapping) else None
        if key is not None:
            # A source may be named by its folder: "minilm-cleaned" for the table "minilm".
            name = str(table.get(key))
            fits = [one for one in tables if name == one or name.startswith(f"{one}-")]
            waiting[title] = max(fits, key=len, default=name)
    order = [title for title in tables if title not in waiting]
    while waiting:
        ready = [title for title, source in waiting.items() if source not in waiting]
        if not ready:
            raise ConfigError(
                f"The contestants {sorted(waiting)} are made from each other in a circle, so none "
                "of them can be the first."
            )
        order += ready
        for title in ready:
            del waiting[title]
    return order


def _refuse_shared_folders(contestants: Sequence[Contestant]) -> None:
    seen: dict[str, str] = {}
    for one in contestants:
        key = one.folder.lower()
        if key in seen:
            raise ConfigError(
                f"The contestants {seen[key]!r} and {one.name!r} would share a folder; "
                "give one of them another name."
            )
        seen[key] = one.name


# Contestants


class _Reader:
    """Turns tables into contestants.

    Args:
        given: Options of the study.
        flags: Those that were given as flags; they take precedence over a contestant's table.
    """

    def __init__(self, given: Mapping[str, Any], flags: Mapping[str, Any]) -> None:
        first = given.get("seed", 0)
        self.seeds = tuple(range(first, first + given.get("seeds", 1)))
        self.shared = {key: given[key] for key in SHARED if key in given}
        self.flags = {key: flags[key] for key in SHARED if key in flags}
        self.cleaning, self.fixes_cleaning = given.get("cleaning", ("none",)), "cleaning" in flags
        # A recipe with a positive label has two labels; otherwise the number is not known yet.
        self.num_labels = 2 if "positive" in given or "merge_as" in given else None

    def contestants(self, title: str, table: Any, others: Sequence[Contestant]) -> list[Contestant]:
        """Return a contestant of the recipe, once with each of its cleanings."""
        where = f"[contestants.{title}]"
        if not _NAME.fullmatch(title):
            raise ConfigError(
                f"{where}: the name becomes a folder; take letters, digits and . _ + - only."
            )
        if not isinstance(table, Mapping):
            raise ConfigError(f"{where} must be a table of options.")
        kind = table.get("kind", "encoder")
        if kind not in KINDS:
            raise ConfigError(
                f"{where}: kind {kind!r} is not one of {[*KINDS]}.{near(kind, KINDS)}"
            )
        own = {key: value for key, value in table.items() if key != "kind"}
        if kind in SOURCE_KEYS:
            source = _source_of(where, kind, own, others)
            options = self.options(where, kind, own, source)
            # Texts are cleaned as for its source.
            return [
                Contestant(title, title, kind, options, source.cleaning, source.steps,
                           source.seeds, source)
            ]  # fmt: skip
        cleaning = own.pop("cleaning", self.cleaning)
        options = self.options(where, kind, own, None)
        # Logistic regression does not depend on the seed.
        seeds = self.seeds[:1] if kind in ("tfidf", "static") else self.seeds
        found = []
        for cleaner in _cleaners(where, self.cleaning if self.fixes_cleaning else cleaning):
            # Two spellings of one cleaning give one name, so that a study can be resumed with
            # either.
            written = None if cleaner is None else str(cleaner)
            label = "cleaned" if written == "study" else written and written.replace(",", "+")
            name, folder = (title, title) if label is None else (
                f"{title}, {label}", f"{title}-{label}"
            )  # fmt: skip
            steps = () if cleaner is None else tuple(cleaner.names)
            found.append(Contestant(name, folder, kind, options, written, steps, seeds))
        return found

    def options(
        self, where: str, kind: str, own: Mapping[str, Any], source: Contestant | None
    ) -> dict[str, Any]:
        """Check a contestant's options and merge them with those of all contestants.

        Raises:
            ConfigError, InputError, FormatError: An option is unknown or has a wrong value.
        """
        known = {*DEFAULTS[kind]}
        if source is not None:
            own = _of_source(where, kind, own, source)
            known |= {SOURCE_KEYS[kind], *(("device",) if kind == "quantised" else ())}
        if kind in TRAINED:
            options = FinetuneOptions if kind == "encoder" else DistillOptions
            known |= options_in(options).keys() - _COMMON - {"corpus"}
        _refuse_unknown(where, own, known, is_trained=kind in TRAINED)
        # The precision of the source's training does not apply to a quantised model.
        common = {"device"} if kind == "quantised" else known
        shared, flags = (
            {key: value for key, value in given.items() if key in common}
            for given in (self.shared, self.flags)
        )
        merged = _merged(DEFAULTS[kind], shared, own, flags)
        with _naming(where, merged):
            if source is not None and kind == "quantised":
                _check_quantised(merged, own)
            elif source is not None:
                _check_distilled(merged, source, self.num_labels)
            elif kind == "encoder":
                _check_trained(merged, self.num_labels)
            else:
                _check_fitted(kind, merged, own)
        return merged


def _cleaners(where: str, names: Any) -> list[Cleaning | None]:
    """Return the cleanings with these names; two with the same steps are refused."""
    names = names_of(names)
    if not names:
        raise ConfigError(f"{where}: cleaning names nothing; take none, study or steps.")
    seen: dict[tuple[str, ...], str] = {}
    cleaners = []
    for name in names:
        try:
            cleaner = Cleaning.parse(name.replace("+", ","))
        except ConfigError as error:
            raise ConfigError(f"{where}: {error}") from error
        steps = () if cleaner is None else tuple(cleaner.names)
        if steps in seen:
            raise ConfigError(
                f"{where}: cleaning names the same steps twice, as {seen[steps]!r} and as "
                f"{name!r}. Leave one of them out."
            )
        seen[steps] = name
        cleaners.append(cleaner)
    return cleaners


def _source_of(
    where: str, kind: str, own: Mapping[str, Any], others: Sequence[Contestant]
) -> Contestant:
    """Find the contestant that another one is made from.

    It is named by its folder, or by its title if that has a single cleaning.

    Raises:
        ConfigError: No contestant has that name, or it is of a kind that cannot be a source.
    """
    key = SOURCE_KEYS[kind]
    name = own.get(key)
    if name is None:
        raise ConfigError(f"{where}: {key!r} is missing; name another contestant of this study.")
    fits = [one for one in others if one.folder == name]
    fits = fits or [one for one in others if one.title == name]
    if len(fits) != 1:
        names = [one.folder for one in others if one.kind in TRAINED]
        raise ConfigError(
            f"{where}: {key} {name!r} is not one contestant of this study. Give one of {names}."
            f"{near(name, names)}"
        )
    if fits[0].kind not in TRAINED:
        raise ConfigError(
            f"{where}: {key} {name!r} is of kind {fits[0].kind!r}; it must be one of {[*TRAINED]}."
        )
    return fits[0]


def _of_source(where: str, kind: str, own: Mapping[str, Any], source: Contestant) -> dict[str, Any]:
    if "cleaning" in own:
        raise ConfigError(
            f"{where}: it reads texts as {source.name} does; leave cleaning out, or name the one "
            f"with that cleaning as {SOURCE_KEYS[kind]}."
        )
    return {**own, SOURCE_KEYS[kind]: source.folder}


def _refuse_unknown(
    where: str, own: Collection[str], known: Collection[str], *, is_trained: bool
) -> None:
    """Refuse an option that the kind does not have, or that is the same for all contestants."""
    for key in own:
        if key in known:
            continue
        if key == "clean":
            raise ConfigError(f'{where}: write cleaning = ["study"], not clean.')
        if is_trained and key in _COMMON:
            raise ConfigError(f"{where}: {key!r} is the same for all contestants of a study.")
        raise ConfigError(f"{where}: there is no option {key!r}.{near(key, known)}")


def _merged(
    defaults: Mapping[str, Any],
    shared: Mapping[str, Any],
    own: Mapping[str, Any],
    flags: Mapping[str, Any],
) -> dict[str, Any]:
    """Merge defaults, options of the study, of the contestant, and flags; the later win."""
    if any(name in own for name in _LENGTHS):
        # Steps of the study would silently override its own epochs.
        shared = {key: value for key, value in shared.items() if key not in _LENGTHS}
    options = {**defaults, **shared, **own, **flags}
    if "steps" in flags or "epochs" in flags:
        # A flag must override another kind of length in the recipe.
        dropped = {"time"} if "steps" in flags else {"time", "steps"}
        options = {key: value for key, value in options.items() if key not in dropped}
    return options


@contextmanager
def _naming(where: str, options: Mapping[str, Any]) -> Iterator[None]:
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


# Checks by kind


def _check_trained(options: dict[str, Any], num_labels: int | None) -> None:
    """Refuse what `finetune` would refuse of the options and of the model."""
    paths = {"task": "classification", "train": "train", "dev": "dev", "out": "out"}
    given = FinetuneOptions.from_keywords({**options, **paths})

    from filbert.checkpoints.checkpoint import as_causal, meta_model
    from filbert.inference.stored_task import check_max_length
    from filbert.tasks.base import task_class
    from filbert.train.base_model import freeze, reinitialize_top

    # The task checks what happens to long texts.
    task = task_class("classification").from_options(given.task.options, given.data.columns)
    _check_running(flat(given), num_labels)
    checkpoint = _initial_checkpoint("encoder", options, None)
    check_max_length(given.data.max_length, checkpoint.config)
    checkpoint = as_causal(checkpoint) if given.model.causal else checkpoint
    model = meta_model(checkpoint.config, task.spec.head_kind, 2)
    freeze(model, given.train.freeze)
    reinitialize_top(model, given.model.reinit_layers)


def _check_running(options: Mapping[str, Any], num_labels: int | None) -> None:
    """Refuse unknown metrics, number formats and devices."""
    from filbert.data.columns import ColumnNames
    from filbert.model.config import PRECISIONS
    from filbert.model.precision import choose_device
    from filbert.tasks.base import TaskOptions, task_class

    metric, precision = options["metric"], options["precision"]
    if num_labels and metric is not None:
        names = tuple(map(str, range(num_labels)))
        task = task_class("classification").from_options(TaskOptions(labels=names), ColumnNames())
        _check_choice("metric", metric, task.spec.metric_names)
    if precision not in PRECISIONS:
        hint = near(precision, PRECISIONS)
        raise ConfigError(f"precision {precision!r} is not one of {list(PRECISIONS)}.{hint}")
    choose_device(options["device"])


def _check_choice(name: str, value: Any, known: Sequence[str]) -> None:
    if value not in known:
        raise ConfigError(
            f"{name} is {value!r}; it must be one of {list(known)}.{near(value, known)}"
        )


def _check_fitted(kind: str, options: dict[str, Any], own: Collection[str]) -> None:
    """Check the options of a linear model or a BiGRU, and find its word vectors."""
    for name in options.keys() & {*_WHOLE_NUMBERS}:
        value = options[name]
        if (type(value) is not int or value < 1) and (name, value) != ("steps", None):
            raise ConfigError(f"{name} is {value!r}; it must be a whole number from 1.")
    for name in options.keys() & {*_POSITIVE_NUMBERS}:
        value = options[name]
        if not (_is_number(value) and 0 < value < math.inf) and (name, value) != ("C", None):
            raise ConfigError(f"{name} is {value!r}; give a finite number above zero.")
    if kind == "bigru":
        if options["max_words"] < 3:
            raise ConfigError(f"max_words is {options['max_words']}; give at least 3.")
        _check_choice("pooling", options["pooling"], POOLINGS)
        dropout = options["dropout"]
        if not _is_number(dropout) or not 0 <= dropout < 1:
            raise ConfigError(f"dropout is {dropout!r}; it must be in [0, 1).")
    path = options.get("vectors")
    if path is not None:
        if kind == "static" and options["model"] is not None:
            raise ConfigError("vectors and model both name the word vectors; give one of them.")
        if not isinstance(path, str) or not Path(path).is_file():
            raise InputError(f"vectors: there is no file {path}.")

        from filbert.data.word_vectors import vector_dimension

        dimension = vector_dimension(path)
        if kind == "bigru" and "dim" in own and options["dim"] != dimension:
            raise ConfigError(
                f"{path} has {dimension} numbers a word, and dim is {options['dim']}. "
                f"Give dim {dimension}, or leave it out."
            )
        if kind == "bigru":
            options["dim"] = dimension
    elif kind == "static":
        from filbert.checkpoints.opening import find_model

        options["model"] = options["model"] or "minilm"
        if not isinstance(options["model"], str):
            raise ConfigError(f"model is {options['model']!r}; it must be the name of a model.")
        find_model(options["model"])


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _check_quantised(options: dict[str, Any], own: Collection[str]) -> None:
    """Check number format, backend and device; int8 runs on CPUs, wherever the source trained."""
    from filbert.model.precision import choose_device

    backend, precision = options["backend"], options["precision"]
    if backend not in _PRECISIONS:
        raise ConfigError(
            f"backend {backend!r} is not one of {[*_PRECISIONS]}.{near(backend, _PRECISIONS)}"
        )
    if precision not in _PRECISIONS[backend]:
        raise ConfigError(
            f"precision {precision!r} is not one of {[*_PRECISIONS[backend]]}, those that "
            f"{backend} adds.{near(precision, _PRECISIONS[backend])}"
        )
    if precision == "int8" and "device" not in own and options.get("device") != "cpu":
        options.pop("device", None)
    device = choose_device(options.get("device"))
    if precision == "int8" and device.type != "cpu" and "device" in options:
        raise ConfigError(f"int8 runs on CPUs only, and device is {device}. Leave it out.")
    if backend == "onnxruntime":
        from filbert.checkpoints.onnx_folder import check_installed

        check_installed()


def _check_distilled(options: dict[str, Any], source: Contestant, num_labels: int | None) -> None:
    """Refuse what `distill` would refuse, before the teacher is trained."""
    if options.get("student") is None and options.get("keep_layers") is None:
        raise ConfigError(
            'It needs a student: some of the teacher\'s layers (keep_layers = "0,2,4") or another '
            'model (student = "...").'
        )

    from filbert.checkpoints.opening import find_model
    from filbert.inference.stored_task import check_max_length
    from filbert.train.distill import layer_losses_of

    paths = {"teacher": source.folder, "train": "train", "dev": "dev", "out": "out"}
    given = DistillOptions.from_keywords({**options, **paths})
    values = flat(given)
    _check_running(values, num_labels)
    if values["augment_with"] is not None:
        find_model(values["augment_with"])
    student = _initial_checkpoint("distilled", options, source)
    check_max_length(values["max_length"], student.config)
    if values["method"] != "soft":
        teacher = _initial_checkpoint(source.kind, source.options, source.source)
        layer_losses_of(given.loss, student.config, teacher.config)


def _initial_checkpoint(
    kind: str, options: Mapping[str, Any], source: Contestant | None
) -> Checkpoint:
    """Return the checkpoint that a contestant's training starts from.

    Raises:
        ConfigError: A layer to keep does not exist.
    """
    from filbert.checkpoints.checkpoint import with_layers
    from filbert.checkpoints.opening import find_model, read_checkpoint
    from filbert.train.base_model import layers_to_keep

    named = options.get("model") if kind == "encoder" else options.get("student")
    if named is not None:
        checkpoint = read_checkpoint(find_model(str(named)))
    else:
        assert source is not None
        checkpoint = _initial_checkpoint(source.kind, source.options, source.source)
    if options.get("keep_layers") is None:
        return checkpoint
    layers = layers_to_keep(str(options["keep_layers"]), checkpoint.config.num_hidden_layers)
    return with_layers(checkpoint, layers)


# The target


def target_of(given: Mapping[str, Any], contestants: Sequence[Contestant]) -> Target | None:
    """Return the target of a study's options; None without one.

    Raises:
        ConfigError: A number is out of range, or the reference is ambiguous.
    """
    quality, of = given.get("target_quality"), given.get("target_of")
    latency = given.get("target_latency")
    if of is not None:
        names = {key: one.name for one in contestants for key in (one.folder, one.name)}
        if of not in names:
            folders = [one.folder for one in contestants]
            raise ConfigError(
                f"target_of {of!r} is not one of the contestants {folders}.{near(of, folders)}"
            )
        of = names[of]
    if quality is not None and not (_is_number(quality) and 0 < quality < math.inf):
        raise ConfigError(
            f"target_quality is {quality!r}; give a share of the teacher's metric, such as 0.97."
        )
    if quality is None and latency is None:
        if of is not None:
            raise ConfigError("target_of needs target_quality, the share of its metric.")
        return None
    of = of or common_root(contestants)
    if quality is not None and of is None:
        raise ConfigError(
            "target_quality is a share of another contestant's metric, and the study has no single "
            "teacher; name the contestant with target_of."
        )
    return Target(quality, of, None if latency is None else seconds_of(latency))


def common_root(contestants: Sequence[Contestant]) -> str | None:
    """Return the single contestant at the root of all derived ones; None if there are several."""
    roots = {one.root.name for one in contestants if one.source is not None}
    return roots.pop() if len(roots) == 1 else None


def references(contestants: Sequence[Contestant], target: Target | None) -> dict[str, str]:
    """Return, by contestant, the reference that its metric is shown as a share of.

    That is the target's reference or the common root for all; with several roots, the own root of
    each derived contestant.
    """
    of = (target and target.of) or common_root(contestants)
    if of is not None:
        return {one.name: of for one in contestants if one.name != of}
    return {one.name: one.root.name for one in contestants if one.source is not None}


def seconds_of(text: str) -> float:
    """Parse a time such as 5ms or 0.5s.

    Raises:
        ConfigError: It is no such time.
    """
    match = re.fullmatch(r"(\d+(?:\.\d+)?)\s*(ms|s)", text.strip().lower(), flags=re.ASCII)
    seconds = float(match[1]) * (1e-3 if match[2] == "ms" else 1.0) if match else 0.0
    if not 0 < seconds < math.inf:
        raise ConfigError(f"target_latency is {text!r}; give a time above zero, such as 5ms.")
    return seconds
