"""filbert info: facts of one model, or the differences of two."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import Parameter

from filbert.cli.arguments import AsJson, ModelName
from filbert.cli.output import print_json, print_table
from filbert.errors import printable

if TYPE_CHECKING:
    from rich.console import Console
    from rich.text import Text

    from filbert.checkpoints.differences import GroupDifference, ModelDifferences, Pair

# Entries of filbert.json that `filbert convert --to int8` writes, without the metrics.
_INT8 = ("float_layers", "layers", "cosine", "worst", "loss")
NOTHING = "–"
_BAR = 12
_LONG = 64
_EMPTY: tuple[Pair, ...] = ((None, None), ([], []))
# Sections of a comparison in their order: attribute and heading.
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
    from filbert.checkpoints.opening import find_model, is_google

    if other is not None:
        result = differences((model, other), (find_model(model), find_model(other)))
        print_json(result.to_json()) if json else print_differences(result, Console(emoji=False))
        return
    facts, place = _facts(model), find_model(model)
    if is_google(place):
        from filbert.checkpoints import google

        facts["tensors"] = google.tensor_report(place)
    if json:
        print_json(facts)
        return
    tensors = facts.pop("tensors", [])
    cells = {name: "" if value is None else _cell(value) for name, value in facts.items()}
    rows = [(name.replace("_", " "), cell) for name, cell in cells.items() if cell]
    print_table(("", ""), rows, texts=(0, 1))
    if tensors:
        _print_tensors(tensors)


def _print_tensors(tensors: list[dict[str, Any]]) -> None:
    from rich.console import Console

    console = Console(emoji=False)
    if not console.is_terminal:
        console.width = 160  # a file or a pipe has no width, and names must not wrap
    print(f"{len(tensors)} tensors")
    rows = []
    for row in tensors:
        shape = " x ".join(map(str, row["shape"])) or "scalar"
        rows.append((printable(row["name"], 200), shape, row["dtype"], row["becomes"]))
    headings = ("tensor", "shape", "dtype", "becomes")
    print_table(headings, rows, texts=(0, 1, 2, 3), console=console)


def _cell(value: Any, before: str = "") -> str:
    """Return a value as text; entries of nested objects have their whole names."""
    if isinstance(value, dict):
        cells = (
            _cell(entry, f"{before}{printable(name, 500)} ")
            for name, entry in value.items()
            if entry is not None
        )
        return ", ".join(cell for cell in cells if cell)
    if isinstance(value, list | tuple) and not before:
        return "\n".join(printable(str(item), 500) for item in value)
    if isinstance(value, float):
        return f"{before}{value:.6g}"
    is_count = isinstance(value, int) and not isinstance(value, bool) and not before
    return before + (f"{value:,}" if is_count else printable(str(value), 500))


def _facts(name: str) -> dict[str, Any]:
    from filbert.checkpoints.checkpoint import meta_model
    from filbert.checkpoints.onnx_folder import is_export
    from filbert.checkpoints.opening import find_model
    from filbert.inference.predictor import Predictor

    exported = is_export(find_model(name))
    predictor = Predictor.load(name, device="cpu", backend="onnxruntime" if exported else "torch")
    checkpoint, tokenizer = predictor.checkpoint, predictor.tokenizer
    assert checkpoint is not None
    task = predictor.task
    stored = checkpoint.filbert or {}
    int8 = stored.get("int8")
    int8 = int8 if isinstance(int8, dict) else {}
    export = {k: v for k, v in stored.get("onnx", {}).items() if k not in ("model", "data")}
    # The weights of an exported model are in its graph.
    count = len(checkpoint.labels) if checkpoint.labels else None
    model = meta_model(checkpoint.config, checkpoint.head, count) if exported else predictor.model
    return {
        "model": name,
        "folder": str(checkpoint.source) if checkpoint.source else None,
        "family": checkpoint.family,
        "parameters": sum(p.numel() for p in model.parameters()),
        "encoder_parameters": sum(p.numel() for p in model.encoder.parameters()),
        "attention": "causal: every token attends to itself and those before it"
        if checkpoint.config.attention.causal
        else None,
        "head": checkpoint.head,
        "task": task.spec.name if task else None,
        "labels": list(checkpoint.labels or ()),
        "problem_type": checkpoint.problem_type,
        "thresholds": stored.get("task", {}).get("thresholds"),
        "temperature": stored.get("task", {}).get("temperature"),
        "cleaning": stored.get("task", {}).get("clean"),
        "max_length": predictor.max_length,
        "tokenizer": {
            "kind": tokenizer.kind,
            "entries": tokenizer.vocab_size,
            "lowercase": tokenizer.lowercase,
            "sha256": tokenizer.fingerprint,
        },
        "sentence_vectors": predictor.sentence_vectors.facts(),
        "config": checkpoint.config.settings(),
        "metrics": stored.get("metrics"),
        "int8": {key: int8[key] for key in _INT8 if key in int8} or None,
        "export": export if exported else None,
        "run": _run(stored),
        "notes": list(checkpoint.notes),
    }


def _run(stored: dict[str, Any]) -> dict[str, Any] | None:
    """Return the base model, data and time of a training run from its filbert.json."""
    options, data = stored.get("options"), stored.get("data")
    if not isinstance(options, dict) or not isinstance(data, dict):
        return None
    train = data.get("train") or {}
    base = stored.get("base_model") or {}
    versions = stored.get("versions") or {}
    return {
        "command": stored.get("command"),
        "started from": base.get("name") or options.get("model"),
        "trained on": train.get("path"),
        "rows": train.get("rows"),
        "tokens": stored.get("tokens") or train.get("tokens"),
        "steps": stored.get("steps"),
        "seconds": stored.get("seconds"),
        "finished": stored.get("finished"),
        "seed": options.get("seed"),
        "filbert": stored.get("filbert"),
        "commit": stored.get("commit"),
        "torch": versions.get("torch"),
    }


def print_differences(result: ModelDifferences, console: Console) -> None:
    """Print what the models are, what differs, their metrics, and the weights by group."""
    from rich.text import Text

    rows = _rows({k: pair for k, pair in result.about.items() if pair not in _EMPTY}, mark=True)
    for attribute, heading in _SECTIONS:
        pairs = _important(attribute, getattr(result, attribute))
        rows += _section(heading, _rows(pairs))
    for split, metrics in result.metrics.items():
        numbers = {
            name: pair for name, pair in metrics.items() if any(isinstance(v, float) for v in pair)
        }
        rows += _section(f"metrics on {split}", _rows(numbers, mark=True))
    names = zip("AB", result.names, strict=True)
    headings = ("", *(printable(f"{letter}  {name}", 500) for letter, name in names))
    print_table(headings, rows, texts=(0, 1, 2), console=console)
    console.print()
    _print_weights(result.groups, console)
    for group in result.groups:
        for sentence in _not_compared(group):
            console.print(Text(printable(sentence, 500)), style="yellow", soft_wrap=True)
    console.print(Text(verdict(result)), style="bold", soft_wrap=True)


def _important(section: str, pairs: Mapping[str, Pair]) -> dict[str, Pair]:
    """Return all entries, or the few that matter if only one of the two models has any."""
    ends = _WHEN_ALONE.get(section)
    is_alone = any(all(pair[side] is None for pair in pairs.values()) for side in (0, 1))
    return {k: pair for k, pair in pairs.items() if not is_alone or not ends or k.endswith(ends)}


def _section(heading: str, rows: list[tuple[Text, ...]]) -> list[tuple[Text, ...]]:
    """Return rows under an empty line and a heading; none without rows."""
    from rich.text import Text

    title = Text(printable(heading), style="bold")
    return [(Text(), Text(), Text()), (title, Text(), Text()), *rows] if rows else []


def _rows(pairs: Mapping[str, Pair], *, mark: bool = False) -> list[tuple[Text, ...]]:
    """Return a row for each pair; with `mark`, values that differ are bold."""
    from rich.text import Text

    rows = []
    for name, pair in pairs.items():
        style = "bold" if mark and pair[0] != pair[1] else ""
        cells = (Text(shown(value), style=style) for value in pair)
        rows.append((Text(printable(name.replace("_", " "), 500), style="dim"), *cells))
    return rows


def verdict(result: ModelDifferences) -> str:
    """Return the result of the comparison as a sentence."""
    if result.same_answers:
        return "Weights, tokenizer, sizes and task are the same, and so are the predictions."
    tensors = sum(
        group.equal + len(group.different) + len(group.shapes) + sum(map(len, group.only))
        for group in result.groups
    )
    equal = sum(group.equal for group in result.groups)
    weights = (
        "the same weights" if result.same_weights else f"{equal:,} of {tensors:,} tensors are equal"
    )
    others = [name.replace("_", " ") for name in result.unlike]
    others += [heading for attribute, heading in _SECTIONS[:3] if getattr(result, attribute)]
    verb = "differ" if len(others) > 1 or others == ["sizes"] else "differs"
    rest = f"{', '.join(others)} {verb}" if others else "tokenizer, sizes and task are the same"
    return f"{weights[0].upper()}{weights[1:]}; {rest}."


def shown(value: Any) -> str:
    """Return a value as one cell of a table."""
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
        value = [f"{name} {shown(item)}" for name, item in value.items()]
    if isinstance(value, list | tuple):
        value = ", ".join(shown(item) for item in value)
    text = printable(str(value), 200)
    is_digest = len(text) == 64 and not text.strip("0123456789abcdef")
    if is_digest:
        return text[:12]
    return text if len(text) <= _LONG else f"{text[: _LONG - 1]}…"


def _print_weights(groups: list[GroupDifference], console: Console) -> None:
    """Print how many tensors are equal in each group, and how far the others differ."""
    from rich.text import Text

    most = max((group.relative or 0.0 for group in groups), default=0.0)
    rows = []
    for group in groups:
        compared = bool(group.equal or group.different)
        relative = NOTHING if group.relative is None else f"{group.relative:.2%}"
        share = (group.relative or 0.0) / most if most else 0.0
        others = len(group.different) + len(group.shapes) + sum(map(len, group.only))
        rows.append(
            (
                group.name,
                str(group.equal),
                str(others),
                f"{group.largest:.3g}" if compared else NOTHING,
                relative if compared else NOTHING,
                Text("█" * max(1, round(_BAR * share)) if share else "", style="cyan"),
            )
        )
    headings = ("weights", "equal", "different", "largest difference", "relative", "")
    print_table(headings, rows, texts=(0, 5), console=console)


def _not_compared(group: GroupDifference) -> list[str]:
    """Return sentences about tensors that could not be compared."""
    sentences = [
        f"{name}: {_size(first)} in A, {_size(second)} in B"
        for name, (first, second) in group.shapes.items()
    ]
    for letter, names in zip("AB", group.only, strict=True):
        if names:
            more = f" and {len(names) - 3} more" if len(names) > 3 else ""
            sentences.append(f"only in {letter}: {', '.join(names[:3])}{more}")
    return sentences


def _size(shape: tuple[int, ...]) -> str:
    return " x ".join(map(str, shape)) or "a single number"
