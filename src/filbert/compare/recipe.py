"""Reads and checks the recipe of a study before anything is trained.

A recipe names the rows, options for all contestants, and a table for each contestant.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from filbert.errors import ConfigError, FormatError, InputError, did_you_mean
from filbert.text.clean import Cleaning
from filbert.train.distill_options import DistillOptions
from filbert.train.options import (
    FinetuneOptions,
    check_choice,
    check_range,
    flat,
    from_flat,
    options_in,
)

# Options for the length of a training; only one of them counts.
_LENGTHS = ("epochs", "steps", "time")
# Options of `finetune` that are the same for every contestant.
_COMMON = {
    "task", "data", "train", "dev", "test", "out", "overwrite", "resume", "seed", "seeds", "clean",
    "positive", "labels", "multilabel", "hide_texts", "tensorboard", "device",
    "merge_labels", "merge_as", "split_seed", "folds", "fold",
} | {name for name in options_in(FinetuneOptions) if "column" in name}  # fmt: skip
# Of train, dev and test rows in one file with all rows.
_SHARES = (0.7, 0.15, 0.15)
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._+-]{0,59}")


# Options of a study


@dataclass(frozen=True, kw_only=True)
class RowOptions:
    """The rows of a study.

    Attributes:
        data: labelled rows that are split into train, dev and test.
        train: training rows, instead of `data`.
        dev: rows to choose steps, thresholds and temperatures on; by default a part of `train`.
        test: rows that all contestants are measured on.
        text_column: name of the column with the text.
        text_pair_column: name of the column with the second text.
        label_column: name of the column with the label.
        separator: character between the fields of CSV and TSV files, such as ";".
        merge_labels: 0/1 columns that become one label: is any of them 1?
        merge_as: the name of that label.
        positive: the positive class of two; by default the second label.
        split: shares of train, dev and test.
        slice_column: a further column; the report has the metrics of the test rows by its values.
    """

    data: str | None = None
    train: str | None = None
    dev: str | None = None
    test: str | None = None
    text_column: str | None = None
    text_pair_column: str | None = None
    label_column: str | None = None
    separator: str | None = None
    merge_labels: tuple[str, ...] | None = None
    merge_as: str | None = None
    positive: str | None = None
    split: tuple[float, ...] | None = None
    slice_column: str | None = None

    def __post_init__(self) -> None:
        shares = _SHARES if self.split is None else self.split
        if len(shares) != 3 or not min(shares) > 0 or not math.isclose(sum(shares), 1.0):
            raise ConfigError(
                f"split is {list(shares)}; give the shares of train, dev and test, three numbers "
                "above zero that add up to 1, such as [0.7, 0.15, 0.15]."
            )

    @property
    def files(self) -> dict[str, str]:
        """Paths by "data", or by "train", "test" and perhaps "dev"; others are a ConfigError."""
        named = {key: getattr(self, key) for key in ("data", "train", "dev", "test")}
        given = {key: path for key, path in named.items() if path is not None}
        if ("data" in given) == ("train" in given) or ("data" in given and len(given) > 1):
            raise ConfigError("Give either data, which is split, or train and test (and dev).")
        if "train" in given and "test" not in given:
            raise ConfigError("train is given without test, which all contestants are measured on.")
        return given

    def reading(self, seed: int) -> FinetuneOptions:
        """Return the options by which `finetune` reads and splits these rows."""
        files, (train, dev, test) = self.files, self.split or _SHARES
        if "data" in files:
            files |= {"dev": str(dev), "test": str(test)}
        elif "dev" not in files:
            files["dev"] = str(dev / (train + dev))
        apart = ("data", "train", "dev", "test", "split", "slice_column")
        options = {name: value for name, value in vars(self).items() if name not in apart}
        given = {name: value for name, value in options.items() if value is not None}
        needed = {"task": "classification", "model": "none", "out": "none", "seed": seed}
        return FinetuneOptions.from_keywords(given | files | needed)


@dataclass(frozen=True, kw_only=True)
class CommonOptions:
    """Options of `finetune` that a study may set for all its contestants at once.

    Attributes:
        max_length: for all contestants: cut texts to this many tokens.
        batch_size: for all contestants: rows per optimizer step.
        max_tokens: for all contestants: tokens per micro-batch.
        epochs: for all contestants: passes over the training rows.
        steps: for all contestants: optimizer steps.
        save_every: for all contestants: optimizer steps between saved states.
        precision: for all contestants: auto, float32 or bf16.
        device: for all contestants: cpu, cuda, ...
    """

    max_length: int | None = None
    batch_size: int | None = None
    max_tokens: int | None = None
    epochs: float | None = None
    steps: int | None = None
    save_every: int | None = None
    precision: str | None = None
    device: str | None = None


@dataclass(frozen=True, kw_only=True)
class StudyOptions:
    """All options of a study, none of them required; a flag takes precedence over the recipe.

    Attributes:
        rows: The rows.
        common: Options of all contestants.
        seed: random seed for the split and for the first training.
        seeds: trainings of each contestant, with consecutive seeds.
        cleaning: how texts are cleaned: none, study, or names of steps between +.
        resamples: number of bootstrap resamples.
        name: title of the report.
        hide_texts: the report has no text of the data.
    """

    rows: RowOptions = RowOptions()
    common: CommonOptions = CommonOptions()
    seed: int | None = None
    seeds: int | None = None
    cleaning: str | None = None
    resamples: int | None = None
    name: str | None = None
    hide_texts: bool | None = None

    def __post_init__(self) -> None:
        check_range(self, ("seed",), "be a whole number from 0", lambda value: value >= 0)
        at_least_one = "be a whole number from 1"
        check_range(self, ("seeds", "resamples"), at_least_one, lambda value: value >= 1)

    def given(self) -> dict[str, Any]:
        """Return the options that were given, by flat name."""
        return {name: value for name, value in flat(self).items() if value is not None}


# Options of the kinds that `finetune` and `distill` do not train


@dataclass(frozen=True, kw_only=True)
class NetworkOptions:
    """A network without attention: lstm, bigru, cnn, elmo or ulmfit.

    Word vectors are those of a file `vectors`, or of "word2vec" on the training texts, or drawn at
    random. An elmo and a ulmfit start from the folder `model` of `filbert pretrain`. `hidden` is
    the states of an LSTM or GRU in one direction, or the filters of a CNN for each of its widths.
    """

    vectors: str | None = None
    model: str | None = None
    dim: int = 300
    hidden: int = 128
    dropout: float = 0.2
    max_words: int = 50_000
    min_count: int = 2
    lr: float = 1e-3  # a model without pre-training takes larger steps
    batch_size: int = 32
    epochs: float = 4.0
    steps: int | None = None
    max_length: int = 256

    def __post_init__(self) -> None:
        counts = ("dim", "hidden", "min_count", "batch_size", "steps", "max_length")
        check_range(self, counts, "be a whole number from 1", lambda value: value >= 1)
        check_range(self, ("max_words",), "be a whole number from 3", lambda value: value >= 3)
        check_range(self, ("lr", "epochs"), "be above 0", lambda value: value > 0)
        check_range(self, ("dropout",), "be in [0, 1)", lambda value: 0 <= value < 1)


@dataclass(frozen=True, kw_only=True)
class TfidfOptions:
    """Logistic regression on TF-IDF of words and n-grams; the best `C` on dev unless given."""

    C: float | None = None
    ngrams: int = 2
    min_df: int = 2

    def __post_init__(self) -> None:
        check_range(self, ("C",), "be above 0", lambda value: value > 0)
        check_range(self, ("ngrams", "min_df"), "be a whole number from 1", lambda v: v >= 1)


@dataclass(frozen=True, kw_only=True)
class StaticOptions:
    """Logistic regression on means of word vectors.

    They are those of a file, of "word2vec" on the training texts, or the word table of a model.
    """

    vectors: str | None = None
    model: str | None = None
    C: float | None = None

    def __post_init__(self) -> None:
        check_range(self, ("C",), "be above 0", lambda value: value > 0)
        if self.vectors is not None and self.model is not None:
            raise ConfigError("vectors and model both name the word vectors; give one of them.")


@dataclass(frozen=True, kw_only=True)
class DerivedOptions:
    """A model that is not trained: another contestant's in int8, or those of all its seeds."""

    of: str


