"""filbert info."""

from __future__ import annotations

import dataclasses
from typing import Any


def info(model: str, /, *, json: bool = False) -> None:
    """Say what a checkpoint is: family, sizes, tokenizer, task, labels.

    Parameters
    ----------
    model:
        folder, built-in name or Hub id.
    json:
        print JSON.
    """
    from rich.console import Console
    from rich.table import Table

    from filbert.cli.flags import print_json

    facts = _facts(model)
    if json:
        print_json(facts)
        return
    table = Table(show_header=False, box=None, pad_edge=False)
    for name, value in facts.items():
        if name == "config":
            value = ", ".join(f"{k} {v}" for k, v in value.items() if v is not None)
        if isinstance(value, list | tuple):
            value = "\n".join(str(item) for item in value)
        if isinstance(value, int) and not isinstance(value, bool):
            value = f"{value:,}"
        if value not in (None, ""):
            table.add_row(name.replace("_", " "), str(value))
    Console().print(table, markup=False, highlight=False)


def _facts(name: str) -> dict[str, Any]:
    from filbert.predict import Predictor

    predictor = Predictor.load(name, device="cpu")
    checkpoint, tokenizer = predictor.checkpoint, predictor.tokenizer
    assert checkpoint is not None
    model = predictor.model
    task = predictor.task
    stored = checkpoint.filbert or {}
    return {
        "model": name,
        "folder": str(checkpoint.source) if checkpoint.source else None,
        "family": checkpoint.family,
        "parameters": sum(p.numel() for p in model.parameters()),
        "encoder_parameters": sum(p.numel() for p in model.encoder.parameters()),
        "head": checkpoint.head,
        "task": task.name if task else None,
        "labels": list(checkpoint.labels or ()),
        "problem_type": checkpoint.problem_type,
        "thresholds": stored.get("task", {}).get("thresholds"),
        "temperature": stored.get("task", {}).get("temperature"),
        "max_length": predictor.max_length,
        "tokenizer": {
            "kind": tokenizer.kind,
            "entries": tokenizer.vocab_size,
            "lowercase": tokenizer.lowercase,
            "sha256": tokenizer.fingerprint,
        },
        "sentence_vectors": dataclasses.asdict(predictor.sentence_vectors),
        "config": dataclasses.asdict(checkpoint.config),
        "metrics": stored.get("metrics"),
        "notes": list(checkpoint.notes),
    }
