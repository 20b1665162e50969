"""filbert info: facts of one model, or the differences of two."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import Parameter

from filbert.cli.arguments import AsJson, ModelName
from filbert.cli.output import print_json, print_table
from filbert.errors import printable

if TYPE_CHECKING:
    from rich.console import Console


NOTHING = "–"
_LONG = 64


def info(
    model: ModelName,
    other: Annotated[
        str | None,
        Parameter(help="a second model: list what differs in sizes, task, data and weights."),
    ] = None,
    /,
    *,
    json: AsJson = False,
) -> None:
    """Describe a checkpoint and its training; of two, list the differences."""
    from rich.console import Console

    from filbert.checkpoints.differences import differences
    from filbert.checkpoints.opening import find_model
    from filbert.inference.predictor import model_facts

    console = Console(emoji=False)
    if other is not None:
        result = differences((model, other), (find_model(model), find_model(other)))
        print_json(result) if json else print_differences(result, console)
        return
    facts = model_facts(model)
    if json:
        print_json(facts)
        return
    tensors = facts.pop("tensors", [])
    rows = [(n.replace("_", " "), shown(v, 500)) for n, v in facts.items() if v not in (None, [])]
    print_table(("", ""), rows, texts=(0, 1))
    if tensors:
        if not console.is_terminal:
            console.width = 160  # a file or a pipe has no width, and names must not wrap
        print(f"{len(tensors)} tensors")
        table = [
            (
                printable(row["name"], 200),
                " x ".join(map(str, row["shape"])) or "scalar",
                row["dtype"],
                row["becomes"],
            )
            for row in tensors
        ]
        headings = ("tensor", "shape", "dtype", "becomes")
        print_table(headings, table, texts=(0, 1, 2, 3), console=console)


def print_differences(result: dict[str, Any], console: Console) -> None:
    """Print the values that differ, the metrics, and the weights by part."""
    from rich.text import Text

    names = zip("AB", result["names"], strict=True)
    headings = ("", *(printable(f"{letter}  {name}", 500) for letter, name in names))
    pairs = {**result["values"], **result["metrics"]}
    rows = [(printable(name, 500), *map(shown, pair)) for name, pair in pairs.items()]
    print_table(headings, rows, texts=(0, 1, 2), console=console)
    console.print()
    weights = [
        (part["name"], str(part["equal"]), str(len(part["different"])), f"{part['largest']:.3g}")
        for part in result["tensors"]
    ]
    columns = ("weights", "equal", "different", "largest difference")
    print_table(columns, weights, texts=(0,), console=console)
    is_same = result["same_answers"]
    is_same = result["same_answers"]
    verdict = "The predictions are the same." if is_same else "The predictions differ."
    if result["same_weights"] and not is_same:
        verdict = "The weights are the same; other values that decide predictions differ."
    console.print(Text(verdict), style="bold", soft_wrap=True)


def shown(value: Any, limit: int = _LONG) -> str:
    """Return a value as one cell of a table, with at most `limit` characters."""
    if value is None or value in ([], ()):
        return NOTHING
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float) and abs(value) >= 1000 and value.is_integer():
        value = int(value)
    if isinstance(value, float):
        return f"{value:.4f}" if 1e-3 <= abs(value) < 1e6 or value == 0 else f"{value:.3g}"
    if isinstance(value, int):
        return f"{value:,}"
    if isinstance(value, dict):
        value = [f"{name} {shown(v, limit)}" for name, v in value.items() if v is not None]
    if isinstance(value, list | tuple):
        value = ", ".join(item if isinstance(item, str) else shown(item, limit) for item in value)
    text = printable(str(value), 10 * limit)
    is_digest = len(text) == 64 and not text.strip("0123456789abcdef")
    if is_digest:
        return text[:12]
    return text if len(text) <= limit else f"{text[: limit - 1]}…"
