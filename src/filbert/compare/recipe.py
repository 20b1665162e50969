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
from typing import Any

from filbert.compare.options import SHARED, StudyOptions
from filbert.errors import ConfigError, FormatError, InputError
from filbert.text.clean import Cleaning
from filbert.train.distill_options import DistillOptions
from filbert.train.options import FinetuneOptions, options_in

# Options of each kind that is not trained by `finetune` or `distill`, with their defaults.
BIGRU: dict[str, Any] = {
    "vectors": None,
    "dim": 300,
    "hidden": 128,
    "dropout": 0.2,
    "max_words": 50_000,
    "min_count": 2,
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
    "quantised": {},
}
KINDS = tuple(DEFAULTS)
# Kinds that take optimiser steps.
TRAINED = ("encoder", "distilled")
# Option that names the contestant whose model it starts from, by kind.
SOURCE_KEYS = {"distilled": "teacher", "quantised": "of"}
# Type and least value of numbers; floats must be above it, integers may be equal.
_NUMBERS: dict[str, tuple[type, float]] = {
    "dim": (int, 1),
    "hidden": (int, 1),
    "max_words": (int, 3),
    "min_count": (int, 1),
    "batch_size": (int, 1),
    "steps": (int, 1),
    "max_length": (int, 1),
    "ngrams": (int, 1),
    "min_df": (int, 1),
    "lr": (float, 0),
    "epochs": (float, 0),
    "C": (float, 0),
}
# Options for the length of a training; only one of them counts.
_LENGTHS = ("epochs", "steps", "time")
# Options of `finetune` that are the same for every contestant.
_COMMON = {
    "task", "data", "train", "dev", "test", "out", "overwrite", "resume", "seed", "seeds", "clean",
    "positive", "labels", "multilabel", "show_texts", "distributed", "tensorboard", "device",
    "merge_labels", "merge_as", "split_seed", "folds", "fold",
} | {name for name in options_in(FinetuneOptions) if "column" in name}  # fmt: skip
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._+-]{0,59}")


@dataclass(frozen=True)
class Contestant:
    """One model of a comparison.

    Attributes:
        name: Its table in the recipe, and its folder.
        kind: One of `KINDS`.
        options: Its own options and those of all contestants.
        cleaning: As `--clean` takes it; None for unchanged texts.
        seeds: One training each.
        source: Its teacher, or the model that it is in int8.
    """

    name: str
    kind: str
    options: dict[str, Any]
    cleaning: str | None
    seeds: tuple[int, ...]
    source: Contestant | None = None

    @property
    def steps(self) -> list[str]:
        """Names of the steps of its cleaning."""
        cleaning = Cleaning.parse(self.cleaning)
        return [] if cleaning is None else cleaning.names


