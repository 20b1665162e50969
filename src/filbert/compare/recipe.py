"""Reads and checks the recipe of a study before anything is trained."""

from __future__ import annotations

import math
import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any

from filbert.compare.contestant_options import (
    KINDS,
    SOURCE_KEYS,
    Contestant,
    contestant_options,
    derived_options,
    near,
    source_of,
    title_of,
)
from filbert.compare.options import SHARED, StudyFlags
from filbert.errors import ConfigError
from filbert.text.clean import Cleaning
from filbert.train.options import names_of

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._+-]{0,59}")


@dataclass(frozen=True)
class Study:
    """A study; the fields without a description are those of `StudyFlags`.

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


def read_study(recipe: Mapping[str, Any], flags: StudyFlags, *, name: str = "study") -> Study:
    """Return the study of a recipe.

    Args:
        recipe: Content of the TOML file, with a table "contestants".
        flags: They take precedence over the recipe and over the contestants' tables.
        name: Default name of the study.

    Raises:
        ConfigError: An unknown key, kind or value; the nearest name is suggested.
        InputError, FormatError: A contestant's model cannot be read.
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
    # A recipe with a positive label has two labels; otherwise the number is not known yet.
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
    """Select contestants by title ("minilm": all its variants) or folder name.

    Raises:
        ConfigError: No contestant has that name.
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
    """Return the options that `finetune` or `distill` takes."""
    own = "teacher" if contestant.kind == "distilled" else None
    return {name: value for name, value in contestant.options.items() if name != own}


def _teachers_first(tables: Mapping[str, Any]) -> list[str]:
    """Return the titles, sources first.

    Raises:
        ConfigError: Contestants are made from each other.
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
        raise ConfigError("train is given without test, which all contestants are measured on.")
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
        raise ConfigError(f"{where}: kind {kind!r} is not one of {[*KINDS]}.{near(kind, KINDS)}")
    flags = {key: value for key, value in own.items() if key in SHARED}
    if kind in SOURCE_KEYS:
        said = {key: value for key, value in table.items() if key != "kind"}
        source = source_of(where, kind, said, others)
        options = derived_options(where, kind, said, shared, flags, source, num_labels)
        # Texts are cleaned as for its source.
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
        # Two spellings of one cleaning give one name, so that a study can be resumed with either.
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
                # Logistic regression does not depend on the seed.
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


_UNITS = {"ms": 1e-3, "s": 1.0}


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


def target_of(said: Mapping[str, Any], contestants: Sequence[Contestant]) -> Target | None:
    """Return the target of a study's options; None without one.

    Raises:
        ConfigError: A number is out of range, or the reference is ambiguous.
    """
    quality, of = said.get("target_quality"), said.get("target_of")
    latency = said.get("target_latency")
    if of is not None:
        names = {key: one for one in contestants for key in (one.folder, one.name)}
        if of not in names:
            folders = [one.folder for one in contestants]
            raise ConfigError(
                f"target_of {of!r} is not one of the contestants {folders}.{near(of, folders)}"
            )
        of = names[of].name
    is_number = isinstance(quality, int | float) and not isinstance(quality, bool)
    if quality is not None and not (is_number and 0 < quality < math.inf):
        raise ConfigError(
            f"target_quality is {quality!r}; give a share of the teacher's figure, such as 0.97."
        )
    if quality is None and latency is None:
        if of is not None:
            raise ConfigError("target_of says whose quality is meant; give target_quality too.")
        return None
    of = of or common_root(contestants)
    if quality is not None and of is None:
        raise ConfigError(
            "target_quality is a share of another contestant's figure, and the study has no single "
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
    found = re.fullmatch(r"(\d+(?:\.\d+)?)\s*(ms|s)", text.strip().lower(), flags=re.ASCII)
    seconds = float(found[1]) * _UNITS[found[2]] if found else 0.0
    if not 0 < seconds < math.inf:
        raise ConfigError(f"target_latency is {text!r}; give a time above zero, such as 5ms.")
    return seconds
