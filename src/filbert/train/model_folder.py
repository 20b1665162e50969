"""Write the model folder of a run: Hugging Face files, filbert.json and the model card.

A card contains no text of the data set and no folder name of the machine. Its text is in
templates/card.md; this module computes the metadata and tables from filbert.json.
"""

from __future__ import annotations

import json
import math
import re
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from huggingface_hub.repocard_data import EvalResult, ModelCardData
from jinja2 import Environment, PackageLoader
from torch import Tensor

from filbert.checkpoints import adapters, huggingface
from filbert.checkpoints.checkpoint import Checkpoint
from filbert.checkpoints.families import STATIC
from filbert.checkpoints.sentence_transformers import SentenceVectors, write_sentence_vectors
from filbert.errors import printable
from filbert.files import read_json, replace_folder, sha256_of, write_json
from filbert.text.tokenizer import Tokenizer
from filbert.train.distill_options import DistillOptions
from filbert.train.options import (
    FREE,
    PATHS,
    BaseModelOptions,
    FinetuneOptions,
    names_of,
    options_in,
)
from filbert.train.pretrain_options import PretrainOptions

# The options of each verb, which have the defaults.
_OPTIONS = {"finetune": FinetuneOptions, "pretrain": PretrainOptions, "distill": DistillOptions}
# Names of the tasks on the Hugging Face Hub.
_PIPELINES = {
    "classification": "text-classification",
    "regression": "text-classification",
    "tagging": "token-classification",
    "span_qa": "question-answering",
    "multiple_choice": "multiple-choice",
    "embedding": "sentence-similarity",
}
_COUNTS = ("rows", "documents", "sentences", "sequences", "tokens", "truncated")
_MOST_LABELS = 20
# File names that the Hub accepts as names of data sets.
_DATASET = re.compile(r"[A-Za-z0-9][\w.-]{0,95}", re.ASCII)
# Number of digits of a hash that are shown.
_SHORT = 12


def save_model(
    folder: Path,
    checkpoint: Checkpoint,
    tokenizer: Tokenizer,
    provenance: dict[str, Any],
    *,
    pooling: str | None = None,
    generator: Checkpoint | None = None,
) -> None:
    """Write a model folder, and move it into place when it is complete; an error leaves an old one.

    Args:
        provenance: For filbert.json; digests of the weight files are added.
        pooling: Makes sentence vectors of tokens, where there is no trained head.
        generator: Of replaced-token detection; it is saved in a subfolder.

    Raises:
        InputError: The disk is full.
    """
    with replace_folder(folder) as new:
        digests = huggingface.write(checkpoint, new)
        huggingface.write_tokenizer(tokenizer, checkpoint, new)
        files = {name: {"sha256": digest} for name, digest in digests.items()}
        text = json.dumps(provenance | {"files": files}, indent=2, default=list)
        (new / "filbert.json").write_text(text + "\n", "utf-8")
        # Of the written text, in which tuples are lists.
        (new / "README.md").write_text(card(json.loads(text)), "utf-8")
        if pooling is not None:
            # "cls" of a causal encoder is the last token; other tools call that "last".
            is_last = pooling == "cls" and checkpoint.config.attention.causal
            vectors = SentenceVectors(
                "last" if is_last else pooling, max_length=provenance["max_length"]
            )
            is_static = checkpoint.family == STATIC
            write_sentence_vectors(new, vectors, checkpoint.config.hidden_size, static=is_static)
        if generator is not None:
            huggingface.write(generator, new / "generator")
            tokenizer.save(new / "generator")


def save_adapter(
    run: Path, learned: dict[str, Tensor], checkpoint: Checkpoint, base: BaseModelOptions
) -> None:
    """Write the adapter of a run next to its model folder, in PEFT's layout.

    Except for weights and card it is a copy of the model folder: with labels, task and tokenizer.
    `learned` has the tensors that learned, by the names of Model.state_dict().
    """
    assert base.lora is not None
    unlike = shutil.ignore_patterns("*.safetensors*", "README.md")
    with replace_folder(run / "adapter") as new:
        shutil.copytree(run / "model", new, ignore=unlike, dirs_exist_ok=True)
        adapters.write(new, checkpoint, learned, rank=base.lora, name=base.name)
        files = {n: {"sha256": sha256_of(new / n)} for n in ("config.json", *adapters.FILES)}
        write_json(new / "filbert.json", read_json(new / "filbert.json") | {"files": files})


# The model card


def card(recorded: Mapping[str, Any]) -> str:
    """Return the README.md of a model, from the content of its filbert.json."""
    # An option or count that was not recorded is empty.
    environment = Environment(loader=PackageLoader("filbert.train"), trim_blocks=True)
    environment.filters |= {"code": code, "printable": printable}
    task, options = recorded.get("task"), recorded["options"]
    if task is not None:
        kind = task["name"].rpartition(":")[2]
        title, pipeline = kind.replace("_", " "), _PIPELINES.get(kind)
    else:
        kind = title = "distillation" if "teacher" in recorded else "pre-training"
        fills = "metrics" in recorded.get("teacher", ()) or options.get("objective") == "mlm"
        pipeline = "fill-mask" if fills else None
    base = recorded.get("base_model") or {}
    return environment.get_template("card.md").render(
        recorded,
        front=_metadata(recorded, title, pipeline).to_yaml(),
        kind=kind,
        title=title,
        pipeline=pipeline,
        data_rows=_data_rows(recorded["data"]),
        metric_rows=_metric_rows(recorded["metrics"]),
        changed=_changed(options, _OPTIONS[recorded["command"]]),
        fitted=_fitted(task or {}),
        seeds=_seeds(recorded.get("seeds") or {}),
        has_license=bool(options.get("license") or base.get("license")),
        most=_MOST_LABELS,
        commit=(recorded.get("commit") or "")[:_SHORT],
        versions=", ".join(f"{name} {one}" for name, one in recorded["versions"].items()),
    )


