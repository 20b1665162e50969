"""The model folder that a run leaves: Hugging Face layout, with filbert.json and a model card."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from filbert.formats import huggingface
from filbert.formats.checkpoint import Checkpoint
from filbert.formats.files import replace_folder
from filbert.model.heads import Model
from filbert.tasks.base import Task
from filbert.text.tokenizer import Tokenizer


def save_model(
    folder: Path,
    model: Model,
    tokenizer: Tokenizer,
    checkpoint: Checkpoint,
    task: Task,
    story: dict[str, Any],
) -> None:
    """Write all beside `folder`, then swap it in: a crash or a full disk leaves the old as it was.

    Args:
        folder: the model folder.
        model: the weights to save.
        tokenizer: saved beside them.
        checkpoint: what the model was built from: family, configuration, labels.
        task: goes into the model card.
        story: goes into filbert.json, with the digests of the weight files.

    Raises:
        InputError: the disk is full.
    """
    checkpoint.tensors = {k: v.detach().cpu() for k, v in model.state_dict().items()}
    with replace_folder(folder) as new:
        digests = huggingface.write(checkpoint, new)
        tokenizer.save(new)
        story = story | {"files": {name: {"sha256": digest} for name, digest in digests.items()}}
        (new / "filbert.json").write_text(json.dumps(story, indent=2, default=list) + "\n", "utf-8")
        (new / "README.md").write_text(model_card(task, story), "utf-8")


def model_card(task: Task, story: dict[str, Any]) -> str:
    """A model card with YAML front matter, as model hubs read it."""
    options, metrics = story["options"], story["metrics"]
    lines = ["---", "library_name: filbert", "pipeline_tag: text-classification"]
    lines += [f"base_model: {json.dumps(str(options['model']))}", "---", ""]
    lines += [f"# {task.name}: {', '.join(task.labels or ())}", ""]
    lines += [f"Fine-tuned from `{options['model']}` with filbert {story['filbert']}.", ""]
    for split, figures in metrics.items():
        shown = {k: v for k, v in figures.items() if isinstance(v, float)}
        lines += [f"| {split} | |", "|---|---|"]
        lines += [f"| {name} | {value:.4f} |" for name, value in shown.items()]
        lines.append("")
    lines += [
        f"Texts longer than {story['max_length']} tokens are cut. The rest is in `filbert.json`.",
        "",
    ]
    return "\n".join(lines)
