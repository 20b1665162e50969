"""A study's recipe, read and checked to the end before anything is trained."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, fields
from difflib import get_close_matches
from pathlib import Path
from typing import Any

from filbert.errors import ConfigError, FormatError, InputError
from filbert.study.options import SHARED, StudyFlags
from filbert.text.clean import Cleaning
from filbert.train.options import FinetuneOptions, names_of

# What a contestant of each kind may say beside the options of `finetune`, with the default.
BIGRU: dict[str, Any] = {
    "vectors": None,
    "dim": 300,
    "hidden": 128,
    "dropout": 0.2,
    "max_words": 50_000,
    "min_count": 2,
    "pooling": "mean+max",
}
# What learns from nothing takes larger steps than what goes on from pre-training.
BIGRU_LR = 1e-3
TFIDF: dict[str, Any] = {"C": None, "ngrams": 2, "min_df": 2}
STATIC: dict[str, Any] = {"vectors": None, "model": None, "C": None}
KINDS = ("encoder", "bigru", "tfidf", "static")
# What the study itself decides for every contestant.
_STUDYS = (
    "task", "train", "dev", "test", "out", "overwrite", "resume", "seed", "seeds", "clean",
    "positive", "labels", "multilabel", "show_texts", "distributed", "tensorboard",
)  # fmt: skip
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._+-]{0,59}")
_BUILT_IN = ("minilm", "filbert-mini")


@dataclass(frozen=True)
class Contestant:
    """One of those who are compared.

    Attributes:
        name: for people: "minilm", "minilm, cleaned".
        folder: its name as a folder.
        kind: one of `KINDS`.
        options: everything that was said about it, and for all contestants.
        cleaning: as `--clean` takes it; None for texts as they are.
        steps: the names of the steps of that cleaning.
        seeds: one training each.
    """

    name: str
    folder: str
    kind: str
    options: dict[str, Any]
    cleaning: str | None
    steps: tuple[str, ...]
    seeds: tuple[int, ...]


@dataclass(frozen=True)
class Study:
    """A whole study.

    Attributes:
        name: what the report calls it.
        sources: {"data": path}, or paths of "train", "test" and maybe "dev".
        contestants: in the order of the recipe.
        split: shares of train, dev and test.
        seed: of the split, and of the first training.
        options: all that was said, for study.json.
        text_column, text_pair_column, label_column: of the sources.
        merge_labels, merge_as: 0/1 columns that become one label.
        keep_columns: further columns that are kept with the rows.
        positive: the positive class of two.
        near_duplicates: together, report or ignore.
        resamples: of the bootstrap.
    """

    name: str
    sources: dict[str, str]
    contestants: tuple[Contestant, ...]
    split: tuple[float, ...] = (0.7, 0.15, 0.15)
    seed: int = 0
    text_column: str = "text"
    text_pair_column: str | None = None
    label_column: str = "label"
    merge_labels: tuple[str, ...] | None = None
    merge_as: str | None = None
    keep_columns: tuple[str, ...] = ()
    positive: str | None = None
    near_duplicates: str = "together"
    resamples: int = 2000
    options: dict[str, Any] = field(default_factory=dict)


def read_study(recipe: Mapping[str, Any], flags: StudyFlags, *, name: str = "study") -> Study:
    """The study that a recipe describes, flags winning over it.

    Args:
        recipe: the content of the TOML file, with a table "contestants".
        flags: given beside it; they also win over what a contestant says.
        name: of the study where neither says it.

    Raises:
        ConfigError: an unknown key, kind or value; the nearest name is given.
        InputError, FormatError: a contestant's model cannot be had.
    """
    flat = {key: value for key, value in recipe.items() if key != "contestants"}
    tables = recipe.get("contestants")
    known = [f.name for f in fields(StudyFlags)]
    for key, value in flat.items():
        if key not in known:
            hint = " Contestants stand in tables: [contestants.NAME]." * isinstance(value, dict)
            raise ConfigError(
                f"The recipe's key {key!r} is unknown.{_near(key, [*known, 'contestants'])}{hint}"
            )
    said = StudyFlags.from_keywords(flat | flags.given()).given()
    if not isinstance(tables, Mapping) or not tables:
        raise ConfigError("The recipe names no contestant; add a table such as [contestants.bert].")
    sources = _sources(said)
    seeds = tuple(range(said.get("seed", 0), said.get("seed", 0) + said.get("seeds", 1)))
    shared = {key: said[key] for key in SHARED if key in said}
    own = {key: value for key, value in flags.given().items() if key in SHARED}
    contestants: list[Contestant] = []
    for title, table in tables.items():
        contestants += _variants(title, table, shared, own, said.get("cleaning", ("none",)), seeds)
    _refuse_twins(contestants)
    plain = {f.name for f in fields(Study)} & said.keys() - {"name"}
    return Study(
        name=said.get("name", name),
        sources=sources,
        contestants=tuple(contestants),
        options=said,
        **{key: said[key] for key in plain},
    )


def chosen(contestants: Sequence[Contestant], only: Collection[str]) -> list[Contestant]:
    """Those that `only` names, by title ("minilm": all its variants), name or folder.

    Raises:
        ConfigError: there is none of that name.
    """
    found: list[Contestant] = []
    for asked in only:
        fits = [c for c in contestants if asked in (c.name, c.folder, c.name.split(",")[0])]
        if not fits:
            names = [c.name for c in contestants]
            raise ConfigError(f"--only {asked}: the contestants are {names}.{_near(asked, names)}")
        found += fits
    return [c for c in contestants if c in found]


def finetune_options(contestant: Contestant) -> dict[str, Any]:
    """Of a contestant's options those that `finetune` takes."""
    own = BIGRU if contestant.kind == "bigru" else {}
    return {name: value for name, value in contestant.options.items() if name not in own}