# Networks of `filbert.lineage`; the last two are pre-trained.
NETWORKS = ("lstm", "bigru", "cnn", "elmo", "ulmfit")
KINDS: dict[str, type] = {
    "encoder": FinetuneOptions,
    **dict.fromkeys(NETWORKS, NetworkOptions),
    "tfidf": TfidfOptions,
    "static": StaticOptions,
    "distilled": DistillOptions,
    "quantised": DerivedOptions,
    "ensemble": DerivedOptions,
}
# Kinds that take optimizer steps.
TRAINED = ("encoder", "distilled")
# Option that names the contestant whose model it starts from, by kind.
SOURCE_KEYS = {"distilled": "teacher", "quantised": "of", "ensemble": "of"}


# A study


@dataclass(frozen=True)
class Contestant:
    """One model of a comparison.

    Attributes:
        name: Its table in the recipe, and its folder.
        kind: One of `KINDS`.
        options: Its own options and those of all contestants.
        cleaning: Names of the steps; () for unchanged texts.
        seeds: One training each.
    """

    name: str
    kind: str
    options: dict[str, Any]
    cleaning: tuple[str, ...]
    seeds: tuple[int, ...]

    @property
    def source(self) -> str | None:
        """Its teacher, or the contestant whose model or models it is made of."""
        return self.options[SOURCE_KEYS[self.kind]] if self.kind in SOURCE_KEYS else None


