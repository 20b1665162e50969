"""What `filbert heads` prints: a line a head, then what the heads find."""

from __future__ import annotations

from typing import Any

from rich.console import Console
from rich.table import Table

from filbert.inspection.heads import NUMBERS

_MARKS = {"dependent looks at head": "dep. to head", "head looks at dependent": "head to dep."}


def print_heads(facts: dict[str, Any]) -> None:
    """Everything that was found, for people."""
    console = Console(emoji=False)
    # A table is never cropped: on a narrow terminal its lines are broken.
    console.width = max(console.width, 120) if console.is_terminal else 200
    texts = facts["texts"]
    cut = f", {texts['truncated']:,} of them cut" if texts["truncated"] else ""
    print(f"{texts['texts']:,} texts, {texts['tokens']:,} tokens{cut}: {texts['source']}")
    _print(console, _numbers(facts))
    if "worth" in facts:
        worth = facts["worth"]
        value = "undefined" if worth["value"] is None else f"{worth['value']:.4f}"
        print(
            f"lost: what {worth['metric']} loses with this head masked; {value} with all, "
            f"{worth['rows']:,} rows. importance: mean size of the loss's gradient at its mask."
        )
    if "treebank" in facts:
        _print_treebank(console, facts["treebank"])


def _print(console: Console, table: Table) -> None:
    console.print(table, markup=False, highlight=False)


def _table(*headings: str, text: int = 1) -> Table:
    table = Table(box=None, pad_edge=False)
    for at, heading in enumerate(headings):
        table.add_column(heading, justify="left" if at < text else "right", no_wrap=True)
    return table


def _numbers(facts: dict[str, Any]) -> Table:
    shown = [n for n in NUMBERS if any(row[n.name] is not None for row in facts["heads"])]
    more = ("importance", "lost") if "worth" in facts else ()
    table = _table("head", *(number.heading for number in shown), *more, "cl.")
    for row in facts["heads"]:
        cells = [_figure(row[number.name], 2) for number in shown]
        cells += [_figure(row[name], 4, sign=name == "lost") for name in more]
        table.add_row(f"{row['layer']}-{row['head']}", *cells, str(row["cluster"]))
    return table


def _figure(value: float | None, digits: int, *, sign: bool = False) -> str:
    if value is None:
        return ""
    return f"{value:+.{digits}f}" if sign else f"{value:.{digits}f}"


def _percent(value: float | None) -> str:
    return "" if value is None else f"{100 * value:.1f}"


def _print_treebank(console: Console, found: dict[str, Any]) -> None:
    left = f", {found['left_out']:,} too long and left out" if found["left_out"] else ""
    print(
        f"\n{found['sentences']:,} sentences of {found['source']}{left}. % of a relation's words "
        "whose head the best attention head finds;\nhalves: chosen on one half of the sentences, "
        "measured on the other"
    )
    table = _table(
        "relation", "words", "head", "", "%", "halves", "offset", "%", "halves", text=1
    )  # fmt: skip
    for row in found["relations"]:
        head, offset = row["head"], row["offset"]
        table.add_row(
            row["relation"], f"{row['count']:,}", head["name"], _MARKS[head["direction"]],
            _percent(head["accuracy"]), _percent(head["held_out"]), offset["name"],
            _percent(offset["accuracy"]), _percent(offset["held_out"]),
        )  # fmt: skip
    _print(console, table)
    if coreference := found.get("coreference"):
        print(
            f"\nThe head of a mention looks back at one of the same entity, "
            f"{coreference['mentions']:,} mentions: head {coreference['head']} "
            f"{_percent(coreference['accuracy'])} %; the nearest mention "
            f"{_percent(coreference['nearest'])} %, the nearest with the same word "
            f"{_percent(coreference['same_word'])} %."
        )
        if coreference["truncated"]:
            print(
                f"{coreference['truncated']:,} of {coreference['documents']:,} documents are "
                "longer than the model reads and were cut; "
                f"{coreference['mentions_left_out']:,} mentions are left out."
            )
    if probes := found.get("probes"):
        print(
            f"\nClassifiers trained on {probes['sentences']:,} sentences of {probes['source']}; "
            "UAS: % of words whose head is found"
        )
        table = _table("reads", "UAS", "95 % interval")
        for row in probes["scores"]:
            interval = f"{_percent(row['low'])}-{_percent(row['high'])}"
            table.add_row(row["kind"], _percent(row["uas"]), interval)
        _print(console, table)
