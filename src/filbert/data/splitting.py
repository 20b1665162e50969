"""Rows into train, dev and test, each with its share of every class."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence

import numpy as np

from filbert.data import draws
from filbert.data.labels import listed
from filbert.errors import ConfigError, InputError, printable

SPLITS = ("train", "dev", "test")


def split_shares(shares: Mapping[str, float] | Sequence[float]) -> dict[str, float]:
    """Shares by the name of their split; three without names are train, dev and test, two train
    and test.

    Raises:
        ConfigError: they are not positive numbers that add up to 1.
    """
    names = {2: ("train", "test"), 3: SPLITS}.get(len(shares), SPLITS)
    named = dict(shares) if isinstance(shares, Mapping) else dict(zip(names, shares, strict=False))
    total = sum(float(share) for share in named.values())
    is_valid = 1 < len(named) == len(shares) and all(0 < share < 1 for share in named.values())
    if not is_valid or abs(total - 1) > 1e-6:
        given = list(shares.values() if isinstance(shares, Mapping) else shares)
        raise ConfigError(
            f"split is {given}; give two or three shares above zero that add up to 1, such as "
            "0.7, 0.15, 0.15."
        )
    return {name: float(share) / total for name, share in named.items()}


def stratified_split(
    labels: Sequence[Hashable],
    shares: Mapping[str, float] | Sequence[float],
    *,
    seed: int,
    groups: Sequence[int] | np.ndarray | None = None,
    keeps_rare: bool = False,
) -> dict[str, np.ndarray]:
    """Draw the rows of each split so that every split has its share of every class.

    Without groups the number of rows of a class differs from its share by less than one. The draw
    depends on the seed and the order of the rows only.

    Rows of one group stay together. Groups of several rows are placed first, the largest first.
    Each goes to the split with the smallest ratio of placed to wanted rows of the group's classes
    (longest processing time first: Gonzalez, Ibarra and Sahni 1977). Single rows fill the rest.

    Args:
        labels: Of the n rows.
        shares: Of the splits, by name or for train, dev and test; see `split_shares`.
        seed: Of the draw.
        groups: The group number of each row, such as `NearDuplicates.clusters`.
        keeps_rare: Put all rows of a class that some split would lack into the first split, and
            with them their groups, instead of refusing it.

    Returns:
        int64 row numbers by split, ascending.

    Raises:
        ConfigError: The shares are not positive numbers that add up to 1.
        InputError: There is no row, or a split would have no row of a class (with `keeps_rare`: no
            row at all).
    """
    wanted = np.array(list(split_shares(shares).values()))
    names = list(split_shares(shares))
    classes = {label: number for number, label in enumerate(dict.fromkeys(labels))}
    if not classes:
        raise InputError("There is no row to split.")
    of_class = np.array([classes[label] for label in labels], dtype=np.int64)
    lots = draws.keys_of(seed, 0, np.arange(len(of_class)), use=draws.LOTS)
    together = np.arange(len(of_class)) if groups is None else np.asarray(groups)
    is_rare = np.zeros(len(of_class), dtype=bool)
    while True:
        place, counts = _placed(of_class, wanted, lots, together, is_rare)
        lacks = (counts == 0).any(axis=0)
        # Classes of rows that are in the first split already have no further split to be in.
        lacks[np.bincount(of_class[~is_rare], minlength=len(classes)) == 0] = False
        if not keeps_rare or not lacks.any():
            break
        is_rare |= np.isin(together, together[lacks[of_class]])
    if not keeps_rare:
        _require_every_class(counts, names, list(classes))
    elif not counts.any(axis=1).all():
        raise InputError(f"{len(of_class):,} rows are too few for the parts {listed(names)}.")
    return {name: np.flatnonzero(place == number) for number, name in enumerate(names)}


def _placed(
    of_class: np.ndarray,
    wanted: np.ndarray,
    lots: np.ndarray,
    groups: np.ndarray,
    is_rare: np.ndarray,
) -> tuple[np.ndarray, np.ndarray]:
    """The split of each of n rows, int64 (n,), and rows by split and class, int64 (S, C).

    Args:
        of_class: int64 (n,).
        wanted: Shares of the splits, float (S,).
        lots: The drawn order, uint64 (n,).
        groups: int64 (n,).
        is_rare: bool (n,), rows for the first split.
    """
    num_classes = int(of_class.max()) + 1
    quotas = wanted[:, None] * np.bincount(of_class)
    place = np.where(is_rare, 0, -1)
    counts = np.zeros(quotas.shape, dtype=np.int64)
    counts[0] += np.bincount(of_class[is_rare], minlength=num_classes)
    large = [rows for rows in _large_groups(groups, lots) if not is_rare[rows[0]]]
    for rows in large:
        members = np.bincount(of_class[rows], minlength=num_classes)
        fullness = ((counts + members) / quotas) @ members
        best = int(np.argmin(fullness))
        place[rows] = best
        counts[best] += members
    owed = np.zeros(len(wanted))
    for number in range(num_classes):
        rows = np.flatnonzero((of_class == number) & (place < 0))
        if not len(rows):
            continue
        rows = rows[np.argsort(lots[rows], kind="stable")]
        lacking = np.maximum(0.0, quotas[:, number] - counts[:, number])
        lacking *= len(rows) / lacking.sum()
        given = _whole_rows(lacking, len(rows), owed, is_empty=counts[:, number] == 0)
        owed += lacking - given
        place[rows] = np.repeat(np.arange(len(wanted)), given)
        counts[:, number] += given
    # Groups that are larger than a small split are all in others; it gets the smallest of them.
    short = np.flatnonzero(counts.sum(axis=1) < quotas.sum(axis=1) / 2)
    for rows, target in zip(reversed(large[1:]), short, strict=False):
        members = np.bincount(of_class[rows], minlength=num_classes)
        counts[place[rows[0]]] -= members
        counts[target] += members
        place[rows] = target
    return place, counts


def merged_groups(*partitions: np.ndarray) -> np.ndarray:
    """Join groups that share a row: int64 (n,) for group numbers int64 (n,), of each partition."""
    from scipy.sparse import coo_array
    from scipy.sparse.csgraph import connected_components

    count = len(partitions[0])
    pairs = []
    for groups in partitions:
        _, first, numbers = np.unique(groups, return_index=True, return_inverse=True)
        pairs.append(np.stack([np.arange(count), first[numbers]]))
    edges = np.concatenate(pairs, axis=1)
    graph = coo_array((np.ones(edges.shape[1], bool), edges), shape=(count, count))
    return np.asarray(connected_components(graph, directed=False)[1], dtype=np.int64)


def _large_groups(groups: np.ndarray, lots: np.ndarray) -> list[np.ndarray]:
    """The rows of each group of two or more, the largest groups first, equal ones by lot."""
    order = np.argsort(groups, kind="stable")
    edges = np.flatnonzero(np.diff(groups[order])) + 1
    found = [rows for rows in np.split(order, edges) if len(rows) > 1]
    return sorted(found, key=lambda rows: (-len(rows), int(lots[rows[0]])))


def _whole_rows(
    wanted: np.ndarray, total: int, owed: np.ndarray, *, is_empty: np.ndarray
) -> np.ndarray:
    """`wanted` as whole numbers that add up to `total`, each rounded up or down.

    Rounded up are first those that would be nothing otherwise, then the largest remainders, where
    what earlier classes left a split `owed` counts as well: rounding many small
    classes in the same direction would leave a split too small.
    """
    # The tolerance is for quotas such as 0.15 * 20, which is not quite 3.
    given = np.floor(wanted + 1e-9).astype(np.int64)
    rest = np.maximum(0.0, wanted - given)
    rest[rest < 1e-9] = 0.0
    nothing = is_empty & (given == 0) & (rest > 0)
    order = np.lexsort((np.arange(len(wanted)), -(rest + owed), ~nothing, rest == 0))
    given[order[: total - int(given.sum())]] += 1
    return given


def _require_every_class(
    counts: np.ndarray, names: Sequence[str], labels: Sequence[Hashable]
) -> None:
    missing = np.argwhere(counts.T == 0)
    if len(missing):
        number, split = missing[0].tolist()
        raise InputError(
            f"{printable(names[split])} would have no row with the label "
            f'"{printable(str(labels[number]))}", which has {int(counts[:, number].sum()):,} in '
            "all. Add rows, merge the label with another one, or drop it; rows of one group stay "
            "together."
        )