@dataclass(frozen=True)
class Study:
    """A study: its title, its contestants in the order of the recipe, and all given options."""

    name: str
    contestants: tuple[Contestant, ...]
    options: StudyOptions


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
    options = from_flat(StudyOptions, keys | flags.given())
    tables = recipe.get("contestants")
    if not isinstance(tables, Mapping) or not tables:
        raise ConfigError("The recipe names no contestant; add a table such as [contestants.bert].")
    # Both refuse options of the rows that contradict each other.
    options.rows.reading(0).data.columns.declared_labels(None, multilabel=False)
    contestants: list[Contestant] = []
    for title, table in tables.items():
        try:
            contestants.append(_contestant(title, table, contestants, options, flags))
        except (ConfigError, InputError, FormatError) as error:
            raise type(error)(f"[contestants.{title}]: {error}") from error
    return Study(options.name or name, tuple(contestants), options)


def usual_recipe(models: Sequence[str]) -> dict[str, Any]:
    """Return a recipe with TF-IDF and models by folder or Hub id; the built-in ones by default."""
    tables: dict[str, Any] = {"tfidf": {"kind": "tfidf"}}
    for model in dict.fromkeys(models or ("minilm", "filbert-mini")):
        title = re.sub(r"[^A-Za-z0-9._+-]+", "-", Path(model).name).strip("-.") or "model"
        title = f"{title}-{len(tables)}" if title in tables else title
        tables[title] = {"model": model}
    return {"contestants": tables}


def _contestant(
    title: str,
    table: Any,
    earlier: Sequence[Contestant],
    options: StudyOptions,
    flags: StudyOptions,
) -> Contestant:
    """Check a table and merge it with the options of the study; `flags` take precedence over it.

    One of the contestants above the table, `earlier`, may be its teacher.
    """
    if not _NAME.fullmatch(title):
        raise ConfigError("the name becomes a folder; take letters, digits and . _ + - only.")
    if not isinstance(table, Mapping):
        raise ConfigError("it must be a table of options.")
    own = {key: value for key, value in table.items() if key != "kind"}
    kind = table.get("kind", "encoder")
    check_choice("kind", kind, KINDS)
    if "clean" in own:
        raise ConfigError('write cleaning = "study", not clean.')
    shared = [key for key in own if kind in TRAINED and key in _COMMON]
    if shared:
        raise ConfigError(f"{shared[0]!r} is the same for all contestants of a study.")
    first, source = options.seed or 0, None
    seeds = tuple(range(first, first + (options.seeds or 1)))
    if kind in SOURCE_KEYS:
        source = _source_of(kind, own, earlier)
        # Texts are cleaned as for its source.
        cleaning, seeds = source.cleaning, source.seeds
        if kind == "ensemble":
            if len(seeds) < 2:
                raise ConfigError("an ensemble needs models of two seeds or more; give seeds.")
            seeds = seeds[:1]
    else:
        chosen = own.pop("cleaning", options.cleaning)
        chosen = flags.cleaning or chosen
        parsed = Cleaning.parse(chosen.replace("+", ",") if isinstance(chosen, str) else chosen)
        cleaning = parsed.steps if parsed else ()
    if kind in ("tfidf", "static"):
        # Logistic regression does not depend on the seed.
        seeds = seeds[:1]
    merged = _merged(kind, own, options.common, flags.common)
    return Contestant(title, kind, _checked(kind, merged, source), cleaning, seeds)


