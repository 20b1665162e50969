"""filbert info."""

from __future__ import annotations

from typing import Any

# Entries of filbert.json that `filbert convert --to int8` writes, without the metrics.
_INT8 = ("float_layers", "layers", "cosine", "worst", "loss")


def info(model: str, other: str | None = None, /, *, json: bool = False) -> None:
    """Describe a checkpoint and its training; of two, list the differences.

    Parameters
    ----------
    model:
        folder, checkpoint prefix, built-in name or Hub id.
    other:
        a second one to compare with: sizes, tokenizer, task, options, data, metrics, weights.
    json:
        print JSON.
    """
    from rich.console import Console
    from rich.table import Table

    from filbert.checkpoints.opening import find_model, is_google
    from filbert.cli.flags import print_json
    from filbert.errors import printable

    if other is not None:
        _compare(model, other, json)
        return
    facts, place = _facts(model), find_model(model)
    if is_google(place):
        from filbert.checkpoints import google

        facts["tensors"] = google.tensor_report(place)
    if json:
        print_json(facts)
        return
    tensors = facts.pop("tensors", [])
    grid = Table(show_header=False, box=None, pad_edge=False)
    for column in ("name", "value"):
        grid.add_column(column, overflow="fold")
    for name, value in facts.items():
        if cell := "" if value is None else _cell(value):
            grid.add_row(name.replace("_", " "), cell)
    console = Console(emoji=False)
    console.print(grid, markup=False, highlight=False)
    if not console.is_terminal:
        console.width = 160  # a file or a pipe has no width, and names must not be folded
    table = Table(box=None, pad_edge=False, title_justify="left", title=f"{len(tensors)} tensors")
    for column in ("tensor", "shape", "dtype", "becomes"):
        table.add_column(column, overflow="fold")
    for row in tensors:
        shape = " x ".join(map(str, row["shape"])) or "scalar"
        table.add_row(printable(row["name"], 200), shape, row["dtype"], row["becomes"])
    if tensors:
        console.print(table, markup=False, highlight=False)


def _compare(first: str, second: str, json: bool) -> None:
    from rich.console import Console

    from filbert.checkpoints.differences import differences
    from filbert.checkpoints.opening import find_model
    from filbert.cli.comparison import print_differences
    from filbert.cli.flags import print_json

    result = differences((first, second), (find_model(first), find_model(second)))
    if json:
        print_json(result.to_json())
    else:
        print_differences(result, Console(emoji=False))


def _cell(value: Any, before: str = "") -> str:
    """Return a value as text; entries of nested objects have their whole names."""
    from filbert.errors import printable

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
