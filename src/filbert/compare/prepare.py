"""Prepares the rows of a study: read, merged, split, checked for near-duplicates, written once."""

from __future__ import annotations

import gzip
import json
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from filbert.compare.predictions import is_missing
from filbert.compare.recipe import Study
from filbert.data.columns import ColumnNames, recognised
from filbert.data.labels import Merge, check_names, label_in, label_order, listed
from filbert.data.records import Row, file_digest
from filbert.data.splitting import between, near_duplicates, stratified_split
from filbert.errors import ConfigError, InputError, printable
from filbert.files import sha256_of, write_atomically

SPLITS = ("train", "dev", "test")


def prepare(study: Study, folder: Path) -> dict[str, Any]:
    """Write folder/{train,dev,test}.jsonl.gz.

    Returns:
        {"train"|"dev"|"test": {rows, sha256, label_counts}, "source": [{path, sha256, rows}],
        "labels", "positive", "near_duplicates": {...}}.

    Raises:
        InputError: a row is wrong (with file and line), or a split is left without a class.
        ConfigError: columns or labels that are not there.
    """
    rows = {name: _read(study, path) for name, path in study.sources.items()}
    source = [
        {"path": study.sources[name], "sha256": file_digest(study.sources[name]), "rows": len(part)}
        for name, part in rows.items()
    ]
    _refuse_labels(study, [row for part in rows.values() for row in part])
    splits, repeats = _split(study, rows)
    labels = _labels(study, splits)
    column = study.slice_column
    if column and all(is_missing(row.values.get(column)) for row in splits["test"]):
        raise InputError(f"slice_column: no test row has a value in the column {column!r}.")
    repeats |= _repeats(splits)
    facts: dict[str, Any] = {}
    folder.mkdir(parents=True, exist_ok=True)
    for name in SPLITS:
        path = folder / f"{name}.jsonl.gz"
        lines = "".join(
            json.dumps(row.values, ensure_ascii=False, default=str) + "\n" for row in splits[name]
        )
        # Half a surrogate pair stays an escape. Without a time, the same rows give the same bytes.
        data = lines.encode("utf-8", "backslashreplace")
        write_atomically(path, gzip.compress(data, mtime=0))
        counts = Counter(row.values["label"] for row in splits[name])
        facts[name] = {
            "path": f"data/{path.name}",
            "rows": len(splits[name]),
            "sha256": sha256_of(path),
            "label_counts": {label: counts[label] for label in labels},
        }
    second = labels[1] if len(labels) == 2 else None
    return facts | {
        "source": source,
        "labels": labels,
        "positive": study.positive or _merged_label(study) or second,
        "near_duplicates": repeats,
    }


def _read(study: Study, path: str) -> list[Row]:
    """Return rows with text, perhaps text_pair, label and the slice column, under these names."""
    names = ColumnNames(
        text_column=study.text_column,
        text_pair_column=study.text_pair_column,
        label_column=None if study.label_column == "label" else study.label_column,
        merge_labels=study.merge_labels,
        merge_as=study.merge_as,
        separator=study.separator,
    )
    extra = () if study.slice_column is None else (study.slice_column,)
    names = recognised(path, names, num_texts=1, label="class", apart=extra)
    found = names.read(path, required=("text", "label"), optional=("text_pair",), extra=extra)
    kept = ("text", "text_pair", *extra)
    return [
        Row(
            {k: row.values[k] for k in kept if row.values.get(k) is not None}
            | {"label": label_in(row)},
            row.path,
            row.line,
        )
        for row in found
    ]


def _merged_label(study: Study) -> str | None:
    """Return the label of the merged columns as the rows have it; None without merged columns."""
    if study.merge_labels is None or study.merge_as is None:
        return None
    return Merge(study.merge_labels, study.merge_as).name


