"""What filbert.json says of the run that made a model: enough to judge it and to replay it.

A model folder travels, so nothing in it tells of the machine's folders, and no text of the data is
in it; run.json, which stays with the run, holds the paths as they were given.
"""

from __future__ import annotations

from typing import Any

from filbert.files import portable

# What is told, in this order.
_TOLD = (
    "filbert", "commit", "command", "name", "started", "finished", "seconds", "status", "steps",
    "tokens", "options", "versions", "device", "precision", "base_model", "tokenizer", "data",
    "metrics", "best", "bf16_loss", "int8_loss",
    "teacher",
)  # fmt: skip
# Options that name files or folders.
PATHS = (
    "train", "dev", "test", "out", "model", "corpus", "tokenizer", "new_tokens", "teacher",
    "student", "extra", "augment_with", "cache",
)  # fmt: skip


def story_of(run: dict[str, Any]) -> dict[str, Any]:
    """The part of run.json that a model folder takes along.

    Args:
        run: the content of run.json after the last step.
    """
    story = {key: run[key] for key in _TOLD if key in run}
    story["options"] = {
        name: portable(value) if name in PATHS else value for name, value in run["options"].items()
    }
    story["model"] = {key: run["model"][key] for key in ("family", "parameters", "trained")}
    story["data"] = {
        split: {name: value for name, value in facts.items() if name != "lengths"}
        | {"path": portable(facts["path"])}
        for split, facts in run["data"].items()
    }
    if run.get("base_model") is not None:
        base = run["base_model"]
        story["base_model"] = base | {"name": portable(base["name"])}
    return story