def _source_of(kind: str, own: Mapping[str, Any], earlier: Sequence[Contestant]) -> Contestant:
    """Return the contestant above this one that it is made from, or raise a ConfigError."""
    key = SOURCE_KEYS[kind]
    fits = {one.name: one for one in earlier if one.kind in TRAINED}
    if own.get(key) not in fits:
        raise ConfigError(
            f"{key} is {own.get(key)!r}; name a contestant above this one of kind encoder or "
            f"distilled: {[*fits]}.{did_you_mean(own.get(key), fits)}"
        )
    return fits[own[key]]


def _merged(
    kind: str, own: Mapping[str, Any], common: CommonOptions, flags: CommonOptions
) -> dict[str, Any]:
    """Merge options of the study, of the contestant, and flags; the later win."""
    known = options_in(KINDS[kind])
    shared, of_flags = (
        {key: value for key, value in flat(one).items() if value is not None and key in known}
        for one in (common, flags)
    )
    options: dict[str, Any] = {}
    for given in (shared, own, of_flags):
        if any(name in given for name in _LENGTHS):
            # Steps of the study would silently override the contestant's own epochs.
            options = {key: value for key, value in options.items() if key not in _LENGTHS}
        options |= given
    return options


def _check_start(kind: str, options: Mapping[str, Any]) -> None:
    """Refuse a network whose pre-trained model is missing, of another kind, or of no use."""
    if kind not in ("elmo", "ulmfit"):
        if options["model"] is not None:
            raise ConfigError(f"model is of elmo and ulmfit; {kind} has no pre-trained model.")
        return
    if options["model"] is None:
        command = f"filbert pretrain {kind}-small --corpus FILE --out FOLDER"
        raise ConfigError(f'it needs model = "FOLDER"; make it with: {command}')
    from filbert.lineage.pretraining import load

    load(Path(options["model"]), kind)


def _checked(kind: str, options: dict[str, Any], source: Contestant | None) -> dict[str, Any]:
    """Refuse options that no training accepts, and files and models that cannot be read.

    Returns:
        The options, with the defaults of a kind that `finetune` and `distill` do not train.
    """
    if kind not in TRAINED:
        own_dim = options.get("dim")
        options = flat(from_flat(KINDS[kind], options))
        if options.get("vectors") not in (None, "word2vec"):
            from filbert.data.word_vectors import vector_dimension

            if own_dim is not None:
                raise ConfigError("vectors has the dimension; leave dim out.")
            dim = vector_dimension(options["vectors"])
            options |= {"dim": dim} if kind in NETWORKS else {}
        if kind in NETWORKS:
            _check_start(kind, options)
        if kind == "static" and options["vectors"] is None:
            from filbert.checkpoints.opening import find_model

            options["model"] = options["model"] or "minilm"
            find_model(options["model"])
        return options
    needed = {"task": "classification", "train": "train", "dev": "dev", "out": "out"}
    options_class: Any = KINDS[kind]
    length = options_class.from_keywords({**options, **needed}).data.max_length
    named = options.get("model") or options.get("student")
    if source is not None and named is None:
        if options.get("keep_layers") is None:
            raise ConfigError(
                'it needs a student: some of the teacher\'s layers (keep_layers = "0,2,4") or '
                'another model (student = "...").'
            )
        named = source.options.get("model") or source.options.get("student")

    # After the options, because importing torch is slow.
    from filbert.checkpoints.opening import find_model, read_checkpoint
    from filbert.model.precision import choose_device

    choose_device(options.get("device"))
    if named is not None:
        read_checkpoint(find_model(str(named))).config.check_max_length(length)
    return options