def _sources(said: Mapping[str, Any]) -> dict[str, str]:
    named = {key: said[key] for key in ("data", "train", "dev", "test") if key in said}
    if ("data" in named) == ("train" in named) or ("data" in named and len(named) > 1):
        raise ConfigError("Give either data, which is split, or train and test (and dev).")
    if "train" in named and "test" not in named:
        raise ConfigError("train is given without test, on which everybody is measured.")
    if "-" in named.values():
        raise ConfigError("A study reads files; standard input cannot be read twice.")
    return named


def _variants(
    title: str,
    table: Any,
    shared: dict[str, Any],
    own: dict[str, Any],
    cleaning: Sequence[str],
    seeds: tuple[int, ...],
) -> list[Contestant]:
    """A contestant of the recipe, once with each of its cleanings."""
    where = f"[contestants.{title}]"
    if not _NAME.fullmatch(title):
        raise ConfigError(
            f"{where}: the name becomes a folder; take letters, digits and . _ + - only."
        )
    if not isinstance(table, Mapping):
        raise ConfigError(f"{where} must be a table of options.")
    kind = table.get("kind", "encoder")
    if kind not in KINDS:
        raise ConfigError(f"{where}: kind {kind!r} is not one of {[*KINDS]}.{_near(kind, KINDS)}")
    said = {key: value for key, value in table.items() if key not in ("kind", "cleaning")}
    options = _checked(where, kind, said, shared, own)
    if "cleaning" in table:
        cleaning = names_of(table["cleaning"])
    if not cleaning:
        raise ConfigError(f"{where}: cleaning names nothing; take none, study or steps.")
    found = []
    for given in cleaning:
        cleaner = _cleaner(where, given)
        label = None if cleaner is None else "cleaned" if given == "study" else given
        found.append(
            Contestant(
                title if label is None else f"{title}, {label}",
                title if label is None else f"{title}-{label}",
                kind,
                options,
                None if cleaner is None else given.replace("+", ","),
                () if cleaner is None else tuple(cleaner.names),
                # Logistic regression has one solution; a second seed would repeat the first.
                seeds[:1] if kind in ("tfidf", "static") else seeds,
            )
        )
    return found


def _cleaner(where: str, given: str) -> Cleaning | None:
    try:
        return Cleaning.parse(given.replace("+", ","))
    except ConfigError as error:
        raise ConfigError(f"{where}: {error}") from error