def _metadata(recorded: Mapping[str, Any], task: str, pipeline: str | None) -> ModelCardData:
    """Return the metadata at the top of a card. Source: huggingface.co/docs/hub/model-cards."""
    base, options = recorded.get("base_model") or {}, recorded["options"]
    languages = options.get("language")
    splits = {name: facts for name, facts in recorded["data"].items() if slug(facts["path"])}
    results = [
        EvalResult(
            task_type=pipeline or "feature-extraction",
            task_name=task,
            dataset_type=str(slug(splits[split]["path"])),
            dataset_name=f"{splits[split]['path']} ({split})",
            dataset_split=split,
            dataset_revision=splits[split]["sha256"][:_SHORT],
            metric_type=name,
            metric_name=name.replace("_", " "),
            metric_value=round(value, 6),
        )
        for split, metrics in recorded["metrics"].items()
        for name, value in _finite(metrics).items()
        # A decision threshold does not measure quality.
        if split in splits and "thresh" not in name
    ]
    return ModelCardData(
        license=options.get("license") or base.get("license"),
        language=list(names_of(languages)) if languages else base.get("language"),
        library_name="filbert",
        pipeline_tag=pipeline,
        base_model=base.get("hub_id"),
        base_model_relation="finetune" if base.get("hub_id") else None,
        datasets=list(dict.fromkeys(str(slug(f["path"])) for f in splits.values())) or None,
        metrics=list(dict.fromkeys(result.metric_type for result in results)) or None,
        tags=list(dict.fromkeys(["filbert", task.replace(" ", "-"), recorded["model"]["family"]])),
        model_name=recorded["name"] if results else None,
        eval_results=results or None,
    )


def code(text: object) -> str:
    """Return a name as a Markdown code span; characters that could end it are replaced."""
    return "`" + printable(str(text)).replace("`", "'").replace("|", "\\|") + "`"


def slug(path: str) -> str | None:
    """Return the file name of a path if the Hub accepts it as the name of a data set."""
    name = path.replace("\\", "/").rstrip("/").rpartition("/")[2]
    return name if _DATASET.fullmatch(name) else None


def _finite(metrics: Mapping[str, Any]) -> dict[str, float]:
    return {k: v for k, v in metrics.items() if isinstance(v, float) and math.isfinite(v)}


def _metric_rows(metrics: Mapping[str, Mapping[str, Any]]) -> dict[str, dict[str, str]]:
    """Return the metrics that are finite numbers, by name and split."""
    rows: dict[str, dict[str, str]] = {}
    for split, values in metrics.items():
        for name, value in _finite(values).items():
            rows.setdefault(name.replace("_", " "), {})[split] = f"{value:.4f}"
    return rows


def _data_rows(data: Mapping[str, Mapping[str, Any]]) -> dict[str, dict[str, str]]:
    """Return files, hashes and counts, by title and split."""
    rows = {
        "file": {name: code(facts["path"]) for name, facts in data.items()},
        "sha256": {name: code(facts["sha256"][:_SHORT]) for name, facts in data.items()},
    }
    for key in _COUNTS:
        counts = {name: f"{facts[key]:,}" for name, facts in data.items() if key in facts}
        if counts:
            rows["rows cut for length" if key == "truncated" else key] = counts
    labels = {name: facts.get("label_counts") or {} for name, facts in data.items()}
    for label in list(dict.fromkeys(one for own in labels.values() for one in own))[:_MOST_LABELS]:
        rows[f"label {code(label)}"] = {n: f"{own.get(label, 0):,}" for n, own in labels.items()}
    return rows


def _changed(options: Mapping[str, Any], kind: type) -> list[str]:
    """Return the options that affect training and differ from their defaults."""
    defaults = {name: option.default for name, option in options_in(kind).items()}
    return [
        code(f"{name}={','.join(map(str, value)) if isinstance(value, list | tuple) else value}")
        for name, value in options.items()
        if name not in (*PATHS, *FREE, "task") and value != defaults.get(name)
    ]


def _fitted(task: Mapping[str, Any]) -> list[str]:
    """Return the names of the values that were fitted on dev rows."""
    before = {"thresholds": None, "temperature": 1.0, "null_threshold": 0.0}
    return [n.replace("_", " ") for n, value in before.items() if task.get(n) not in (None, value)]


def _seeds(seeds: Mapping[str, Any]) -> dict[str, Any] | None:
    """Return count, metric, mean and deviation over several seeds, if the metric is defined."""
    summary = ((seeds.get("metrics") or {}).get("dev") or {}).get(seeds.get("metric"))
    return summary and {**summary, "count": len(seeds["runs"]), "metric": seeds["metric"]}
