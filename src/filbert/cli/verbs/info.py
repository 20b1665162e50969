"""filbert info."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rich.console import Console


def info(model: str, other: str | None = None, /, *, json: bool = False) -> None:
    """Say what a checkpoint is, and how it came to be; of two, what differs between them.

    Parameters
    ----------
    model:
        folder, checkpoint prefix, built-in name or Hub id.
    other:
        a second one to compare with: sizes, tokenizer, task, options, data, figures, weights.
    json:
        print JSON.
    """
    from rich.console import Console
    from rich.table import Table

    from filbert.cli.flags import print_json

    if other is not None:
        _compare(model, other, json)
        return
    facts = _facts(model)
    tensors = tensor_report(model)
    if json:
        print_json(facts if tensors is None else {**facts, "tensors": tensors})
        return
    table = Table(show_header=False, box=None, pad_edge=False)
    for column in ("name", "value"):
        table.add_column(column, overflow="fold")
    for name, value in facts.items():
        cell = "" if value is None else _cell(value)
        if cell:
            table.add_row(name.replace("_", " "), cell)
    console = Console(emoji=False)
    console.print(table, markup=False, highlight=False)
    if tensors is not None:
        _print_tensors(tensors, console)


def tensor_report(name: str) -> list[dict[str, Any]] | None:
    """What becomes of each tensor of a TensorFlow checkpoint; None for other formats."""
    from filbert.checkpoints.opening import find_model, is_google

    place = find_model(name)
    if not is_google(place):
        return None
    from filbert.checkpoints import google

    return google.tensor_report(place)


def _print_tensors(tensors: list[dict[str, Any]], console: Console) -> None:
    from rich.table import Table

    from filbert.errors import printable

    table = Table(box=None, pad_edge=False, title_justify="left", title=f"{len(tensors)} tensors")
    for column in ("tensor", "shape", "dtype", "becomes"):
        table.add_column(column, overflow="fold")
    for row in tensors:
        shape = " x ".join(map(str, row["shape"])) or "scalar"
        table.add_row(printable(row["name"], 200), shape, row["dtype"], row["becomes"])
    if not console.is_terminal:
        console.width = 160  # a file or a pipe has no width; names are not to be broken there
    console.print(table, markup=False, highlight=False)


def _compare(first: str, second: str, json: bool) -> None:
    from rich.console import Console

    from filbert.checkpoints.differences import differences
    from filbert.checkpoints.opening import find_model
    from filbert.cli.comparison import print_differences
    from filbert.cli.flags import print_json

    found = differences((first, second), (find_model(first), find_model(second)))
    if json:
        print_json(found.to_json())
    else:
        print_differences(found, Console(emoji=False))


def _flat(content: dict[str, Any], before: str = "") -> list[tuple[str, Any]]:
    """Entries of objects within objects, by their whole names."""
    found: list[tuple[str, Any]] = []
    for name, value in content.items():
        whole = f"{before}{name}"
        found += _flat(value, f"{whole} ") if isinstance(value, dict) else [(whole, value)]
    return found


def _cell(value: Any) -> str:
    if isinstance(value, dict):
        entries = [(_figure(k), _figure(v)) for k, v in _flat(value) if v is not None]
        return ", ".join(f"{k} {v}" for k, v in entries)
    if isinstance(value, list | tuple):
        return "\n".join(map(_figure, value))
    is_count = isinstance(value, int) and not isinstance(value, bool)
    return f"{value:,}" if is_count else _figure(value)


def _figure(value: Any) -> str:
    """A number, or a text without the control characters that a stranger's file may hold."""
    from filbert.errors import printable

    return f"{value:.6g}" if isinstance(value, float) else printable(str(value), 500)


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
    export = {k: v for k, v in stored.get("onnx", {}).items() if k not in ("model", "data")}
    # The numbers of an exported model are in its graph, but there are as many.
    count = len(checkpoint.labels) if checkpoint.labels else None
    model = meta_model(checkpoint.config, checkpoint.head, count) if exported else predictor.model
    return {
        "model": name,
        "folder": str(checkpoint.source) if checkpoint.source else None,
        "family": checkpoint.family,
        "parameters": sum(p.numel() for p in model.parameters()),
        "encoder_parameters": sum(p.numel() for p in model.encoder.parameters()),
        "attention": "causal: every token sees itself and those before it"
        if checkpoint.config.attention.causal
        else None,
        "head": checkpoint.head,
        "task": task.name if task else None,
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
        "int8": _int8(stored),
        "export": export if exported else None,
        "run": _run(stored),
        "notes": list(checkpoint.notes),
    }


def _int8(stored: dict[str, Any]) -> dict[str, Any] | None:
    """What `filbert convert --to int8` recorded, without the metrics."""
    noted = stored.get("int8")
    if not isinstance(noted, dict):
        return None
    return {key: noted.get(key) for key in ("float_layers", "layers", "cosine", "worst", "loss")}


def _run(stored: dict[str, Any]) -> dict[str, Any] | None:
    """From what, when and on what a model was trained, out of its filbert.json."""
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
