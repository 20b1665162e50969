"""Tables for a terminal that compare two models, or a run with its replay."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from filbert.errors import printable

if TYPE_CHECKING:
    from filbert.checkpoints.differences import GroupDifference, ModelDifferences, Pair
    from filbert.train.replay import Figure

_NOTHING = "–"
_BAR = 12
_LONG = 64
# Sections in their order: attribute and heading.
_SECTIONS = (
    ("config", "sizes"),
    ("tokenizer", "tokenizer"),
    ("task", "task"),
    ("run", "run"),
    ("options", "options of the runs"),
    ("data", "data"),
)
# Entries of a section that are printed if only one of the two models has it; --json has all.
_WHEN_ALONE = {
    "task": ("thresholds", "temperature", "null_threshold"),
    "run": ("command", "started", "steps", "base model"),
    "data": ("path", "rows", "tokens"),
}


def print_differences(found: ModelDifferences, console: Console) -> None:
    """Print what the models are, what differs, their metrics, and the weights by group."""
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, header_style="bold")
    table.add_column("", style="dim")
    for letter, name in zip("AB", found.names, strict=True):
        table.add_column(
            Text(printable(f"{letter}  {name}", 500), overflow="fold"), overflow="fold"
        )
    _add(table, {k: pair for k, pair in found.about.items() if pair not in _EMPTY}, mark=True)
    for attribute, heading in _SECTIONS:
        pairs = _shown_pairs(attribute, getattr(found, attribute))
        if pairs:
            table.add_section()
            table.add_row(Text(heading, style="bold not dim"), "", "")
            _add(table, pairs)
    for split, figures in found.metrics.items():
        numbers = {
            name: pair for name, pair in figures.items() if any(isinstance(v, float) for v in pair)
        }
        if numbers:
            table.add_section()
            table.add_row(Text(printable(f"metrics on {split}"), style="bold not dim"), "", "")
            _add(table, numbers, mark=True)
    console.print(table)
    console.print(_weights(found.groups))
    for group in found.groups:
        for sentence in _oddities(group):
            console.print(Text(printable(sentence, 500)), style="yellow", soft_wrap=True)
    console.print(Text(verdict(found)), style="bold", soft_wrap=True)


def _shown_pairs(section: str, pairs: Mapping[str, Pair]) -> dict[str, Pair]:
    """Return all entries, or the few that matter if only one of the two models has any."""
    ends = _WHEN_ALONE.get(section)
    is_alone = any(all(pair[side] is None for pair in pairs.values()) for side in (0, 1))
    return {k: pair for k, pair in pairs.items() if not is_alone or not ends or k.endswith(ends)}


_EMPTY: tuple[Pair, ...] = ((None, None), ([], []))


def verdict(found: ModelDifferences) -> str:
    """Return the result of the comparison as a sentence."""
    if found.same_answers:
        return "Weights, tokenizer, sizes and task are the same, and so are the predictions."
    tensors = sum(
        group.equal + len(group.different) + len(group.shapes) + sum(map(len, group.only))
        for group in found.groups
    )
    equal = sum(group.equal for group in found.groups)
    weights = (
        "the same weights" if found.same_weights else f"{equal:,} of {tensors:,} tensors are equal"
    )
    others = [name.replace("_", " ") for name in found.unlike]
    others += [heading for attribute, heading in _SECTIONS[:3] if getattr(found, attribute)]
    verb = "differ" if len(others) > 1 or others == ["sizes"] else "differs"
    rest = f"{', '.join(others)} {verb}" if others else "tokenizer, sizes and task are the same"
    return f"{weights[0].upper()}{weights[1:]}; {rest}."


def _add(table: Table, pairs: Mapping[str, Pair], *, mark: bool = False) -> None:
    """Add a row for each pair; with `mark`, values that differ are bold."""
    for name, pair in pairs.items():
        style = "bold" if mark and pair[0] != pair[1] else ""
        cells = [Text(_shown(value), style=style) for value in pair]
        # A Text, because names from a file are not markup.
        table.add_row(Text(printable(name.replace("_", " "), 500)), *cells)


def _shown(value: Any) -> str:
    if value is None or value in ([], ()):
        return _NOTHING
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float) and abs(value) >= 1000 and value.is_integer():
        value = int(value)
    if isinstance(value, float):
        return f"{value:.4f}" if 1e-3 <= abs(value) < 1e6 or value == 0 else f"{value:.3g}"
    if isinstance(value, int):
        return f"{value:,}"
    if isinstance(value, dict):
        value = [f"{name} {_shown(item)}" for name, item in value.items()]
    if isinstance(value, list | tuple):
        value = ", ".join(_shown(item) for item in value)
    text = printable(str(value), 200)
    is_digest = len(text) == 64 and not text.strip("0123456789abcdef")
    if is_digest:
        return text[:12]
    return text if len(text) <= _LONG else f"{text[: _LONG - 1]}…"


def _weights(groups: list[GroupDifference]) -> Table:
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, header_style="bold")
    table.add_column("weights", style="dim")
    for heading in ("equal", "different", "largest difference", "relative"):
        table.add_column(heading, justify="right")
    table.add_column("")
    most = max((group.relative or 0.0 for group in groups), default=0.0)
    for group in groups:
        odd = len(group.shapes) + sum(map(len, group.only))
        compared = bool(group.equal or group.different)
        share = (group.relative or 0.0) / most if most else 0.0
        relative = _NOTHING if group.relative is None else f"{group.relative:.2%}"
        table.add_row(
            group.name,
            str(group.equal),
            str(len(group.different) + odd),
            f"{group.largest:.3g}" if compared else _NOTHING,
            relative if compared else _NOTHING,
            Text("█" * max(1, round(_BAR * share)) if share else "", style="cyan"),
        )
    return table


def _oddities(group: GroupDifference) -> list[str]:
    """Return sentences about tensors that could not be compared."""
    found = [
        f"{name}: {_size(first)} in A, {_size(second)} in B"
        for name, (first, second) in group.shapes.items()
    ]
    for letter, names in zip("AB", group.only, strict=True):
        if names:
            more = f" and {len(names) - 3} more" if len(names) > 3 else ""
            found.append(f"only in {letter}: {', '.join(names[:3])}{more}")
    return found


def _size(shape: tuple[int, ...]) -> str:
    return " x ".join(map(str, shape)) or "a single number"


def replay_table(figures: Sequence[Figure], tolerance: float) -> Table:
    """Return the metrics of a run and its replay; differences beyond the tolerance are red."""
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, header_style="bold")
    table.add_column("metric", style="dim")
    for heading in ("recorded", "replayed", "difference"):
        table.add_column(heading, justify="right")
    for figure in figures:
        style = "" if figure.is_within(tolerance) else "bold red"
        difference = _NOTHING if figure.difference is None else f"{figure.difference:.2g}"
        cells = [_shown(figure.recorded), _shown(figure.replayed), difference]
        name = f"{figure.split} {figure.metric.replace('_', ' ')}"
        table.add_row(Text(printable(name, 500)), *(Text(cell, style=style) for cell in cells))
    return table