def _checked(
    where: str, kind: str, said: dict[str, Any], shared: dict[str, Any], own: dict[str, Any]
) -> dict[str, Any]:
    """A contestant's options with those of all; refused here rather than an hour later."""
    extra = {"bigru": BIGRU, "tfidf": TFIDF, "static": STATIC}.get(kind, {})
    trained = kind in ("encoder", "bigru")
    known = {*extra}
    if trained:
        known |= {f.name for f in fields(FinetuneOptions)} - {*_STUDYS} - _COLUMNS
    if kind == "bigru":
        known -= {"model"}
    for key in said:
        if key in known:
            continue
        if key == "clean":
            raise ConfigError(f'{where}: write cleaning = ["study"], not clean.')
        if trained and key in {*_STUDYS} | _COLUMNS:
            raise ConfigError(f"{where}: {key!r} is the same for all contestants of a study.")
        raise ConfigError(f"{where}: there is no option {key!r}.{_near(key, known)}")
    options = {**extra, **(shared if trained else {}), **said, **(own if trained else {})}
    if kind == "bigru":
        options = {"lr": BIGRU_LR} | options
    if "steps" in own or "epochs" in own:
        # A flag must not lose to another kind of length in the recipe.
        dropped = {"time"} if "steps" in own else {"time", "steps"}
        options = {key: value for key, value in options.items() if key not in dropped}
    try:
        if trained:
            _check_trained(kind, options)
        else:
            _check_linear(kind, options)
    except ConfigError as error:
        raise ConfigError(f"{where}: {error}") from error
    except (InputError, FormatError) as error:
        raise type(error)(
            f"{where}: {error}{_near(str(options.get('model')), _BUILT_IN)}"
        ) from error
    return options


def _check_trained(kind: str, options: dict[str, Any]) -> None:
    paths = {"task": "classification", "train": "train", "dev": "dev", "out": "out"}
    if kind == "bigru":
        _check_numbers(options, ("dim", "hidden", "max_words", "min_count"))
        given = {key: value for key, value in options.items() if key not in BIGRU}
        FinetuneOptions.from_keywords({**given, **paths, "model": "start"})
        if options["vectors"] is not None:
            _check_file(options["vectors"])
        return
    chosen = FinetuneOptions.from_keywords({**options, **paths})

    from filbert.formats.find import find_model
    from filbert.formats.opening import read_checkpoint
    from filbert.predict import check_max_length

    checkpoint = read_checkpoint(find_model(chosen.model))
    check_max_length(chosen.max_length, checkpoint.config)


def _check_linear(kind: str, options: dict[str, Any]) -> None:
    if options["C"] is not None and not (
        isinstance(options["C"], int | float) and options["C"] > 0
    ):
        raise ConfigError(f"C is {options['C']!r}; it must be a number above zero.")
    if kind == "tfidf":
        _check_numbers(options, ("ngrams", "min_df"))
        return
    if options["vectors"] is not None and options["model"] is not None:
        raise ConfigError("vectors and model both name the word vectors; give one of them.")
    if options["vectors"] is not None:
        _check_file(options["vectors"])
        return
    options["model"] = options["model"] or "minilm"

    from filbert.formats.find import find_model

    find_model(options["model"])


def _check_numbers(options: Mapping[str, Any], names: Sequence[str]) -> None:
    for name in names:
        if type(options[name]) is not int or options[name] < 1:
            raise ConfigError(f"{name} is {options[name]!r}; it must be a whole number from 1.")


def _check_file(path: Any) -> None:
    if not isinstance(path, str) or not Path(path).is_file():
        raise InputError(f"vectors: there is no file {path}.")


def _refuse_twins(contestants: Sequence[Contestant]) -> None:
    seen: dict[str, str] = {}
    for one in contestants:
        key = one.folder.lower()
        if key in seen:
            raise ConfigError(
                f"The contestants {seen[key]!r} and {one.name!r} would share a folder; "
                f"give one of them another name."
            )
        seen[key] = one.name


def _near(given: Any, known: Collection[str]) -> str:
    near = get_close_matches(str(given), sorted(known), 1)
    return f" Did you mean {near[0]!r}?" if near and near[0] != given else ""


_COLUMNS = {f.name for f in fields(FinetuneOptions) if "column" in f.name}