def _refuse_labels(study: Study, rows: Sequence[Row]) -> None:
    """Check that labels are distinct, and that a positive class is one of two.

    Raises:
        InputError: A third label (with its row), or one number written in two ways.
        ConfigError: The positive class is not among the labels.
    """
    counts = Counter(row.values["label"] for row in rows)
    labels = sorted(counts, key=label_order)
    # A single label is refused later.
    if len(labels) > 1:
        found = np.array([counts[label] for label in labels])
        check_names(labels, found, len(rows), multilabel=False)
    if study.positive is None:
        return
    seen: dict[str, None] = {}
    for row in rows:
        label = row.values["label"]
        if label not in seen and len(seen) == 2:
            raise InputError(
                f"{row.where}: label {printable(label)!r}, after {listed(list(seen))}. With "
                f"positive {study.positive!r} there are two labels; fix the row, or leave "
                "positive out."
            )
        seen[label] = None
    if study.positive not in seen:
        raise ConfigError(f"positive is {study.positive!r}; the labels are {labels}.")


def _split(
    study: Study, rows: Mapping[str, list[Row]]
) -> tuple[dict[str, list[Row]], dict[str, int]]:
    """Split into train, dev and test; rows that nearly repeat each other stay in one split.

    Rows that were given as a split stay in it.

    Returns:
        The splits, and the numbers of clusters of near-duplicates and of rows in them.
    """
    train, dev, test = study.split
    shares = {"train": train, "dev": dev, "test": test}
    if "data" not in rows:
        shares = {name: share / (train + dev) for name, share in shares.items() if name != "test"}
    if "dev" in rows:
        return dict(rows), {}
    whole = rows["data"] if "data" in rows else rows["train"]
    groups = near_duplicates([_text(row) for row in whole]).clusters
    _, sizes = np.unique(groups, return_counts=True)
    sizes = sizes[sizes > 1]
    labels = [row.values["label"] for row in whole]
    parts = stratified_split(labels, shares, seed=study.seed, groups=groups)
    splits = {name: [whole[i] for i in at.tolist()] for name, at in parts.items()}
    splits |= {name: rows[name] for name in rows.keys() & {"test"}}
    return splits, {"clusters": len(sizes), "rows_in_clusters": int(sizes.sum())}


def _repeats(splits: Mapping[str, list[Row]]) -> dict[str, int]:
    """Count rows that nearly repeat one of an earlier split, and those with another label.

    Dev against test counts too, because thresholds and steps are chosen on dev.
    """
    facts: dict[str, int] = {}
    counts = [len(part) for part in splits.values()]
    rows = [row for part in splits.values() for row in part]
    split_of = np.repeat(list(splits), counts)
    labels = np.array([row.values["label"] for row in rows], dtype=object)
    near = near_duplicates([_text(row) for row in rows], parts=counts)
    for name, earlier in (("dev", "train"), ("test", "train"), ("test", "dev")):
        leaked, sources = between(near, split_of == earlier, split_of == name)
        facts[f"{name}_like_{earlier}"] = len(leaked)
        differ = labels[leaked] != labels[sources]
        facts[f"{name}_like_{earlier}_other_label"] = int(np.count_nonzero(differ))
    return facts


def _text(row: Row) -> str:
    pair = row.values.get("text_pair")
    return f"{row.values['text']} {pair}" if pair else str(row.values["text"])


def _labels(study: Study, splits: Mapping[str, list[Row]]) -> list[str]:
    """Return the labels in order; each must be in every split."""
    counts = {name: Counter(row.values["label"] for row in rows) for name, rows in splits.items()}
    labels = sorted(set().union(*counts.values()), key=label_order)
    if len(labels) < 2:
        raise InputError(f"The rows hold one label only ({labels[0]!r}); a study needs two.")
    for name, found in counts.items():
        missing = [label for label in labels if not found[label]]
        if missing:
            raise InputError(
                f"No row of {name} has the label {missing[0]!r}. Give more rows, other shares "
                f"(split) or another seed."
            )
    if study.positive is not None and (study.positive not in labels or len(labels) != 2):
        raise ConfigError(f"positive is {study.positive!r}; the labels are {labels[:12]}.")
    return labels
