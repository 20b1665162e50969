"""A study's recipe, read and checked to the end before anything is trained."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any

from filbert.errors import ConfigError
from filbert.study.contestant_options import contestant_options, near
from filbert.study.derived_options import SOURCE_KEYS, derived_options, source_of, title_of
from filbert.study.options import SHARED, StudyFlags
from filbert.study.target import Target, target_of
from filbert.text.clean import Cleaning
from filbert.train.options import names_of

KINDS = ("encoder", "bigru", "tfidf", "static", *SOURCE_KEYS)
# Those that take optimiser steps.
TRAINED = ("encoder", "distilled")
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._+-]{0,59}")


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
        source: who it is made from: its teacher, or the model that it is at another precision.
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
        """The first teacher or model of the chain that it is made from; itself without one."""
        return self if self.source is None else self.source.root

    @property
    def depth(self) -> int:
        """How many others must be there before it."""
        return 0 if self.source is None else 1 + self.source.depth


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
        text_column, text_pair_column, label_column, separator: of the sources.
        merge_labels, merge_as: 0/1 columns that become one label.
        keep_columns: further columns that are kept with the rows.
        positive: the positive class of two.
        near_duplicates: together, report or ignore.
        resamples: of the bootstrap.
        target: what the model that is looked for must reach, if one is.
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
                f"The recipe's key {key!r} is unknown.{near(key, [*known, 'contestants'])}{hint}"
            )
    said = StudyFlags.from_keywords(flat | flags.given()).given()
    if not isinstance(tables, Mapping) or not tables:
        raise ConfigError("The recipe names no contestant; add a table such as [contestants.bert].")
    sources = _sources(said)
    seeds = tuple(range(said.get("seed", 0), said.get("seed", 0) + said.get("seeds", 1)))
    shared = {key: said[key] for key in SHARED if key in said}
    own, cleaning = flags.given(), said.get("cleaning", ("none",))
    # Of two labels, where the recipe says so; else the rows will tell.
    is_binary = "positive" in said or "merge_as" in said
    num_labels = 2 if is_binary else None
    made: dict[str, list[Contestant]] = {}
    for title in _teachers_first(tables):
        known_by_now = [one for variants in made.values() for one in variants]
        made[title] = _variants(
            title, tables[title], shared, own, cleaning, seeds, num_labels, known_by_now
        )
    contestants = [one for title in tables for one in made[title]]
    _refuse_twins(contestants)
    plain = {f.name for f in fields(Study)} & said.keys() - {"name"}
    return Study(
        name=said.get("name", name),
        sources=sources,
        contestants=tuple(contestants),
        target=target_of(said, contestants),
        options=said,
        **{key: said[key] for key in plain},
    )


def chosen(contestants: Sequence[Contestant], only: Collection[str]) -> list[Contestant]:
    """Those that `only` names: a title ("minilm": all its variants) or the name of a folder.

    Raises:
        ConfigError: there is none of that name.
    """
    found: list[Contestant] = []
    for asked in only:
        fits = [c for c in contestants if asked in (c.folder, c.name.split(",")[0])]
        if not fits:
            names = [c.folder for c in contestants]
            raise ConfigError(
                f"--only {asked}: there is no such contestant. Give names of folders, of "
                f"{names}, or a name without its cleaning.{near(asked, names)}"
            )
        found += fits
    return [c for c in contestants if c in found]


def training_options(contestant: Contestant) -> dict[str, Any]:
    """Of a contestant's options those that `finetune` or `distill` takes."""
    own = "teacher" if contestant.kind == "distilled" else None
    return {name: value for name, value in contestant.options.items() if name != own}


def _teachers_first(tables: Mapping[str, Any]) -> list[str]:
    """The titles, none before the contestant that it is made from.

    Raises:
        ConfigError: two are made from each other.
    """
    waiting: dict[str, str] = {}
    for title, table in tables.items():
        key = SOURCE_KEYS.get(str(table.get("kind"))) if isinstance(table, Mapping) else None
        if key is not None:
            waiting[title] = title_of(str(table.get(key)), tables)
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
    num_labels: int | None,
    others: Sequence[Contestant],
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
        raise ConfigError(f"{where}: kind {kind!r} is not one of {[*KINDS]}.{near(kind, KINDS)}")
    flags = {key: value for key, value in own.items() if key in SHARED}
    if kind in SOURCE_KEYS:
        said = {key: value for key, value in table.items() if key != "kind"}
        source = source_of(where, kind, said, others)
        options = derived_options(where, kind, said, shared, flags, source, num_labels)
        # It reads as its source does.
        reads = (source.cleaning, source.steps, source.seeds, source)
        return [Contestant(title, title, kind, options, *reads)]
    said = {key: value for key, value in table.items() if key not in ("kind", "cleaning")}
    options = contestant_options(where, kind, said, shared, flags, num_labels)
    if "cleaning" in table and "cleaning" not in own:
        cleaning = names_of(table["cleaning"])
    if not cleaning:
        raise ConfigError(f"{where}: cleaning names nothing; take none, study or steps.")
    found: list[Contestant] = []
    seen: dict[tuple[str, ...], str] = {}
    for given in cleaning:
        cleaner = _cleaner(where, given)
        steps = () if cleaner is None else tuple(cleaner.names)
        if steps in seen:
            raise ConfigError(
                f"{where}: cleaning names the same steps twice, as {seen[steps]!r} and as "
                f"{given!r}. Leave one of them out."
            )
        seen[steps] = given
        # Two spellings of one cleaning have one name, whichever a study was begun with.
        written = None if cleaner is None else str(cleaner)
        label = "cleaned" if written == "study" else written and written.replace(",", "+")
        found.append(
            Contestant(
                title if label is None else f"{title}, {label}",
                title if label is None else f"{title}-{label}",
                kind,
                options,
                written,
                steps,
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