@dataclass(frozen=True)
class Study:
    """A study; the fields without a description are those of `StudyOptions`.

    Attributes:
        sources: {"data": path}, or paths of "train", "test" and optionally "dev".
        contestants: In the order of the recipe.
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
    slice_column: str | None = None
    positive: str | None = None
    resamples: int = 2000
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
    contestants: list[Contestant] = []
    for title, table in tables.items():
        contestants.append(_contestant(title, table, contestants, given, flags.given()))
    plain = {f.name for f in fields(Study)} & given.keys() - {"name"}
    return Study(
        name=given.get("name", name),
        sources=sources,
        contestants=tuple(contestants),
        options=given,
        **{key: given[key] for key in plain},
    )


def usual_recipe(models: Sequence[str]) -> dict[str, Any]:
    """Return a recipe with TF-IDF, the built-in models and others by folder or Hub id."""
    tables: dict[str, Any] = {"tfidf": {"kind": "tfidf"}}
    for model in dict.fromkeys(["minilm", "filbert-mini", *models]):
        title = re.sub(r"[^A-Za-z0-9._+-]+", "-", Path(model).name).strip("-.") or "model"
        title = f"{title}-{len(tables)}" if title in tables else title
        tables[title] = {"model": model}
    return {"contestants": tables}


def chosen(contestants: Sequence[Contestant], only: Collection[str]) -> list[Contestant]:
    """Select contestants by name.

    Raises:
        ConfigError: No contestant has that name.
    """
    names = [one.name for one in contestants]
    for asked in only:
        if asked not in names:
            raise ConfigError(f"--only {asked}: the contestants are {names}.{near(asked, names)}")
    return [one for one in contestants if one.name in only]


def training_options(contestant: Contestant) -> dict[str, Any]:
    """Return the options that `finetune` or `distill` takes."""
    return {key: value for key, value in contestant.options.items() if key != "teacher"}


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


# Contestants


def _contestant(
    title: str,
    table: Any,
    earlier: Sequence[Contestant],
    given: Mapping[str, Any],
    flags: Mapping[str, Any],
) -> Contestant:
    """Check a table and merge it with the options of the study.

    Args:
        title: Name of the table.
        table: Its content.
        earlier: Contestants above it, which may be its teacher.
        given: Options of the study.
        flags: Those of them that are flags; they take precedence over the table.
    """
    where = f"[contestants.{title}]"
    if not _NAME.fullmatch(title):
        raise ConfigError(
            f"{where}: the name becomes a folder; take letters, digits and . _ + - only."
        )
    if not isinstance(table, Mapping):
        raise ConfigError(f"{where} must be a table of options.")
    kind = table.get("kind", "encoder")
    if kind not in KINDS:
        raise ConfigError(f"{where}: kind {kind!r} is not one of {[*KINDS]}.{near(kind, KINDS)}")
    own = {key: value for key, value in table.items() if key != "kind"}
    first = given.get("seed", 0)
    seeds, source = tuple(range(first, first + given.get("seeds", 1))), None
    with _naming(where, own):
        if kind in SOURCE_KEYS:
            source = _source_of(kind, own, earlier)
            # Texts are cleaned as for its source.
            cleaning, seeds = source.cleaning, source.seeds
        else:
            cleaning = _cleaning(flags.get("cleaning", own.pop("cleaning", given.get("cleaning"))))
        if kind in ("tfidf", "static"):
            # Logistic regression does not depend on the seed.
            seeds = seeds[:1]
        known = {*DEFAULTS[kind]} | ({SOURCE_KEYS[kind]} if kind in SOURCE_KEYS else set())
        if kind in TRAINED:
            trained = FinetuneOptions if kind == "encoder" else DistillOptions
            known |= options_in(trained).keys() - _COMMON - {"corpus"}
        _refuse_unknown(own, known, is_trained=kind in TRAINED)
        shared_names = known | ({"device"} if kind in TRAINED else set())
        shared, of_flags = (
            {key: every[key] for key in SHARED if key in every and key in shared_names}
            for every in (given, flags)
        )
        options = _merged(DEFAULTS[kind], shared, own, of_flags)
        if kind in TRAINED:
            _check_trained(kind, options, source)
        elif kind != "quantised":
            _check_fitted(kind, options, own)
    return Contestant(title, kind, options, cleaning, seeds, source)


def _cleaning(given: Any) -> str | None:
    """Return the shortest name of a cleaning; None for none."""
    if isinstance(given, str):
        given = given.replace("+", ",")
    cleaning = Cleaning.parse(given)
    return None if cleaning is None else str(cleaning)


def _source_of(kind: str, own: Mapping[str, Any], earlier: Sequence[Contestant]) -> Contestant:
    """Find the contestant that another one is made from.

    Raises:
        ConfigError: No contestant above it has that name and a kind that can be a source.
    """
    key = SOURCE_KEYS[kind]
    if key not in own:
        raise ConfigError(f"{key!r} is missing; name a contestant above this one.")
    fits = {one.name: one for one in earlier if one.kind in TRAINED}
    if own[key] not in fits:
        raise ConfigError(
            f"{key} {own[key]!r} is not a contestant above this one of kind encoder or distilled. "
            f"Give one of {[*fits]}.{near(own[key], fits)}"
        )
    return fits[own[key]]


def _refuse_unknown(own: Collection[str], known: Collection[str], *, is_trained: bool) -> None:
    """Refuse an option that the kind does not have, or that is the same for all contestants."""
    for key in own:
        if key in known:
            continue
        if key == "clean":
            raise ConfigError('write cleaning = "study", not clean.')
        if is_trained and key in _COMMON:
            raise ConfigError(f"{key!r} is the same for all contestants of a study.")
        raise ConfigError(f"there is no option {key!r}.{near(key, known)}")


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
        model = str(options.get("student") or options.get("model"))
        hint = near(model, ("minilm", "filbert-mini"))
        raise type(error)(f"{where}: {error}{hint}") from error


# Checks by kind


def _check_trained(kind: str, options: Mapping[str, Any], source: Contestant | None) -> None:
    """Refuse options that no training accepts, and a model that cannot be read."""
    from filbert.checkpoints.opening import find_model, read_checkpoint
    from filbert.inference.stored_task import check_max_length
    from filbert.model.precision import choose_device

    paths = {"train": "train", "dev": "dev", "out": "out"}
    if kind == "encoder":
        encoder = FinetuneOptions.from_keywords({**options, **paths, "task": "classification"})
        named, length = options.get("model"), encoder.data.max_length
    else:
        distilled = DistillOptions.from_keywords({**options, **paths})
        named, length = options.get("student"), distilled.data.max_length
        if named is None and options.get("keep_layers") is None:
            raise ConfigError(
                'it needs a student: some of the teacher\'s layers (keep_layers = "0,2,4") or '
                'another model (student = "...").'
            )
        if named is None and source is not None:
            named = source.options.get("model") or source.options.get("student")
    choose_device(options.get("device"))
    if named is not None:
        check_max_length(length, read_checkpoint(find_model(str(named))).config)


def _check_fitted(kind: str, options: dict[str, Any], own: Collection[str]) -> None:
    """Check the options of a linear model or a BiGRU, and find its word vectors."""
    for name in options.keys() & _NUMBERS.keys():
        value, (number, least) = options[name], _NUMBERS[name]
        if value is None and DEFAULTS[kind][name] is None:
            continue
        if number is int and (type(value) is not int or value < least):
            raise ConfigError(f"{name} is {value!r}; it must be a whole number from {least:g}.")
        is_number = isinstance(value, int | float) and not isinstance(value, bool)
        if number is float and not (is_number and least < value < math.inf):
            raise ConfigError(f"{name} is {value!r}; give a finite number above {least:g}.")
    dropout = options.get("dropout", 0)
    if not isinstance(dropout, int | float) or not 0 <= dropout < 1:
        raise ConfigError(f"dropout is {dropout!r}; it must be in [0, 1).")
    path = options.get("vectors")
    if path is not None:
        if kind == "static" and options["model"] is not None:
            raise ConfigError("vectors and model both name the word vectors; give one of them.")
        if not isinstance(path, str) or not Path(path).is_file():
            raise InputError(f"vectors: there is no file {path}.")
        if kind == "bigru":
            from filbert.data.word_vectors import vector_dimension

            if "dim" in own:
                raise ConfigError("vectors has the dimension; leave dim out.")
            options["dim"] = vector_dimension(path)
    elif kind == "static":
        from filbert.checkpoints.opening import find_model

        options["model"] = options["model"] or "minilm"
        find_model(str(options["model"]))
