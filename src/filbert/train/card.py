"""The model card (README.md) of a fine-tuned, distilled or pre-trained model.

A card contains no text of the data set and no folder name of the machine. The text is in
templates/card.md; this module computes what the template shows from filbert.json.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from typing import Any, NamedTuple

from huggingface_hub.repocard_data import EvalResult, ModelCardData
from jinja2 import Environment, PackageLoader, StrictUndefined

from filbert.errors import printable
from filbert.train.distill_options import DistillOptions
from filbert.train.options import PATHS, FinetuneOptions, names_of, options_in
from filbert.train.pretrain_options import PretrainOptions

# Names of the tasks on the Hugging Face Hub.
_PIPELINES = {
    "classification": "text-classification",
    "regression": "text-classification",
    "tagging": "token-classification",
    "span_qa": "question-answering",
    "multiple_choice": "multiple-choice",
    "embedding": "sentence-similarity",
}
# A Python call of the model, and the input row for the same call on the command line.
_ONE_TEXT = ('model.predict(["A sentence of yours."])', '{"text": "A sentence of yours."}')
_TWO_TEXTS = (
    'model.predict([("A first text.", "A second text.")])',
    '{"text": "A first text.", "text_pair": "A second text."}',
)
_EXAMPLES = {
    "tagging": (
        'model.tag("Ada lived in London.")',
        '{"tokens": ["Ada", "lived", "in", "London", "."]}',
    ),
    "span_qa": (
        'model.answer("Where did Ada live?", "Ada lived in London.")',
        '{"question": "Where did Ada live?", "context": "Ada lived in London."}',
    ),
    "multiple_choice": (
        'model.predict([{"context": "Ada went", "choices": ["home", "blue"]}])',
        '{"context": "Ada went", "choices": ["home", "blue"]}',
    ),
    "embedding": ('model.embed(["A first text.", "A second text."]).shape', ""),
}
_EMBED = "echo 'A first text.' > texts.txt\nfilbert embed . texts.txt --out vectors.npy"
_FINETUNE = (
    "filbert finetune --task classification --model . --train train.csv --dev dev.csv "
    "--out runs/mine"
)
_FILL = 'model.fill("This is a [MASK] of yours.")'
_OPTIONS = {"pretrain": PretrainOptions, "distill": DistillOptions}
# Options that do not affect training.
_OMITTED = (*PATHS, "task", "overwrite", "resume", "show_texts", "tensorboard", "save_every",
           "license", "language")  # fmt: skip
_MOST_LABELS = 20
_FEW_ROWS = 20
# Default length of distillation on text.
_DEFAULT_LENGTH = 128
_WORDS = {"mlm": "masked words", "replaced": "replaced words"}
# File names that the Hub accepts as names of data sets.
_DATASET = re.compile(r"[A-Za-z0-9][\w.-]{0,95}", re.ASCII)
# Number of digits of a hash that are shown.
_SHORT = 12


class _About(NamedTuple):
    """What depends on the kind of training.

    Attributes:
        task: Name of the task, also used as a tag.
        pipeline: Name of the task on the Hub, if it has one.
        summary: First sentence.
        paragraphs: Further ones.
        call: Example in Python.
        commands: Example in a shell.
        limits: Sentences.
        folder: The folder that the examples load.
    """

    task: str
    pipeline: str | None
    summary: str
    paragraphs: list[str]
    call: str
    commands: str
    limits: list[str]
    folder: str = "."


def card(recorded: Mapping[str, Any]) -> str:
    """Return the README.md of a model, from the content of its filbert.json."""
    about = _of_task(recorded) if "task" in recorded else _of_text(recorded)
    environment = Environment(
        loader=PackageLoader("filbert.train"), undefined=StrictUndefined, trim_blocks=True
    )
    measured = finite(recorded["metrics"])
    names = dict.fromkeys(name for metrics in measured.values() for name in metrics)
    metric_rows = {
        name.replace("_", " "): {
            split: f"{metrics[name]:.4f}" if name in metrics else ""
            for split, metrics in measured.items()
        }
        for name in names
    }
    versions = ", ".join(f"{name} {version}" for name, version in recorded["versions"].items())
    commit = f" (commit {recorded['commit'][:_SHORT]})" if recorded.get("commit") else ""
    values = about._asdict()
    return environment.get_template("card.md").render(
        values,
        front=metadata(recorded, about.task, about.pipeline).to_yaml(),
        name=printable(recorded["name"]),
        data_columns=list(recorded["data"]),
        data_rows=_data_rows(recorded["data"]),
        metric_columns=list(measured),
        metric_rows=metric_rows,
        training=_training(recorded),
        changed=_changed(recorded),
        limits=[*about.limits, *_limits_of_run(recorded)],
        versions=f"filbert {recorded['filbert']}{commit}, {versions}.",
    )


def _of_task(recorded: Mapping[str, Any]) -> _About:
    """Describe a model for a task: fine-tuned, or distilled from a fine-tuned teacher."""
    task, options, model = recorded["task"], recorded["options"], recorded["model"]
    name = task["name"].rpartition(":")[2]
    paragraphs = []
    if labels := [code(label) for label in task.get("labels") or ()]:
        more = f" and {len(labels) - _MOST_LABELS} more" if len(labels) > _MOST_LABELS else ""
        paragraphs.append(f"Labels: {', '.join(labels[:_MOST_LABELS])}{more}.")
    if cleaned := task.get("clean"):
        paragraphs.append(
            f"filbert cleans texts before this model reads them ({', '.join(cleaned)}). Other "
            "tools do not: give them cleaned texts."
        )
    origin = f"fine-tuned from {code(str(options.get('model')))}"
    if "teacher" in options:
        student = options.get("student")
        start = f"starting from {code(student)}" if student else "starting with some of its layers"
        origin = f"distilled from {code(str(options['teacher']))}, {start},"
    has_pairs = recorded["data"]["train"].get("has_pairs")
    call, row = _EXAMPLES.get(name, _TWO_TEXTS if has_pairs else _ONE_TEXT)
    title = name.replace("_", " ")
    predict = f"echo '{row}' > row.jsonl\nfilbert predict . row.jsonl"
    return _About(
        title,
        _PIPELINES.get(name),
        f"A {model['family']} encoder for {title}, {origin} with filbert {recorded['filbert']}: "
        f"{model['parameters']:,} parameters, texts of up to {recorded['max_length']:,} tokens.",
        paragraphs,
        call,
        _EMBED if name == "embedding" else predict,
        _limits_of_task(recorded),
    )


def _of_text(recorded: Mapping[str, Any]) -> _About:
    """Describe a model that was pre-trained or distilled on raw text."""
    options, teacher, model = recorded["options"], recorded.get("teacher"), recorded["model"]
    limits, filbert = _limits_of_text(recorded), f"filbert {recorded['filbert']}"
    text = f"on {recorded['data']['train']['tokens']:,} tokens of text with {filbert}"
    if teacher is not None:
        fills = "metrics" in teacher
        return _About(
            "distillation",
            "fill-mask" if fills else None,
            f"A {model['family']} encoder of {model['parameters']:,} parameters, distilled from "
            f"{code(options['teacher'])} ({teacher['parameters']:,}) by the method "
            f"{options['method']} {text}.",
            [],
            _FILL if fills else 'model.embed(["A sentence of yours."]).shape',
            _FINETUNE,
            [*limits, "It also repeats the errors of its teacher."],
        )
    fills = options["objective"] == "mlm"
    base = f"continued from {code(options['model'])}" if options.get("model") else "from scratch"
    # A discriminator cannot fill masks; the generator that is saved with it can.
    folder = "." if fills else "generator"
    return _About(
        "pre-training",
        "fill-mask" if fills else None,
        f"A {model['family']} encoder pre-trained on {_WORDS[options['objective']]}, {base}, "
        f"{text}: {model['parameters']:,} parameters.",
        [],
        _FILL,
        f'filbert fill {folder} "This is a [MASK] of yours."\n{_FINETUNE}',
        limits,
        folder,
    )


def metadata(recorded: Mapping[str, Any], task: str, pipeline: str | None) -> ModelCardData:
    """Return the metadata at the top of a card. Source: huggingface.co/docs/hub/model-cards.

    Args:
        recorded: The content of filbert.json.
        task: Name of the task, also used as a tag.
        pipeline: Name of the task on the Hub, if it has one.
    """
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
        for split, metrics in finite(recorded["metrics"]).items()
        for name, value in metrics.items()
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


def code(text: str) -> str:
    """Return a name as a Markdown code span; characters that could end it are replaced."""
    return "`" + printable(text).replace("`", "'").replace("|", "\\|") + "`"


def finite(metrics: Mapping[str, Mapping[str, Any]]) -> dict[str, dict[str, float]]:
    """Return the metrics that are finite numbers, by split."""
    return {
        split: {k: v for k, v in values.items() if isinstance(v, float) and math.isfinite(v)}
        for split, values in metrics.items()
    }


def slug(path: str) -> str | None:
    """Return the file name of a path if the Hub accepts it as the name of a data set."""
    name = path.replace("\\", "/").rstrip("/").rpartition("/")[2]
    return name if _DATASET.fullmatch(name) else None


def _data_rows(data: Mapping[str, Mapping[str, Any]]) -> dict[str, dict[str, str]]:
    """Return files, hashes and counts, by title and split."""
    rows = {
        "file": {name: code(facts["path"]) for name, facts in data.items()},
        "sha256": {name: code(facts["sha256"][:_SHORT]) for name, facts in data.items()},
    }
    for key in ("rows", "documents", "sentences", "sequences", "tokens", "truncated"):
        if any(key in facts for facts in data.values()):
            title = "rows cut for length" if key == "truncated" else key
            rows[title] = {n: f"{f[key]:,}" if key in f else "" for n, f in data.items()}
    counts = {name: facts.get("label_counts") or {} for name, facts in data.items()}
    labels = list(dict.fromkeys(label for found in counts.values() for label in found))
    for label in labels[:_MOST_LABELS]:
        rows[f"label {code(label)}"] = {n: f"{c.get(label, 0):,}" for n, c in counts.items()}
    return rows


def _training(recorded: Mapping[str, Any]) -> str:
    """Describe the training: steps, time, machine and seed."""
    device = recorded["device"]
    processes = f" in {device['processes']} processes" if device["processes"] > 1 else ""
    threads = f"{device['threads']} thread{'' if device['threads'] == 1 else 's'}"
    best = recorded.get("best") or {}
    chosen = f"; the weights are those of step {best['step']}" if best.get("step") else ""
    return (
        f"{recorded['steps']:,} steps in {recorded['seconds']:,.0f} s on "
        f"{printable(device['name'])} ({threads}{processes}), {recorded['precision']}, seed "
        f"{recorded['options'].get('seed')}{chosen}."
    )


def _changed(recorded: Mapping[str, Any]) -> list[str]:
    """Return the options that affect training and differ from their defaults."""
    kind = _OPTIONS.get(recorded.get("command", ""), FinetuneOptions)
    defaults = {name: option.default for name, option in options_in(kind).items()}
    return [
        code(f"{name}={','.join(map(str, value)) if isinstance(value, list | tuple) else value}")
        for name, value in recorded["options"].items()
        if name not in _OMITTED and value != defaults.get(name)
    ]


def _limits_of_task(recorded: Mapping[str, Any]) -> list[str]:
    data, task = recorded["data"], recorded["task"]
    # A task without such an option reads long texts whole, in windows.
    rule, limits = task.get("on_overflow", "window"), []
    if rule != "window":
        cut = ", ".join(
            f"{facts['truncated']:,} of {facts['rows']:,} {name} rows"
            for name, facts in data.items()
            if facts.get("truncated")
        )
        limits.append(
            f"Longer texts are cut at {recorded['max_length']:,} tokens, by `{rule}`"
            f"{f' ({cut})' if cut else ''}."
        )
    if "dev" not in data:
        limits.append("There were no dev rows: no best step was chosen and nothing was calibrated.")
    elif "test" not in recorded["metrics"]:
        limits.append(
            "There were no test rows. The metrics are those of dev, on which the step and the "
            "thresholds were chosen, so they are too optimistic."
        )
    else:
        limits.append("Step and thresholds were chosen on dev; only test is unseen.")
    counts = data["train"].get("label_counts") or {}
    if few := [label for label, count in counts.items() if count < _FEW_ROWS]:
        names = ", ".join(map(code, few[:_MOST_LABELS]))
        limits.append(f"Fewer than {_FEW_ROWS} training rows have: {names}.")
    # A temperature of 1 is the value before calibration.
    stored = [k for k in ("thresholds", "temperature", "null_threshold") if task.get(k) not in
              (None, 0.0, 1.0)]  # fmt: skip
    if stored:
        names = " and ".join(key.replace("_", " ") for key in stored)
        limits.append(
            f"`filbert.json` stores {names}. Other tools do not read it: they load the weights "
            "alone."
        )
    return limits


def _limits_of_text(recorded: Mapping[str, Any]) -> list[str]:
    """Return the limits that follow from the training text."""
    options = recorded["options"]
    longest = options.get("second_length") or options.get("max_length") or _DEFAULT_LENGTH
    limits = []
    if names := [code(entry["path"]) for entry in recorded["data"]["train"].get("inputs") or ()]:
        more = f" and {len(names) - 10} more" if len(names) > 10 else ""
        limits.append(f"Its text: {', '.join(names[:10])}{more}.")
    limits += [
        f"It saw {recorded.get('tokens', 0):,} tokens, repetitions included, in sequences of up "
        f"to {longest:,} tokens.",
        "It knows the language, the opinions and the errors of that text and of nothing else.",
    ]
    if "dev" not in recorded["data"]:
        limits.append("No text was held out, so nothing but the training loss was measured.")
    return limits


def _limits_of_run(recorded: Mapping[str, Any]) -> list[str]:
    base, seeds = recorded.get("base_model") or {}, recorded.get("seeds") or {}
    limits = [
        f"This is one run with one seed ({recorded['options'].get('seed')}); others may be better "
        "or worse."
    ]
    summary = ((seeds.get("figures") or {}).get("dev") or {}).get(seeds.get("metric"))
    if summary:
        deviation = summary["deviation"]
        spread = "" if deviation is None else f", deviation {deviation:.4f}"
        limits = [
            f"It is the best of {len(seeds['runs'])} runs with different seeds by dev "
            f"{seeds['metric'].replace('_', ' ')} (mean {summary['mean']:.4f}{spread}); its own "
            "dev metrics are therefore too optimistic."
        ]
    if not (recorded["options"].get("license") or base.get("license")):
        limits.append("No license is stated here. Ask the author before you use it.")
    return limits
